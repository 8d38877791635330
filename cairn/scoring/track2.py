"""DISC21 track 2: descriptors of queries and references are matched exhaustively, then scored as predictions."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cairn.errors import InputError, UsageError
from cairn.metrics import micro_ap
from cairn.metrics.normalization import nth_neighbor_norms
from cairn.metrics.ragged import Ints
from cairn.metrics.result import ScoredRun
from cairn.progress import track
from cairn.scoring.disc21 import read_truth, score_matches

MAX_BYTES = 64 << 30
MAX_RATIO = 100
"""Largest ratio of the values' size to what they take in the file; descriptors hardly shrink."""
SLACK = 1 << 20  # bytes beyond that ratio
MAX_LENGTH = 1e15
"""Longest descriptor: no squared distance and no normalised score of longer ones is sure to fit float32."""
MAX_FACTOR = 1000
BLOCK = 1 << 24  # similarities computed at once

Descriptors = NDArray[np.float32]


def read_descriptors(paths: Sequence[Path]) -> tuple[list[str], Descriptors]:
    """Image names and float32 descriptors [images, dim] of the official HDF5 files (`vectors`, `image_names`).

    Folders and the endings .jpg and .png are taken off the names, as the official code does. InputError for more
    than 256 dimensions, values that are not finite, names that repeat, and anything that is not plain data.
    """
    names: list[str] = []
    parts = []
    for path in map(Path, paths):
        part_names, vectors = _read(path)
        if parts and vectors.shape[1] != parts[0].shape[1]:
            raise InputError(f"{path}: {vectors.shape[1]} dimensions; {paths[0]} has {parts[0].shape[1]}")
        names += part_names
        parts.append(vectors)
    if not parts or not names:
        raise InputError(f"{paths[0] if paths else 'no file'}: no descriptor")
    seen: set[str] = set()
    if repeated := next((name for name in names if name in seen or seen.add(name)), None):  # type: ignore[func-returns-value]
        raise InputError(f"{paths[-1]}: image {repeated} occurs twice")
    return names, np.concatenate(parts)


