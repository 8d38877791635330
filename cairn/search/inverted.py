"""The inverted file: for every word, the images that have it. Exact search over sparse descriptors.

Sivic and Zisserman, "Video Google", ICCV 2003, section 4. A query touches only the lists of its own words, and the
scores it gets are all non-zero inner products: nothing is approximated.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cairn.errors import ArtifactError
from cairn.search.exact import Found
from cairn.store.sparse import Bags
from cairn.store.tables import read_table, write_table


@dataclass(frozen=True, eq=False)
class InvertedFile:
    """`rows` int32 (ascending) and `weights` float32 of word w from `start[w]` (int64 [words + 1]) on.

    Rows are manifest rows of the `images` gallery images, so that order among equal scores is theirs.
    """

    images: int
    start: np.ndarray
    rows: np.ndarray
    weights: np.ndarray

    @property
    def words(self) -> int:
        """Numbers of a descriptor."""
        return len(self.start) - 1

    def scores(self, words: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Inner products of a query with all images, float32 [images], summed in float64 in the order of words."""
        total = np.zeros(self.images)
        for word, weight in zip(words.tolist(), weights.tolist(), strict=True):
            part = slice(self.start[word], self.start[word + 1])
            total[self.rows[part]] += weight * self.weights[part].astype(np.float64)
        return total.astype(np.float32)


def build_inverted(shards: Iterable[Bags], row_of: dict[str, int], dim: int) -> InvertedFile:
    """The inverted file of all `shards`, whose images' manifest rows are `row_of` (0 to n - 1).

    ArtifactError, naming one, where an image of `row_of` has no descriptor or another has.
    """
    rows, words, weights, seen = (
        [np.zeros(0, np.int32)],
        [np.zeros(0, np.int32)],
        [np.zeros(0, np.float32)],
        set(),
    )
    for bags in shards:
        unknown = next((one for one in bags.ids if one not in row_of), None)
        if unknown is not None:
            raise ArtifactError(f"{unknown} has a descriptor but is not in the gallery; extract again")
        own = np.array([row_of[one] for one in bags.ids], np.int32)
        rows.append(np.repeat(own, np.diff(bags.start)))
        words.append(bags.words)
        weights.append(bags.weights)
        seen.update(bags.ids)
    missing = next((one for one in row_of if one not in seen), None)
    if missing is not None:
        raise ArtifactError(f"no descriptor for {missing}; extract again")
    row, word = np.concatenate(rows), np.concatenate(words)
    order = np.lexsort((row, word))
    start = np.concatenate([[0], np.cumsum(np.bincount(word, minlength=dim))]).astype(np.int64)
    return InvertedFile(len(row_of), start, row[order], np.concatenate(weights)[order])


def inverted_search(
    queries: Sequence[tuple[np.ndarray, np.ndarray]],
    index: InvertedFile,
    top: int,
    judged: Sequence[np.ndarray],
) -> list[Found]:
    """Search queries (words int32, weights float32); `judged[q]` are manifest rows whose rank is wanted.

    As `exact_search`: the first `top` images, and the rank of every judged one in the whole gallery, by falling
    score, then manifest row.
    """
    found = []
    for (words, weights), wanted in zip(queries, judged, strict=True):
        scores = index.scores(words, weights)
        order = np.argsort(-scores, kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        first = order[:top]
        found.append(Found(first.astype(np.int64), scores[first], ranks[wanted], scores[wanted]))
    return found


def write_inverted(index: InvertedFile, path: Path) -> None:
    """Write the inverted file as Parquet: word, image_row (list), weight (list); words without images are left out."""
    import pyarrow as pa

    used = np.flatnonzero(np.diff(index.start)).astype(np.int32)
    offsets = pa.array(np.append(index.start[used], index.start[-1]))
    columns = {
        "word": pa.array(used),
        "image_row": pa.LargeListArray.from_arrays(offsets, pa.array(index.rows)),
        "weight": pa.LargeListArray.from_arrays(offsets, pa.array(index.weights)),
    }
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in columns.items()])
    about = {"images": str(index.images), "words": str(index.words)}
    write_table(pa.table(columns, schema=schema.with_metadata(about)), path)


def read_inverted(path: Path) -> InvertedFile:
    """The inverted file that `write_inverted` wrote. ArtifactError, naming the file, where it is damaged."""
    import pyarrow as pa

    lists = {"image_row": pa.large_list(pa.int32()), "weight": pa.large_list(pa.float32())}
    fields = [pa.field(name, kind, nullable=False) for name, kind in {"word": pa.int32(), **lists}.items()]
    table = read_table(path, pa.schema(fields)).combine_chunks()
    about = table.schema.metadata or {}
    try:
        images, words = int(about[b"images"]), int(about[b"words"])
        counts = np.zeros(words, np.int64)
        lengths = np.array([len(rows) for rows in table.column("image_row")], np.int64)
        counts[table.column("word").to_numpy()] = lengths
        rows = np.concatenate(
            [np.zeros(0, np.int32), *map(np.asarray, table.column("image_row").to_pylist())]
        )
        weights = np.concatenate([np.zeros(0), *map(np.asarray, table.column("weight").to_pylist())])
    except (KeyError, ValueError, IndexError) as error:
        raise ArtifactError(f"{path}: not an inverted file ({error}); search again") from None
    start = np.concatenate([[0], np.cumsum(counts)])
    return InvertedFile(images, start, rows.astype(np.int32), weights.astype(np.float32))
