"""Writes golden and small cases in the benchmarks' official file formats."""

import csv
import json
import pickle

import numpy as np


def write_csv(path, header, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return path


def write_ndjson(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def gnd_files(folder, gnd, n_images):
    """gnd.pkl (numpy arrays where the lists are not empty) and gnd.json."""
    data = {
        "imlist": [f"image_{i:05d}" for i in range(n_images)],
        "qimlist": [f"query_{i:02d}" for i in range(len(gnd))],
        "gnd": gnd,
    }
    (folder / "gnd.json").write_text(json.dumps(data))
    arrays = [{key: np.array(values) for key, values in entry.items()} for entry in gnd]
    (folder / "gnd.pkl").write_bytes(pickle.dumps(data | {"gnd": arrays}, 2))
    return folder / "gnd.pkl", folder / "gnd.json"


def gldv2_files(folder, case):
    n_public = len(case["ok"]) - case["private_last"]
    solution = [
        (f"q{i:04d}", " ".join(f"g{image}" for image in images) or "None",
         "Ignored" if not images else "Public" if i < n_public else "Private")
        for i, images in enumerate(case["ok"])
    ]  # fmt: skip
    submission = [
        (f"q{i:04d}", " ".join(f"g{image}" for image in r)) for i, r in enumerate(case["retrieved"])
    ]
    return (
        write_csv(folder / "submission.csv", ["id", "images"], submission),
        write_csv(folder / "solution.csv", ["id", "images", "Usage"], solution),
    )


FORB_OFFSETS = {"paintings": 24743, "currency": 25788, "logos": 27371}


def forb_files(folder, case):
    metadata, results = folder / "metadata", folder / "results"
    metadata.mkdir(), results.mkdir()
    for name in dict.fromkeys(case["category"]):
        rows = [i for i, each in enumerate(case["category"]) if each == name]
        offset = FORB_OFFSETS[name]
        write_ndjson(
            metadata / f"{name}_gt.ndjson",
            [
                {
                    "query_id": n,
                    "groundtruth_ids": [image - offset + 1 for image in case["groundtruth"][i]],
                    "difficulty": case["difficulty"][i],
                }
                for n, i in enumerate(rows, 1)
            ],
        )
        # Records in another order than the ground truth's: they are aligned by query_id.
        write_ndjson(
            results / f"{name}_all.ndjson",
            [
                {
                    "query_id": n,
                    "candidate_db_ids": case["candidate_ids"][i],
                    "global_scores": case["candidate_scores"][i],
                }
                for n, i in reversed(list(enumerate(rows, 1)))
            ],
        )
        write_ndjson(
            results / f"{name}_oods.ndjson",
            [
                {"query_id": n, "candidate_db_ids": [7], "global_scores": [case["ood_top_score"][i]]}
                if case["ood_top_score"][i] is not None
                else {"query_id": n, "candidate_db_ids": [], "global_scores": []}
                for n, i in enumerate(rows, 1)
            ],
        )
    return metadata, results


def inquire_files(folder, cases):
    queries = [(i, 100 + i, f"text, {i}", f"S{i % 2}", f"C{i % 3}", f"G{i % 4}") for i in range(len(cases))]
    annotations, run = [], []
    for i, case in enumerate(cases):
        listed = [(100 + i, f"t/{i}/{j}.jpg", s) for j, s in enumerate(case["scores"])]
        run += listed
        annotations += [(100 + i, row[1]) for row, flag in zip(listed, case["relevant"], strict=True) if flag]
        missing = case["count_pos"] - sum(case["relevant"])
        annotations += [(100 + i, f"missing/{i}/{j}.jpg") for j in range(missing)]
    return (
        write_csv(
            folder / "queries.csv",
            ["", "query_id", "query_text", "supercategory", "category", "iconic_group"],
            queries,
        ),
        write_csv(folder / "annotations.csv", ["query_id", "image_path"], annotations),
        write_csv(folder / "run.csv", ["query_id", "image_path", "score"], run),
    )


def ilias_files(folder, case, sims, ranks):
    ids = folder / "image_ids"
    ids.mkdir()
    instances = sorted({name.split("/")[0] for name in case["positives"]})
    (ids / "image_query_ids.txt").write_text("".join(f"{q},0,0,9,9\n" for q in case["query_ids"]))
    (ids / "text_query_ids.txt").write_text("".join(f"{name}/text_0\n" for name in instances))
    (ids / "positive_ids.txt").write_text(
        "".join(f"{name},{scale!r},{clutter}\n" for name, (scale, clutter) in case["positive_info"].items())
    )
    db_ids = [*sorted(case["positives"]), *(f"yfcc/{i:06d}" for i in range(case["n_distractors"]))]
    (folder / "sims.pkl").write_bytes(
        pickle.dumps({"query_ids": case["query_ids"], "db_ids": db_ids, "similarities": sims, "ranks": ranks})
    )
    (folder / "sims.json").write_text(
        json.dumps(
            {
                query: {db_ids[i]: float(s) for i, s in zip(order, values, strict=True)}
                for query, order, values in zip(case["query_ids"], ranks, sims, strict=True)
            }
        )
    )
    taxonomy: dict = {}
    for instance, label in case["taxonomy"].items():
        category, part = label.split("-", 1)
        taxonomy.setdefault(category, {}).setdefault(part, {}).setdefault("other", []).append(instance)
    (folder / "taxonomy.json").write_text(json.dumps(taxonomy))
    return folder
