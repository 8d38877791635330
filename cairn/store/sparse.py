"""Sparse global descriptors in Parquet: of each image, the words it has and their weights.

A directory holds shards `sparse-0000.parquet`, … with columns `image_id`, `word` (list of int32, ascending) and
`weight` (list of float32, one per word), and `sparse-queries.parquet` with `query_id`. In SQL:
`SELECT image_id, unnest(word), unnest(weight) FROM read_parquet('descriptors/sparse-[0-9]*.parquet')`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cairn.errors import ArtifactError
from cairn.store.tables import read_table, write_table

QUERIES_FILE = "sparse-queries.parquet"
_DIM, _LAYOUT = b"cairn.dim", b"cairn.layout"


@dataclass(frozen=True, eq=False)
class Bags:
    """Sparse vectors by id: those of `ids[i]` are `words` (int32, ascending) and `weights` (float32) from
    `start[i]` (int64 [n + 1]) on; all have `dim` numbers, of which the others are 0."""

    ids: list[str]
    dim: int
    start: np.ndarray
    words: np.ndarray
    weights: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def bag(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Words and weights of one row."""
        part = slice(self.start[row], self.start[row + 1])
        return self.words[part], self.weights[part]


def bags_of(ids: Sequence[str], rows: Iterator[np.ndarray], dim: int) -> Bags:
    """From dense rows float32 [dim], one per id: what is not 0."""
    words, weights, start = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)], [0]
    for row in rows:
        found = np.flatnonzero(row)
        words.append(found.astype(np.int32))
        weights.append(row[found].astype(np.float32))
        start.append(start[-1] + len(found))
    if len(start) != len(ids) + 1:
        raise ArtifactError(f"{len(start) - 1} descriptors for {len(ids)} ids")
    return Bags(list(ids), dim, np.array(start, np.int64), np.concatenate(words), np.concatenate(weights))


def sparse_name(shard: int) -> str:
    """File name of a shard: `sparse-0007.parquet`."""
    return f"sparse-{shard:04d}.parquet"


def is_sparse(directory: Path) -> bool:
    """Whether a directory holds sparse descriptors."""
    return any(Path(directory).glob("sparse-[0-9]*.parquet"))


def write_bags(path: Path, bags: Bags, metadata: Mapping[str, str], *, id_column: str = "image_id") -> None:
    """Write one file, deterministically. ArtifactError, naming the image, for a weight that is not finite."""
    import pyarrow as pa

    wrong = np.flatnonzero(~np.isfinite(bags.weights))
    if len(wrong):
        row = int(np.searchsorted(bags.start, wrong[0], "right")) - 1
        raise ArtifactError(f"{path}: the descriptor of {bags.ids[row]} holds a value that is not finite")
    start = pa.array(bags.start)
    word = pa.LargeListArray.from_arrays(start, pa.array(bags.words))
    weight = pa.LargeListArray.from_arrays(start, pa.array(bags.weights))
    fields = [
        pa.field(id_column, pa.string(), nullable=False),
        pa.field("word", word.type, nullable=False),
        pa.field("weight", weight.type, nullable=False),
    ]
    kept = {_LAYOUT: b"sparse-1", _DIM: str(bags.dim).encode()}
    kept |= {key.encode(): value.encode() for key, value in sorted(metadata.items())}
    columns = [pa.array(bags.ids, pa.string()), word, weight]
    write_table(pa.table(columns, schema=pa.schema(fields, metadata=kept)), path)


def read_bags(path: Path, id_column: str = "image_id") -> Bags:
    """Read one file. ArtifactError, naming it, where it is no such file, or words and weights do not fit."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field(id_column, pa.string(), nullable=False),
            pa.field("word", pa.large_list(pa.int32()), nullable=False),
            pa.field("weight", pa.large_list(pa.float32()), nullable=False),
        ]
    )
    table = read_table(path, schema).combine_chunks()
    metadata = table.schema.metadata or {}
    if metadata.get(_LAYOUT) != b"sparse-1" or not metadata.get(_DIM, b"").isdigit():
        raise ArtifactError(f"{path}: not a file of sparse descriptors; run the step that writes it")
    dim = int(metadata[_DIM])
    word, weight = (_list(table.column(name)) for name in ("word", "weight"))
    (start, words), (other, weights) = word, weight
    rows = np.repeat(np.arange(len(start) - 1), np.diff(start))
    fits = (
        np.array_equal(start, other)
        and bool(((words >= 0) & (words < dim)).all())
        and bool(((np.diff(words) > 0) | (np.diff(rows) > 0)).all())
        and bool(np.isfinite(weights).all())
    )
    if not fits:
        raise ArtifactError(
            f"{path}: words and weights do not fit one another, or are out of range; extract again"
        )
    return Bags(table.column(id_column).to_pylist(), dim, start, words, weights)


def sparse_shards(directory: Path) -> Iterator[Bags]:
    """The images of a directory, shard by shard. ArtifactError where two shards differ in dimension or share an id."""
    seen: set[str] = set()
    dim = None
    for path in sorted(Path(directory).glob("sparse-[0-9]*.parquet"), key=lambda p: (len(p.stem), p.stem)):
        bags = read_bags(path)
        if dim is not None and bags.dim != dim:
            raise ArtifactError(f"{path}: descriptors of {bags.dim} words; other shards have {dim}")
        repeated = seen.intersection(bags.ids)
        if repeated or len(set(bags.ids)) != len(bags.ids):
            raise ArtifactError(f"{path}: an id has two descriptors ({min(repeated, default=bags.ids[0])})")
        seen.update(bags.ids)
        dim = bags.dim
        yield bags


def _list(column) -> tuple[np.ndarray, np.ndarray]:
    chunk = column.chunk(0) if column.num_chunks else column.combine_chunks()
    offsets = np.asarray(chunk.offsets, np.int64)
    values = chunk.values.to_numpy(zero_copy_only=False)
    return offsets - offsets[0], values[offsets[0] : offsets[-1]]
