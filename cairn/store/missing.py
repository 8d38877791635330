"""Images without a descriptor, since they could not be decoded (`damaged: missing`): what goes on without them.

They are stored as zeros, and zeros are no descriptor: nothing is learned from them, they are nobody's neighbours, and
a ranking says how many of its images, and which of its queries, are among them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cairn.store.descriptors import DescriptorStore


@dataclass(frozen=True, eq=False)
class Present:
    """A store without its missing images, in the order of the others; row i is row `rows[i]` of the store."""

    store: DescriptorStore
    rows: np.ndarray

    @property
    def dim(self) -> int:
        """Numbers of a descriptor."""
        return self.store.dim

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[str]:
        """The ids in row order."""
        return [self.store.ids[row] for row in self.rows.tolist()]

    def blocks(self) -> Iterator[np.ndarray]:
        """The blocks of the store [rows, dim]: one that holds a missing image as a copy without it."""
        start = 0
        for block in self.store.blocks():
            first, last = np.searchsorted(self.rows, (start, start + len(block)))
            yield block if last - first == len(block) else block[self.rows[first:last] - start]
            start += len(block)

    def take(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        """The descriptors of some rows, in the order given, copied."""
        return self.store.take(self.rows[np.asarray(rows, np.int64)])


def present(store: DescriptorStore) -> DescriptorStore | Present:
    """`store` without its missing images: itself where there are none."""
    missing = store.missing_rows()
    return Present(store, np.delete(np.arange(len(store)), missing)) if len(missing) else store


def absence(images: int, queries: Sequence[str]) -> dict[str, str]:
    """Metadata of a ranking: how many images at every list's end are missing, and which queries; {} for none."""
    about = {"missing": str(images)} if images else {}
    return about | ({"missing_queries": json.dumps(list(queries))} if queries else {})


def read_absence(metadata: Mapping[bytes, bytes] | None) -> tuple[int, frozenset[str]]:
    """What `absence` wrote."""
    metadata = metadata or {}
    return int(metadata.get(b"missing", 0)), frozenset(json.loads(metadata.get(b"missing_queries", b"[]")))
