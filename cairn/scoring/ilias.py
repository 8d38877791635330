"""ILIAS and mini-ILIAS: similarities in the official `.json` or `.pkl` against the published image ids."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import InputError, UsageError
from cairn.metrics import ilias
from cairn.metrics.ragged import Floats, Ints, count_per_query
from cairn.metrics.result import PerQuery, Row, ScoredRun, mean_row
from cairn.scoring.files import announce, check_depth, read_json, read_lines
from cairn.untrusted import load_pickle

DEPTH = 1000
PICKLE_KEYS = ("query_ids", "db_ids", "similarities", "ranks")


@dataclass(frozen=True)
class Dataset:
    """What the id files say. An instance is the part of an id before the slash."""

    image_queries: tuple[str, ...]  # sorted
    text_queries: tuple[str, ...]  # sorted
    positives: tuple[str, ...]  # sorted
    scale: Floats  # [positives]
    clutter: Ints  # [positives]
    instance: np.ndarray  # [positives], number among `instances`
    instances: dict[str, int]


@dataclass(frozen=True)
class Similarities:
    """A run: entries of all queries, in order, and the positive each entry is (-1: a distractor or other)."""

    queries: tuple[str, ...]
    query: Ints  # [entries], ascending
    similarity: np.ndarray  # [entries], in the run's own precision
    positive: Ints  # [entries], index into Dataset.positives of a positive of any instance, else -1


def read_dataset(directory: Path) -> Dataset:
    """Read `image_ids/{image_query_ids,text_query_ids,positive_ids}.txt` (`positive,scale,clutter` a line)."""
    folder = Path(directory) / "image_ids"
    image_queries = _ids(folder / "image_query_ids.txt", first_field=True)
    text_queries = _ids(folder / "text_query_ids.txt", first_field=False)
    # The official code knows the instances from the text queries.
    instances = {name: number for number, name in enumerate(sorted({_instance(q) for q in text_queries}))}
    for query in image_queries:
        if _instance(query) not in instances:
            raise InputError(
                f"{folder / 'image_query_ids.txt'}: query {query}: its instance has no text query"
            )
    path = folder / "positive_ids.txt"
    rows: dict[str, tuple[float, int]] = {}
    for line, text in read_lines(path):
        fields = text.split(",")
        try:
            name, scale, clutter = fields[0].strip(), float(fields[1]), int(fields[2])
            figures = fields[1] + fields[2]
            if len(fields) != 3 or not np.isfinite(scale) or not 0 <= clutter < 1 << 53:
                raise ValueError
            if not figures.isascii() or "_" in figures:  # Python also reads 1_000 and other scripts' digits
                raise ValueError
        except (ValueError, IndexError):
            raise InputError(f"{path}:{line}: {text!r:.80}; expected id,scale,clutter") from None
        if name in rows:
            raise InputError(f"{path}:{line}: positive {name} occurs twice")
        if _instance(name) not in instances:
            raise InputError(f"{path}:{line}: positive {name}: its instance has no text query")
        rows[name] = scale, clutter
    if not rows:
        raise InputError(f"{path}: no positive; expected lines of id,scale,clutter")
    positives = tuple(sorted(rows))
    return Dataset(
        tuple(sorted(image_queries)),
        tuple(sorted(text_queries)),
        positives,
        np.array([rows[name][0] for name in positives]),
        np.array([rows[name][1] for name in positives], np.int64),
        np.array([instances[_instance(name)] for name in positives], np.int64),
        instances,
    )


def read_similarities(path: Path, dataset: Dataset) -> Similarities:
    """Read `{query: {image: similarity}}` (.json) or query_ids, db_ids, similarities, ranks (.pkl).

    InputError, naming query and image, for unknown queries, positives that do not exist, images listed twice,
    similarities that are not finite, and ranks outside db_ids.
    """
    path = Path(path)
    if path.suffix.lower() == ".json":
        return _from_json(path, read_json(path), dataset)
    if path.suffix.lower() == ".pkl":
        announce(path)
        data = load_pickle(path)
        if isinstance(data, dict) and set(data) == {"all_similarities"}:
            return _from_json(path, data["all_similarities"], dataset)
        return _from_pickle(path, data, dataset)
    raise UsageError(f"{path}: expected a .json or .pkl file of similarities")


def read_taxonomy(path: Path) -> dict[str, tuple[str, str]]:
    """Category and subcategory of every instance, from `taxonomy.json`.

    It holds {category: {subcategory: {group: [instance]}}}; a flat {instance: "category-subcategory"} is read
    too. Names as the official code builds them: the subcategory is `category-subcategory`, the category what
    stands before its first hyphen.
    """
    data = read_json(Path(path))
    if isinstance(data, dict) and data and all(isinstance(label, str) for label in data.values()):
        return {name: (label.split("-")[0], label) for name, label in data.items()}
    result: dict[str, tuple[str, str]] = {}
    try:
        for category, parts in data.items():
            for part, groups in parts.items():
                for names in groups.values():
                    for name in names:
                        if not isinstance(name, str) or isinstance(names, str):
                            raise TypeError
                        label = f"{category}-{part}"
                        result[name] = label.split("-")[0], label
    except (AttributeError, TypeError):
        raise InputError(f"{path}: expected {{category: {{subcategory: {{group: [instances]}}}}}}") from None
    return result


def score(dataset_dir: Path, similarities: Path, k: int = DEPTH, taxonomy: Path | None = None) -> ScoredRun:
    """mAP@k and oracle@k over all queries of the run, by scale and clutter, and by category if `taxonomy`.

    Categories and subcategories are macro means over instances; all else is a mean over queries.
    """
    check_depth(k)
    dataset = read_dataset(dataset_dir)
    run = read_similarities(similarities, dataset)
    if not run.queries:
        raise InputError(f"{similarities}: no query of the dataset is in it")
    labels = read_taxonomy(taxonomy) if taxonomy else None
    wanted = np.array([dataset.instances[_instance(query)] for query in run.queries])
    of_own = run.positive >= 0
    of_own[of_own] = dataset.instance[run.positive[of_own]] == wanted[run.query[of_own]]
    n_of = np.bincount(dataset.instance, minlength=len(dataset.instances))
    n_positives = n_of[wanted]
    values, oracle = ilias.score(run.query, run.similarity, of_own, n_positives, k)
    # The official code scores a query whose instance has no positive 0.
    values, oracle = np.nan_to_num(values), np.nan_to_num(oracle)
    metric = f"map@{k}"
    per_query = [
        PerQuery("all", metric, run.queries, values),
        PerQuery("all", f"oracle@{k}", run.queries, oracle),
    ]
    for name, group in _groups(dataset):
        in_group = of_own.copy()
        in_group[of_own] = group[run.positive[of_own]]
        n_in_group = np.bincount(dataset.instance[group], minlength=len(dataset.instances))[wanted]
        each = ilias.score_group(run.query, run.similarity, of_own, in_group, n_in_group, k)
        per_query.append(PerQuery(name, metric, run.queries, each))
    rows = [mean_row(each) for each in per_query]
    for name, members in _categories(run.queries, labels, taxonomy):
        value = ilias.macro_mean(values[members], wanted[members])
        rows.append(Row(name, metric, value, len(members)))
        chosen = tuple(run.queries[i] for i in members)
        per_query.append(PerQuery(name, metric, chosen, values[members]))
    return ScoredRun("ilias", tuple(rows), tuple(per_query), _notes(run, dataset, k))


def _notes(run: Similarities, dataset: Dataset, k: int) -> tuple[str, ...]:
    notes = []
    scored = set(run.queries)
    for kind, names in (("image", dataset.image_queries), ("text", dataset.text_queries)):
        missing = [name for name in names if name not in scored]
        if missing and len(missing) < len(names):
            notes.append(
                f"{len(missing):,} of {len(names):,} {kind} queries are not in the run and are left out, as the "
                f"official code does (first: {missing[0]})"
            )
    if scored & set(dataset.image_queries) and scored & set(dataset.text_queries):
        notes.append("image and text queries are averaged together, as they stand in one run")
    listed = count_per_query(run.query, len(run.queries))
    if short := int((listed < k).sum()):
        notes.append(
            f"{short:,} queries list fewer than {k} images; the official oracle divides by what is listed, "
            "so theirs is larger than a full list would give"
        )
    return tuple(notes)


def _groups(dataset: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    for title, values, bounds in (
        ("scale", dataset.scale, ilias.SCALE_BOUNDS),
        ("clutter", dataset.clutter, ilias.CLUTTER_BOUNDS),
    ):
        for low, high in itertools.pairwise(bounds):
            yield f"{title}:{ilias.group_name(low, high)}", (values >= low) & (values < high)


def _categories(
    queries: tuple[str, ...], labels: dict[str, tuple[str, str]] | None, path: Path | None
) -> Iterator[tuple[str, Ints]]:
    if labels is None:
        return
    for query in queries:
        if _instance(query) not in labels:
            raise InputError(f"{path}: the instance of query {query} is not in it")
    for column, title in enumerate(("category", "subcategory")):
        of_query = np.array([labels[_instance(query)][column] for query in queries], object)
        for name in sorted(set(of_query.tolist())):
            yield f"{title}:{name}", np.flatnonzero(of_query == name)


def _from_json(path: Path, data: Any, dataset: Dataset) -> Similarities:
    if not isinstance(data, dict):
        raise InputError(f"{path}: expected {{query: {{image: similarity}}}}")
    known = set(dataset.image_queries) | set(dataset.text_queries)
    if unknown := next((query for query in data if query not in known), None):
        raise InputError(f"{path}: query {unknown!r:.80} does not exist")
    # The official order: image queries, then text queries, each sorted.
    queries = [query for query in (*dataset.image_queries, *dataset.text_queries) if query in data]
    number = {name: index for index, name in enumerate(dataset.positives)}
    values, positive = [], []
    for query in queries:
        entries = data[query]
        if not isinstance(entries, dict):
            raise InputError(f"{path}: query {query}: expected {{image: similarity}}")
        for image, value in entries.items():
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise InputError(f"{path}: query {query}, image {image:.80}: {value!r:.40} is not a number")
            values.append(_float(value))
            positive.append(_positive(path, query, image, number, dataset))
    counts = [len(data[query]) for query in queries]
    query = np.repeat(np.arange(len(queries)), counts).astype(np.int64)
    similarity = np.array(values, np.float64)
    if (bad := np.flatnonzero(~np.isfinite(similarity))).size:
        row = int(bad[0])
        name = queries[query[row]]
        image = list(data[name])[row - int(np.searchsorted(query, query[row]))]
        raise InputError(
            f"{path}: query {name}, image {image:.80}: the similarity {values[row]} is not finite"
        )
    return Similarities(tuple(queries), query, similarity, np.array(positive, np.int64))


def _from_pickle(path: Path, data: Any, dataset: Dataset) -> Similarities:
    if not isinstance(data, dict) or not set(PICKLE_KEYS) <= set(data):
        raise InputError(f"{path}: expected a dict with {', '.join(PICKLE_KEYS)}")
    queries, images = (_texts(path, key, data[key]) for key in ("query_ids", "db_ids"))
    known = set(dataset.image_queries) | set(dataset.text_queries)
    if unknown := next((query for query in queries if query not in known), None):
        raise InputError(f"{path}: query {unknown!r:.80} does not exist")
    if len(set(queries)) < len(queries):
        raise InputError(f"{path}: a query occurs twice in query_ids")
    if len(set(images)) < len(images):
        raise InputError(f"{path}: an image occurs twice in db_ids")
    rows = {key: data[key] for key in ("similarities", "ranks")}
    for key, value in rows.items():
        if not isinstance(value, np.ndarray | list) or len(value) != len(queries):
            raise InputError(f"{path}: {key} must have one row for each of the {len(queries)} queries")
    number = {name: index for index, name in enumerate(dataset.positives)}
    of_image = np.array([_positive(path, "(db_ids)", image, number, dataset) for image in images], np.int64)
    similarities, ranks = [], []
    for query, values, order in zip(queries, rows["similarities"], rows["ranks"], strict=True):
        values, order = _row(path, query, "similarities", values), _row(path, query, "ranks", order)
        if values.dtype.kind not in "fiu" or order.dtype.kind not in "iu" or len(values) != len(order):
            raise InputError(
                f"{path}: query {query}: similarities and ranks must be numbers, as many of each"
            )
        if (bad := np.flatnonzero((order < 0) | (order >= len(images)))).size:
            raise InputError(f"{path}: query {query}: image {order[bad[0]]} does not exist in db_ids")
        if values.dtype.kind == "f" and (bad := np.flatnonzero(~np.isfinite(values))).size:
            image = images[order[bad[0]]]
            raise InputError(f"{path}: query {query}, image {image:.80}: the similarity is {values[bad[0]]}")
        if len(np.unique(order)) < len(order):
            raise InputError(f"{path}: query {query}: an image is ranked twice")
        similarities.append(values)
        ranks.append(order)
    lengths = [len(order) for order in ranks]
    return Similarities(
        tuple(queries),
        np.repeat(np.arange(len(queries)), lengths).astype(np.int64),
        np.concatenate(similarities) if similarities else np.empty(0),
        of_image[np.concatenate(ranks)] if ranks else np.empty(0, np.int64),
    )


def _positive(path: Path, query: str, image: str, number: dict[str, int], dataset: Dataset) -> int:
    """Number of a positive, -1 for a distractor; an unknown image of a known instance does not exist."""
    index = number.get(image, -1)
    if index < 0 and _instance(image) in dataset.instances:
        raise InputError(f"{path}: query {query}: image {image:.80} is neither a positive nor a distractor")
    return index


def _row(path: Path, query: str, key: str, values: Any) -> np.ndarray:
    try:
        row = np.asarray(values)
    except (ValueError, OverflowError):
        row = np.empty(0, object)
    if row.ndim != 1 or row.dtype.kind not in "fiu":
        if row.ndim == 1 and not len(row):
            return np.empty(0, np.float64 if key == "similarities" else np.int64)
        raise InputError(f"{path}: query {query}: {key} must be a list of numbers")
    if not len(row) and key == "ranks":
        return np.empty(0, np.int64)
    return row


def _texts(path: Path, key: str, values: Any) -> list[str]:
    if isinstance(values, np.ndarray):
        values = values.ravel().tolist()
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{path}: {key} must be a list of ids")
    return list(values)


def _ids(path: Path, first_field: bool) -> list[str]:
    names: dict[str, int] = {}
    for line, text in read_lines(path):
        name = text.split(",")[0].strip() if first_field else text
        if "/" not in name:
            raise InputError(f"{path}:{line}: {text!r:.80}; expected an id like instance/name")
        if name in names:
            raise InputError(f"{path}:{line}: {name} occurs twice (line {names[name]} too)")
        names[name] = line
    if not names:
        raise InputError(f"{path}: no id; expected one a line")
    return list(names)


def _instance(name: str) -> str:
    return name.split("/")[0]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
