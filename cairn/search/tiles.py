"""The tile plan of exact search: which images and queries are multiplied together, always in the same shape.

The gallery is cut into tiles of `tile_rows` images, the last one padded with zeros, and queries into blocks of
QUERY_BLOCK, padded likewise; every product is one matrix product of that one shape, on one thread
(`cairn.search.products`). So a pair's score depends neither on the number of threads or machines nor on where in
the gallery the image stands.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from cairn.errors import ArtifactError

QUERY_BLOCK = 72
"""Queries in a product: the 70 of the revisited benchmarks with little padding, and a multiple of 8."""
TILE_NUMBERS = 1 << 19
"""Numbers in a tile: 2 MiB in float32, so that it is multiplied while it is in the cache."""
LEAST_TILE, MOST_TILE = 64, 8192


class Rows(Protocol):
    """Descriptors that are read once, in order."""

    @property
    def dim(self) -> int:
        """Numbers of a descriptor."""
        ...

    def __len__(self) -> int: ...

    def blocks(self) -> Iterator[np.ndarray]:
        """float16 or float32 [rows, dim] views of the whole matrix, in order."""
        ...


class Gallery(Rows, Protocol):
    """What is searched: `cairn.store.descriptors.DescriptorStore` is one.

    One that has `part(start, stop)` as well, which gives some of its rows to another process, can be searched
    by many machines.
    """

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Copies of some rows."""
        ...


class NotFiniteError(ArtifactError):
    """A score is infinite or not a number. `query` and `row` (of the gallery) count from 0; None for any."""

    def __init__(self, query: int | None, row: int | None) -> None:
        self.query, self.row = query, row
        where = [f"query {query}"] if query is not None else []
        where += [f"gallery row {row}"] if row is not None else []
        super().__init__(f"{', '.join(where)}: the score is not finite; descriptors must be finite numbers")


def tile_rows(dim: int) -> int:
    """Images in a tile: a multiple of 64 from 64 to 8,192, so that a tile has about TILE_NUMBERS numbers."""
    return min(MOST_TILE, max(LEAST_TILE, TILE_NUMBERS // dim // LEAST_TILE * LEAST_TILE))


@dataclass(frozen=True, eq=False)
class Tile:
    """`count` images from row `start` of what is read; `pieces` are views of its blocks, in order."""

    start: int
    count: int
    pieces: list[np.ndarray]


def tiles(blocks: Iterable[np.ndarray], size: int) -> Iterator[Tile]:
    """Blocks of rows in tiles of `size` images, across the blocks; the last one may have fewer."""
    start, count, pieces = 0, 0, []
    for block in blocks:
        first = 0
        while first < len(block):
            piece = block[first : first + size - count]
            pieces.append(piece)
            first, count = first + len(piece), count + len(piece)
            if count == size:
                yield Tile(start, count, pieces)
                start, count, pieces = start + count, 0, []
    if count:
        yield Tile(start, count, pieces)


def fill(images: np.ndarray, tile: Tile) -> None:
    """Write a tile's descriptors to `images` (float32 [tile rows, dim]), then zeros. NotFiniteError."""
    from cairn.search import counting

    start, dim = 0, images.shape[1]
    for piece in tile.pieces:
        into = images[start : start + len(piece)]
        if piece.dtype == np.float16:
            bits = np.ascontiguousarray(piece).view(np.uint16).reshape(-1)
            finite = counting.widen(bits, into.reshape(-1).view(np.uint32))
        else:
            into[:] = piece
            finite = counting.all_finite(into.reshape(-1).view(np.uint32))
        if not finite:
            bad = np.flatnonzero(~np.isfinite(piece.reshape(-1)))[0] // dim
            raise NotFiniteError(None, tile.start + start + int(bad))
        start += len(piece)
    images[start:] = 0


def query_blocks(queries: np.ndarray) -> list[np.ndarray]:
    """Per QUERY_BLOCK queries a float32 [dim, QUERY_BLOCK], filled up with zeros."""
    blocks = []
    for start in range(0, len(queries), QUERY_BLOCK):
        part = queries[start : start + QUERY_BLOCK]
        blocks.append(np.zeros((queries.shape[1], QUERY_BLOCK), np.float32))
        blocks[-1][:, : len(part)] = part.T
    return blocks


def check_finite(products: np.ndarray, queries: int, begin: int, start: int) -> None:
    """NotFiniteError for the first of a tile's products (of `queries` queries) that overflowed.

    `begin` is the number of the block's first query, `start` the gallery row of the tile's first image.
    """
    from cairn.search import counting

    if not counting.all_finite(products.reshape(-1).view(np.uint32)):
        image, query = np.argwhere(~np.isfinite(products[:, :queries]))[0]
        raise NotFiniteError(begin + int(query), start + int(image))
