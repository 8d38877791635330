"""Small made-up benchmarks in the exact form of the published files, as addresses below a mirror and their bytes."""

import gzip
import hashlib
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.images.pictures import draw, encode

Files = dict[str, bytes]
"""HOST/PATH (or SET/NAME for what has no address) → bytes."""

S3 = "s3.amazonaws.com/google-landmark"
FORB = "raw.githubusercontent.com/pxiangwu/FORB/main/metadata"
INQUIRE = "raw.githubusercontent.com/inquire-benchmark/INQUIRE/main/data/inquire"
ILIAS = "vrg.fel.cvut.cz/ilias_data"
ILIAS_CODE = "raw.githubusercontent.com/ilias-vrg/ilias/67a343947cd7e216f3a4b05707015fc355adaa95"
OBJECTS = (
    "animated_cards",
    "photorealistic_cards",
    "bookcovers",
    "paintings",
    "currency",
    "logos",
    "packaged_goods",
    "movie_posters",
)


def picture(seed: int) -> bytes:
    """A JPEG of 48 × 32 pixels."""
    return encode(draw(seed))


def tar(members: Mapping[str, bytes], mode: str = "w") -> bytes:
    """A tar, gzipped for `w:gz`; the same bytes at any time."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    data = buffer.getvalue()
    return gzip.compress(data, mtime=0) if mode == "w:gz" else data


def zipped(members: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def roxford(distractors: bool = False) -> Files:
    """Six gallery images, two queries, one image that the protocol does not use and that is broken."""
    gallery = [f"all_souls_{n:06d}" for n in range(6)]
    gnd = {
        "imlist": gallery,
        "qimlist": ["oxford_002416", "oxford_000317"],
        "gnd": [
            {"bbx": [1.5, 2.0, 40.0, 30.25], "easy": [0, 1], "hard": [2], "junk": [3]},
            {"bbx": np.array([0.0, 0.0, 48.0, 32.0]), "easy": np.array([], int), "hard": [5], "junk": [4, 0]},
        ],
    }
    members = {f"{name}.jpg": picture(n) for n, name in enumerate([*gallery, *gnd["qimlist"]])}
    members["broken_000001.jpg"] = b"\xff\xd8 broken"
    files = {
        "cmp.felk.cvut.cz/revisitop/data/datasets/roxford5k/gnd_roxford5k.pkl": pickle.dumps(gnd, 2),
        "www.robots.ox.ac.uk/~vgg/data/oxbuildings/oxbuild_images-v1.tgz": tar(members, "w:gz"),
    }
    if distractors:
        for n in range(1, 101):
            files[f"ptak.felk.cvut.cz/revisitop/revisitop1m/jpg/revisitop1m.{n}.tar.gz"] = tar(
                {f"jpg/{n:02d}/{n:04d}.jpg": picture(n)}, "w:gz"
            )
    return files


def rparis() -> Files:
    """The images lie in two archives, in folders by landmark."""
    gnd = {
        "imlist": ["paris_defense_000000", "paris_eiffel_000001"],
        "qimlist": ["paris_louvre_000002"],
        "gnd": [{"bbx": [1, 2, 30, 30], "easy": [0], "hard": [], "junk": []}],
    }
    base = "www.robots.ox.ac.uk/~vgg/data/parisbuildings"
    return {
        "cmp.felk.cvut.cz/revisitop/data/datasets/rparis6k/gnd_rparis6k.pkl": pickle.dumps(gnd),
        f"{base}/paris_1-v1.tgz": tar(
            {
                "paris/defense/paris_defense_000000.jpg": picture(0),
                "paris/eiffel/paris_eiffel_000001.jpg": picture(1),
            },
            "w:gz",
        ),
        f"{base}/paris_2-v1.tgz": tar({"paris/louvre/paris_louvre_000002.jpg": picture(2)}, "w:gz"),
    }


def gldv2() -> Files:
    """One image in each of the 120 tars, their MD5 files, three queries and one ignored test image."""
    index = [f"{n:016x}" for n in range(100)]
    test = [f"{n:016x}" for n in range(4096, 4116)]
    solution = [
        f"{test[0]},{index[3]} {index[99]},Public",
        f"{test[1]},{index[5]},Private",
        f"{test[2]},None,Ignored",
        f"{test[3]},{index[7]},Private",
    ]
    files = {
        f"{S3}/metadata/index.csv": lines("id", *index),
        f"{S3}/metadata/test.csv": lines("id", *test),
        f"{S3}/ground_truth/retrieval_solution_v2.1.csv": lines("id,images,Usage", *solution),
    }
    for kind, ids in (("index", index), ("test", test)):
        for n, image in enumerate(ids):
            data = tar({f"{image[0]}/{image[1]}/{image[2]}/{image}.jpg": picture(n)})
            digest = hashlib.md5(data).hexdigest()
            files[f"{S3}/{kind}/images_{n:03d}.tar"] = data
            files[f"{S3}/md5sum/{kind}/md5.images_{n:03d}.txt"] = lines(f"{digest}  images_{n:03d}.tar")
    return files


def forb(subset: bool = False) -> Files:
    """Two gallery images and one query per object type; the second image stays in the other gallery."""
    base = f"{FORB}/FORB_subset" if subset else FORB
    files, gallery, members = {}, [], {}
    for n, name in enumerate(OBJECTS):
        database = [f"{name}/database/{k}{n}.jpg" for k in "ab"]
        gallery += database
        query = f"{name}/query/q{n}.jpg"
        record = {
            "query_id": 1,
            "query_image": query,
            "query_url": "https://example.org/q.jpg",
            "groundtruth_ids": [1],
            "groundtruth_images": [database[0]],
            "groundtruth_urls": ["https://example.org/a.jpg"],
            "difficulty": ("easy", "medium", "hard")[n % 3],
        }
        files[f"{base}/{name}_gt.ndjson"] = lines(json.dumps(record))
        files[f"{base}/{name}_database.ndjson"] = lines(
            *(json.dumps({"image": image, "image_url": "https://example.org/x.jpg"}) for image in database)
        )
        members |= {f"forb/{image}": picture(10 * n + k) for k, image in enumerate([*database, query])}
    files[f"{base}/all_database_images.txt"] = lines(*gallery)
    files[f"{base}/oods_database_images.txt"] = lines(*gallery[1::2])
    files["forb/forb_images.zip"] = zipped(members)
    return files


def disc21() -> Files:
    """Twenty zips of references with one image each, three queries, one of them a distractor."""
    files = {
        "raw.githubusercontent.com/facebookresearch/isc2021/e12efd5046bc6cda3e8648152b1a8f774c985c1c/list_files/"
        "public_ground_truth.csv": lines(
            "query_id,reference_id", "Q00000,", "Q00001,R000003", "Q00002,R000019"
        ),
        "disc21/dev_queries.zip": zipped({f"dev_queries/Q{n:05d}.jpg": picture(n) for n in range(3)}),
        "disc21/final_queries.zip": zipped({"final_queries/Q50000.jpg": picture(9)}),
        "disc21/private_ground_truth.csv": lines("Q50000,R000001", "Q50001,"),
    }
    for n in range(20):
        files[f"disc21/archives/references_{n}.zip"] = zipped({f"references/R{n:06d}.jpg": picture(n)})
        files[f"disc21/archives/train_{n}.zip"] = zipped({f"train/T{n:06d}.jpg": picture(n)})
    return files


def inquire() -> Files:
    """Two test queries over three images; the index column and the missing group are as published."""
    images = [f"train/0000{n}_Animalia_Chordata/{n}0be103-954f.jpg" for n in range(3)]
    return {
        f"{INQUIRE}/inquire_queries_test.csv": lines(
            ",query_id,query_text,supercategory,category,iconic_group",
            "0,3,A mongoose standing upright alert,Behavior,Defensive and Survival Behaviors,Mammals",
            '16,29,"Fishing net, on a reef",Context,Human Impact,',
        ),
        f"{INQUIRE}/inquire_annotations.csv": lines(
            "query_id,image_id,image_path", f"3,12,{images[0]}", f"29,13,{images[2]}", f"999,14,{images[1]}"
        ),
        "ml-inat-competition-datasets.s3.amazonaws.com/2024/train.tar.gz": tar(
            {name: picture(n) for n, name in enumerate(images)}, "w:gz"
        ),
    }


def inquire_rerank() -> Files:
    """Two queries with three and two images, one image in both lists; the second query has no iconic group."""
    images = [f"train/0000{n}_Animalia_Chordata/{n}0be103-954f.jpg" for n in range(4)]
    header = "query,inat24_file_name,relevant,supercategory,category,iconic_group"
    first = '"A mongoose, upright",{},{},Behavior,Defense,Mammals'
    second = "Fishing net on a reef,{},{},Context,Human Impact,"
    rows = [first.format(images[n], int(n == 1)) for n in range(3)]
    rows += [second.format(images[n], int(n == 3)) for n in (0, 3)]
    members = {f"train_rerank/{name.removeprefix('train/')}": picture(n) for n, name in enumerate(images)}
    return {
        "inquire/inquire_rerank.csv": lines(header, *rows),
        "inquire/train_rerank.tar": tar({**members, "train_rerank/00009_Plantae/other.jpg": picture(9)}),
    }


def ilias() -> Files:
    """Two instances with positives, image and text queries, and the 45 shards of mini-ILIAS."""
    core = {}
    for number, name in enumerate(("bold_bimp_000", "zippy_zoo_001")):
        core[f"ilias_core/{name}/query/Q{number:03d}_00.jpg"] = picture(number)
        core[f"ilias_core/{name}/query/Q{number:03d}_00_bbox.txt"] = b"1 2 3 4\n"
        core[f"ilias_core/{name}/query/T{number:03d}.txt"] = f"a bold thing, number {number}\n".encode()
        core[f"ilias_core/{name}/pos/P{number:03d}_00.jpg"] = picture(10 + number)
        core[f"ilias_core/{name}/pos/P{number:03d}_01.jpg"] = picture(20 + number)
    names = [name.removeprefix("ilias_core/") for name in core]
    core_tar = tar(core)
    shards = {
        f"yfcc100m_{n:05d}.tar": tar({f"{n:03d}abc.jpg": picture(n), f"{n:03d}abc.json": b"{}"})
        for n in range(2)
    }
    files = {
        f"{ILIAS}/image_ids/image_query_ids.txt": lines(
            *(f"{n},{0}" for n in names if "/Q" in n and "bbox" not in n)
        ),
        f"{ILIAS}/image_ids/text_query_ids.txt": lines(*(n for n in names if "/T" in n)),
        f"{ILIAS}/image_ids/positive_ids.txt": lines(*(f"{n},0.25,12" for n in names if "/P" in n)),
        f"{ILIAS}/ilias_core.tar": core_tar,
        f"{ILIAS}/checksums.txt": lines(
            f"{hashlib.sha256(core_tar).hexdigest()} https://{ILIAS}/ilias_core.tar",
            *(
                f"{hashlib.sha256(d).hexdigest()} https://{ILIAS}/yfcc100m/{name}"
                for name, d in shards.items()
            ),
        ),
        f"{ILIAS_CODE}/misc/taxonomy.json": json.dumps(
            {"product": {"food": {"cake": ["bold_bimp_000"]}}, "art": {"other": {"other": ["zippy_zoo_001"]}}}
        ).encode(),
        **{f"{ILIAS}/yfcc100m/{name}": data for name, data in shards.items()},
    }
    hub = "huggingface.co/datasets/vrg-prague/ilias/resolve/main"
    for n in range(45):
        files[f"{hub}/mini_ilias_yfcc100m-{n:06d}.tar"] = tar({f"{n:02d}deadbeef.jpg": picture(n)})
    return files


def instre(gnd: Any = None) -> Files:
    """Three gallery images and one query of a class, in the folders of the data set."""
    images = [f"INSTRE-S1/01a_canada_book/{n:03d}.jpg" for n in range(4)]
    gnd = gnd or {
        "imlist": images[1:],
        "qimlist": images[:1],
        "gnd": [{"bbx": np.array([2.0, 3.0, 30.0, 20.0]), "ok": np.array([0, 2])}],
    }
    return {
        "instre/gnd_instre.pkl": pickle.dumps(gnd),
        "instre/instre.tar.gz": tar({f"instre/{name}": picture(n) for n, name in enumerate(images)}, "w:gz"),
    }