def best_matches(
    query: Descriptors, reference: Descriptors, norms: NDArray | None = None, limit: int = micro_ap.LIMIT
) -> tuple[Ints, Ints, NDArray[np.float32]]:
    """The `limit` best of all pairs: query number, reference number, score, by query, then reference.

    Scores are inner products plus the query's `norms`, or (as the official matching has it by default) negated
    squared L2 distances where `norms` is None. At the cut, equal scores are kept by query, then reference number.
    """
    squares = (reference * reference).sum(axis=1)
    threshold = -np.inf
    kept: list[tuple[Ints, Ints, NDArray]] = []
    step = max(1, BLOCK // max(1, len(reference)))
    for start in track(range(0, len(query), step), "matching", unit="blocks"):
        block = query[start : start + step]
        score = block @ reference.T
        if norms is None:
            score = 2 * score - squares - (block * block).sum(axis=1)[:, None]
        else:
            score += norms[start : start + step, None]
        rows, columns = np.nonzero(score >= threshold)
        kept.append((rows + start, columns, score[rows, columns]))
        if sum(len(part[0]) for part in kept) > 4 * limit:
            kept = [_best(kept, limit)]
            threshold = float(kept[0][2].min())
    return _best(kept, limit)


def score(
    ground_truth: Path,
    queries: Sequence[Path],
    references: Sequence[Path],
    training: Sequence[Path] = (),
    n: int = 1,
    factor: float = 1.0,
    inner_product: bool = False,
) -> ScoredRun:
    """DISC21's numbers from descriptors; with `training`, scores normalised by the `n`-th training neighbour.

    Compared by L2 distance, as the official script does by default, or by `inner_product` (its `--ip`), which
    normalised scores are always.
    """
    if not abs(factor) < MAX_FACTOR:
        raise UsageError(
            f"the factor is {factor}; expected a number between -{MAX_FACTOR:,} and {MAX_FACTOR:,}"
        )
    names, pairs, all_listed = read_truth(ground_truth)
    query_names, query = read_descriptors(queries)
    reference_names, reference = read_descriptors(references)
    parts = {"references": reference}
    norms = None
    if training:
        parts["training images"] = read_descriptors(training)[1]
    for title, part in parts.items():
        if part.shape[1] != query.shape[1]:
            raise InputError(f"{title} have {part.shape[1]} dimensions, queries {query.shape[1]}")
    if training:
        count = len(parts["training images"])
        if not 1 <= n <= count:
            raise UsageError(f"the training neighbour asked for is number {n}; expected 1 to {count}")
        norms = nth_neighbor_norms(query, parts["training images"], n, factor)
    elif inner_product:
        norms = np.zeros(len(query), np.float32)
    known = {name: number for number, name in enumerate(names)}
    number = np.array([known.get(name, -1) for name in query_names])
    if not (number >= 0).any():
        raise InputError(f"{queries[0]}: no query of the ground truth is in it (first: {query_names[0]})")
    if all_listed:
        # Descriptors of queries outside the split are no mistake: the official files hold both splits.
        chosen = np.flatnonzero(number >= 0)
        query, number = query[chosen], number[chosen]
        norms = None if norms is None else norms[chosen]
        query_names = [query_names[i] for i in chosen]
    else:
        for row in np.flatnonzero(number < 0):
            number[row] = known.setdefault(query_names[row], len(known))
    rows, columns, value = best_matches(query, reference, norms)
    pair = np.array(
        [
            pairs.get((query_names[q], reference_names[r]), -1)
            for q, r in zip(rows.tolist(), columns.tolist(), strict=True)
        ],
        np.int64,
    )
    warnings = []
    if missing := set(names).difference(query_names):
        warnings.append(f"{len(missing):,} queries of the ground truth have no descriptor")
    return score_matches(
        "disc21-track2", names, pairs, number[rows], value.astype(np.float64), pair, warnings
    )


def _best(kept: list[tuple[Ints, Ints, NDArray]], limit: int) -> tuple[Ints, Ints, NDArray]:
    rows, columns, score = (np.concatenate(parts) for parts in zip(*kept, strict=True))
    if len(score) > limit:
        order = np.lexsort((columns, rows, -score))[:limit]
        rows, columns, score = rows[order], columns[order], score[order]
    order = np.lexsort((columns, rows))
    return rows[order].astype(np.int64), columns[order].astype(np.int64), score[order]


def _read(path: Path) -> tuple[list[str], Descriptors]:
    import h5py

    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        with h5py.File(path, "r") as file:
            for key in ("vectors", "image_names"):
                link = file.get(key, getlink=True)
                data = file.get(key) if isinstance(link, h5py.HardLink) else None
                if not isinstance(data, h5py.Dataset) or data.is_virtual or data.external:
                    raise InputError(
                        f"{path}: the dataset {key!r} is missing; expected vectors and image_names"
                    )
                if data.size * data.dtype.itemsize > MAX_BYTES:
                    raise InputError(f"{path}: {key} takes more than {MAX_BYTES >> 30} GiB")
                _check_stored(path, key, data)
            shape, kind = file["vectors"].shape, file["vectors"].dtype.kind  # type: ignore[union-attr]
            if len(shape) != 2 or kind != "f" or not 1 <= shape[1] <= micro_ap.MAX_DIM:
                raise InputError(
                    f"{path}: vectors have the shape {shape}; expected floats [images, at most {micro_ap.MAX_DIM}]"
                )
            if file["image_names"].shape != shape[:1]:  # type: ignore[union-attr]
                raise InputError(f"{path}: image_names and vectors differ in length")
            with np.errstate(over="ignore"):  # what is too large for float32 is named below
                vectors = np.asarray(file["vectors"][:], np.float32)  # type: ignore[index]
            raw = file["image_names"][:].tolist()  # type: ignore[index, union-attr]
    except InputError:
        raise
    except Exception as error:
        detail = " ".join(str(error).split())[:100]
        raise InputError(f"{path}: not a readable HDF5 file ({type(error).__name__}: {detail})") from None
    names = [_name(path, value) for value in raw]
    if (bad := np.flatnonzero(~np.isfinite(vectors).all(axis=1))).size:
        raise InputError(f"{path}: image {names[bad[0]]}: its descriptor is not finite")
    length = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if (bad := np.flatnonzero(length > MAX_LENGTH)).size:
        raise InputError(
            f"{path}: image {names[bad[0]]}: its descriptor has the length {length[bad[0]]:.3g}; at most "
            f"{MAX_LENGTH:g} is read, since scores have to fit float32"
        )
    return names, vectors


def _check_stored(path: Path, key: str, data: Any) -> None:
    """A few bytes of HDF5 can claim any number of zeros: InputError for far more values than are stored."""
    claimed, stored = data.size * data.dtype.itemsize, data.id.get_storage_size()
    if claimed > MAX_RATIO * stored + SLACK:
        raise InputError(f"{path}: {key} claims {claimed:,} bytes where {stored:,} are stored; refused")


def _name(path: Path, value: object) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = None
    if not isinstance(value, str) or not value:
        raise InputError(f"{path}: image_names holds something that is not a name")
    name = value.split("/")[-1]
    return name[:-4] if name.endswith((".jpg", ".png")) else name
