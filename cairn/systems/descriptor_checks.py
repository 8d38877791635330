"""Whether stored descriptors are what they should be: counts, values, duplicates, a fresh sample, metadata."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.encoders import load_encoder
from cairn.errors import ArtifactError
from cairn.images.manifest import Manifest
from cairn.store.descriptors import DescriptorStore, open_queries, open_shards
from cairn.systems.guards import encoder_key
from cairn.systems.sampling import Sample, recomputed_sample
from cairn.systems.vocabulary import learned_digest

NORM_TOLERANCE = 2e-3
"""Rounding every number of a unit vector to float16 changes its norm by at most 2^-11, a quarter of this."""
LEAST_COSINE = 0.99999
MOST_DUPLICATES = 0.01
"""Share of the gallery that may have the descriptor of an image with another content."""


@dataclass(frozen=True)
class Check:
    """One check: its `name`, whether it `passed`, and what was `found`, in one line."""

    name: str
    passed: bool
    found: str


def check_descriptors(
    stored: Path,
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    vocabulary: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    *,
    sample: int = 8,
    seed: int = 0,
) -> list[Check]:
    """Check what `extract_descriptors` wrote to `stored`, streaming over it; arguments as there.

    `counts`: one descriptor per gallery image and query, no other. `finite`: no NaN, no infinity. `unit_norms`: L2
    norm 1 to within 0.002 (float16), or 0. `duplicates`: at most 1 % of the gallery shares its descriptor with
    an image of another content (an encoder that sees nothing gives all images the same). `fresh_sample`:
    `sample` images and queries described again have a cosine of at least 0.99999 with what is stored. `metadata`:
    what the files say about encoder, parameters and what was learned is what these arguments say. Raises
    ArtifactError where there is nothing that can be read.
    """
    gallery, queries = open_shards(stored), open_queries(stored)
    stores = {"image": gallery, "query": queries}

    def again() -> Sample:
        return recomputed_sample(
            manifest, truth, root, vocabulary, encoder_name, parameters, stored, items=sample, seed=seed
        )

    return [
        _counts(gallery, queries, manifest, truth),
        *_values(stores),
        _duplicates(gallery, manifest),
        _fresh_sample(again),
        _metadata(stores, load_encoder(encoder_name, parameters, root), encoder_name, vocabulary),
    ]


def check_brought(stored: Path, manifest: Manifest, truth: GroundTruth) -> list[Check]:
    """The checks that hold for features which no encoder of Cairn's made: `counts`, `finite` and `duplicates`.

    Nothing where `stored` holds no dense descriptors.
    """
    if not any(Path(stored).glob("[0-9]*.parquet")):
        return []
    gallery, queries = open_shards(stored), open_queries(stored)
    finite = _values({"image": gallery, "query": queries})[0]
    return [_counts(gallery, queries, manifest, truth), finite, _duplicates(gallery, manifest)]


def _counts(
    gallery: DescriptorStore, queries: DescriptorStore, manifest: Manifest, truth: GroundTruth
) -> Check:
    wanted = [manifest.image_id[row] for row in manifest.rows(gallery=True)]
    wrong = _differences("image", wanted, gallery.ids)
    wrong += _differences("query", [query.query_id for query in truth.queries], queries.ids)
    found = "; ".join(wrong) or f"{len(gallery)} images, {len(queries)} queries"
    return Check("counts", not wrong, found)


def _differences(what: str, wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    missing, other = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    lines = [f"no descriptor of {len(missing)}, first {what} {missing[0]}"] if missing else []
    return lines + ([f"{len(other)} too many, first {what} {other[0]}"] if other else [])


def _values(stores: Mapping[str, DescriptorStore]) -> list[Check]:
    bad: list[str] = []
    odd: list[str] = []
    zero, farthest = 0, 0.0
    for what, store in stores.items():
        start = 0
        for block in store.blocks():
            norms = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
            finite, empty = np.isfinite(block).all(axis=1), ~block.any(axis=1)
            deviation = np.where(finite & ~empty, np.abs(norms - 1), 0)
            bad += [f"{what} {store.ids[start + row]}" for row in np.flatnonzero(~finite)]
            odd += [
                f"{what} {store.ids[start + row]} (norm {norms[row]:.4f})"
                for row in np.flatnonzero(deviation > NORM_TOLERANCE)
            ]
            zero += int(empty.sum())
            farthest = max(farthest, float(deviation.max(initial=0)))
            start += len(block)
    return [
        Check("finite", not bad, f"{len(bad)} not finite, first {bad[0]}" if bad else "all are"),
        Check(
            "unit_norms",
            not odd,
            f"{len(odd)} farther than {NORM_TOLERANCE} from 1, first {odd[0]}"
            if odd
            else f"within {farthest:.1e} of 1; {zero} are zero",
        ),
    ]


def _duplicates(gallery: DescriptorStore, manifest: Manifest) -> Check:
    hashes = np.fromiter((hash(row.tobytes()) for row in _rows(gallery)), np.int64, len(gallery))
    empty = np.concatenate([~block.any(axis=1) for block in gallery.blocks()])
    _, group, size = np.unique(hashes, return_inverse=True, return_counts=True)
    content: dict[int, set[str]] = {}
    rows = np.flatnonzero((size[group] > 1) & ~empty)
    for row in rows:
        image = manifest.row_of.get(gallery.ids[row])
        content.setdefault(int(group[row]), set()).add("" if image is None else manifest.sha256[image])
    shared = [int(row) for row in rows if len(content[int(group[row])]) > 1]
    found = f"{len(shared)} of {len(gallery)} images have the descriptor of an image of another content"
    if shared:
        found += f" (first: {gallery.ids[shared[0]]})"
    return Check("duplicates", len(shared) <= MOST_DUPLICATES * len(gallery), found)


def _rows(store: DescriptorStore) -> Iterable[np.ndarray]:
    for block in store.blocks():
        yield from block


def _fresh_sample(again: Callable[[], Sample]) -> Check:
    try:
        sample = again()
    except ArtifactError as error:
        return Check("fresh_sample", False, str(error))
    cosines = [_cosine(old, new) for old, new in zip(sample.stored, sample.fresh, strict=True)]
    worst = int(np.argmin(cosines))
    return Check(
        "fresh_sample",
        cosines[worst] >= LEAST_COSINE,
        f"{len(cosines)} described again: least cosine {cosines[worst]:.7f} ({sample.names[worst]})",
    )


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    """1 for two zero vectors, 0 for a zero vector and another or for two of different lengths."""
    if one.shape != other.shape:
        return 0.0
    one, other = one.astype(np.float64), other.astype(np.float64)
    norms = float(np.linalg.norm(one) * np.linalg.norm(other))
    if norms == 0:
        return float(not one.any() and not other.any())
    return float(one @ other) / norms if np.isfinite(norms) else 0.0


def _metadata(
    stores: Mapping[str, DescriptorStore], encoder: Any, encoder_name: str, vocabulary: Path
) -> Check:
    wanted = {
        "encoder": encoder_name,
        "parameters": json.dumps(encoder_key(encoder, encoder_name), sort_keys=True),
        "learned": learned_digest(vocabulary),
    }
    wrong = []
    for what, store in stores.items():
        found = {**store.metadata, "dtype": store.metadata.get("dtype", "")}
        for key, value in {**wanted, "dtype": str(store.dtype)}.items():
            if found.get(key) != value:
                wrong.append(f"{what} files: {key} is {found.get(key)!r}, not {value!r}")
    return Check("metadata", not wrong, "; ".join(wrong) or "as in params.yaml")
