"""The step `descriptors` of a system that brings its own features: read, checked against the manifest, stored."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.encoders.feature_files import as_ids, read_named, text_ids
from cairn.encoders.precomputed import MANIFEST, Parameters, Side, create, features_path
from cairn.errors import InputError
from cairn.files import file_digest, write_json
from cairn.images.manifest import Manifest
from cairn.images.names import shown
from cairn.store.descriptors import QUERIES_FILE, open_queries, open_shards, write_shard
from cairn.store.shards import assign_shards, shard_name
from cairn.systems.disk import tells_full_disk
from cairn.systems.writing import Writing
from cairn.validation import validated

FACTS_FILE = "descriptors.json"
TRAINING_FACTS_FILE = "training_descriptors.json"
SOURCES_FILE = "sources.json"
ID_FILES = (".txt", ".json", ".npy")
TOLERANCE = 0.01
"""How far from 1 a norm may be where features should be unit vectors: float16 and bfloat16 round by less."""
NAMES_SHOWN = 3


@tells_full_disk
def write_descriptors(manifest: Manifest, truth: GroundTruth, job: Writing, output: Path) -> None:
    """Write the features as `extract_descriptors` would, and `sources.json` with the hash of every file read.

    `job.settings` as in `cairn.encoders.precomputed.Parameters`. InputError, naming the file and ids, where ids are
    missing, unknown or repeated, rows and ids do not fit, or rows are not finite or no unit vectors.
    """
    parameters = validated(Parameters, job.settings, "precomputed")
    base = job.root / features_path(parameters.features, job.benchmark)
    gallery = [manifest.image_id[row] for row in manifest.rows(gallery=True)]
    asked = [query.query_id for query in truth.queries]
    rows = _Rows(base, parameters, parameters.images, "images", gallery)
    queries = _Rows(base, parameters, parameters.queries, "queries", asked)
    if rows.dim != queries.dim:
        raise InputError(f"{base}: images have {rows.dim} numbers, queries {queries.dim}")
    about = _about(parameters)
    _write_shards(output, gallery, rows, about)
    write_shard(output / QUERIES_FILE, asked, queries.take(asked), about, id_column="query_id")
    stores = open_shards(output), open_queries(output)
    write_json(
        output / FACTS_FILE,
        {
            "encoder": "precomputed",
            "facts": parameters.facts.model_dump(),
            "dim": stores[0].dim,
            "dtype": str(stores[0].dtype),
            "images": len(stores[0]),
            "queries": len(stores[1]),
            "without_features": {"images": rows.zero(gallery), "queries": queries.zero(asked)},
        },
    )
    _write_sources(output, base, parameters, job.benchmark, [*rows.files, *queries.files])


@tells_full_disk
def write_training_descriptors(training: Manifest, job: Writing, output: Path) -> None:
    """Write the features of the training images, as `extract_training_descriptors` would.

    InputError where `training` says nothing of them.
    """
    parameters = validated(Parameters, job.settings, "precomputed")
    if parameters.training is None:
        raise InputError(
            "precomputed: a head, a read-out or the score normalisation of this system learns on descriptors of "
            "training images; say where they are under `training`"
        )
    base = job.root / features_path(parameters.features, job.benchmark)
    ids = [training.image_id[row] for row in training.rows(train=True)]
    rows = _Rows(base, parameters, parameters.training, "training images", ids)
    _write_shards(output, ids, rows, _about(parameters))
    store = open_shards(output)
    facts = {"encoder": "precomputed", "dim": store.dim, "dtype": str(store.dtype), "images": len(store)}
    write_json(output / TRAINING_FACTS_FILE, {**facts, "without_features": rows.zero(ids)})
    _write_sources(output, base, parameters, job.benchmark, rows.files)


class _Rows:
    """The features of one side: the rows of its ids, checked.

    `what` is `images`, `queries` or `training images`; `wanted` are the benchmark's ids.
    """

    def __init__(
        self, base: Path, parameters: Parameters, side: Side, what: str, wanted: Sequence[str]
    ) -> None:
        self.parameters, self.what = parameters, what
        self.path = base / side.file if side.file is not None else base
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder; name the file with {what.split()[0]}.file")
        is_matlab = self.path.suffix.lower() == ".mat"
        default = {"images": "X", "queries": "Q"}.get(what) if is_matlab else None
        if side.array is None and self.path.suffix.lower() == ".parquet":
            default = "descriptor"
        self.array = _matrix(read_named(self.path, side.array or default), self.path, what)
        if is_matlab:
            self.array = self.array.T  # columns are images
        self.files = [self.path]
        ids = self._ids(base, side, is_matlab, wanted)
        if len(ids) != len(self.array):
            turned = "; its columns are as many" if len(ids) == self.array.shape[1] else ""
            raise InputError(f"{self.path}: {len(self.array)} rows of {what} for {len(ids)} ids{turned}")
        self.row_of = _checked_ids(ids, wanted, side, self.path, what)

    @property
    def dim(self) -> int:
        """Numbers of a feature."""
        return self.array.shape[1]

    def take(self, ids: Sequence[str]) -> np.ndarray:
        """Rows of some ids, as they are stored. InputError, naming the id, where a row cannot be searched."""
        rows = np.array([self.row_of[one] for one in ids], np.int64)
        order = np.argsort(rows)
        taken = np.empty((len(rows), self.dim), self.array.dtype)
        taken[order] = self.array[rows[order]]  # in the order of the file, which may be mapped
        norms = np.linalg.norm(taken.astype(np.float64), axis=1)
        if not np.isfinite(norms).all():
            one = ids[int(np.argmin(np.isfinite(norms)))]
            raise InputError(f"{self.path}: the feature of {shown(one)} is not finite")
        if self.parameters.norm == "l2":
            taken = taken / np.where(norms > 0, norms, 1)[:, None]
        elif self.parameters.norm is None and ((np.abs(norms - 1) > TOLERANCE) & (norms > 0)).any():
            worst = int(np.argmax(np.where(norms > 0, np.abs(norms - 1), 0)))
            raise InputError(
                f"{self.path}: the feature of {shown(ids[worst])} has the norm {norms[worst]:.4g}, not 1; say "
                "`norm: l2` to normalise all, or `norm: none` to search inner products of the rows as they are"
            )
        half = self.array.dtype == np.float16
        with np.errstate(over="ignore"):
            return taken.astype(self.parameters.dtype or ("float16" if half else "float32"))

    def zero(self, ids: Sequence[str]) -> list[str]:
        """Ids whose feature is zero, sorted."""
        found = []
        for start in range(0, len(ids), 8192):
            part = ids[start : start + 8192]
            rows = self.array[[self.row_of[one] for one in part]]
            found += [part[int(row)] for row in np.flatnonzero(~rows.any(axis=1))]
        return sorted(found)

    def _ids(self, base: Path, side: Side, is_matlab: bool, wanted: Sequence[str]) -> list[str]:
        source = side.ids
        if source is None and is_matlab:
            source = MANIFEST
        if source is None and self.path.suffix.lower() == ".parquet":
            source = "query_id" if self.what == "queries" else "image_id"
        if source is None:
            raise InputError(
                f"{self.path}: whose rows are these? Say {self.what.split()[0]}.ids: `{MANIFEST}` (rows in the "
                "benchmark's order), a file of ids, or an array of the same file"
            )
        if source == MANIFEST:
            return list(wanted)
        if source.lower().endswith(ID_FILES):
            if ".." in Path(source).parts or Path(source).is_absolute():
                raise InputError(f"{source}: the name of a file below {base} is expected")
            self.files.append(base / source)
            return text_ids(base / source)
        return as_ids(read_named(self.path, source), f"{self.path}: {source}")


def _matrix(value: Any, path: Path, what: str) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind != "f" or not value.shape[1]:
        shape = (
            f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        )
        raise InputError(
            f"{path}: features of {what} are {shape}; floating-point numbers [{what}, dim] are expected"
        )
    return value


def _checked_ids(
    ids: Sequence[str], wanted: Sequence[str], side: Side, path: Path, what: str
) -> dict[str, int]:
    row_of = {one: row for row, one in enumerate(ids)}
    if len(row_of) != len(ids):
        seen: set[str] = set()
        repeated = sorted({one for one in ids if one in seen or seen.add(one)})
        raise InputError(f"{path}: {_some(repeated)} of {what} more than once; one row each is expected")
    known = set(wanted)
    missing, extra = [one for one in wanted if one not in row_of], [one for one in ids if one not in known]
    problems = [f"no feature for {_some(missing)}"] if missing else []
    if extra and (side.extra == "refuse" or missing):
        problems.append(f"{_some(extra)} {'is' if len(extra) == 1 else 'are'} not in the benchmark")
    if problems:
        hint = " (`extra: ignore` leaves them out)" if extra and not missing else ""
        raise InputError(f"{path}: ids of {what}: {'; '.join(problems)}{hint}")
    return row_of


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - NAMES_SHOWN:,} more" if len(ids) > NAMES_SHOWN else ""
    return ", ".join(shown(one) for one in ids[:NAMES_SHOWN]) + more


def _about(parameters: Parameters) -> dict[str, str]:
    return {"encoder": "precomputed", "parameters": json.dumps(create(parameters).key(), sort_keys=True)}


def _write_shards(output: Path, ids: Sequence[str], rows: _Rows, about: Mapping[str, str]) -> None:
    if not ids:
        raise InputError(f"the benchmark has no {rows.what}")
    for number, members in enumerate(assign_shards(ids)):
        if members:
            chosen = [ids[member] for member in members]
            write_shard(output / shard_name(number), chosen, rows.take(chosen), about)


def _write_sources(
    output: Path, base: Path, parameters: Parameters, benchmark: str, files: Sequence[Path]
) -> None:
    """The files by the path that `params.yaml` gives, each with its hash: external sources of the lineage."""
    given = features_path(parameters.features, benchmark).rstrip("/")
    sources = []
    for path in sorted(set(files)):
        inside = "" if path == base else f"/{path.relative_to(base).as_posix()}"
        sources.append(
            {
                "name": path.name,
                "path": f"{given}{inside}",
                "sha256": file_digest(path),
                "size": path.stat().st_size,
                "licence": parameters.facts.licence,
                "synthetic": False,
                "note": "the user's own features; the model that made them is as declared, and cannot be checked",
            }
        )
    write_json(output / SOURCES_FILE, {"sources": sources})
