"""Compiles what a search needs before a clock counts: the first search of a machine would be measured at compiling."""

import contextlib
from collections.abc import Iterator

import numpy as np

from cairn.search.exact import Gallery, NotFiniteError, exact_search
from cairn.tail.compiled import tell_compiling

ROWS = 64
"""Images that are searched to warm up."""


def warm_up(queries: np.ndarray, gallery: Gallery, manifest_rows: np.ndarray, device: str = "cpu") -> None:
    """Search one query in the first few images: all that is compiled is compiled, or read from where it is kept.

    Arguments as in `exact_search`; the arrays are of the kinds that the search will have, since code is compiled for
    each kind. What is compiled is announced on standard error. A number that is not finite is left to the search to
    tell of.
    """
    if not len(queries) or not len(gallery):
        return
    tell_first_use()
    first = _First(gallery)
    with contextlib.suppress(NotFiniteError):
        exact_search(
            queries[:1],
            first,
            manifest_rows[: len(first)],
            1,
            [np.zeros(1, np.int64)],
            threads=1,
            device=device,
        )


def tell_first_use() -> None:
    """Say on standard error that the search is about to be compiled, where nothing of it is kept yet."""
    from cairn.search import counting

    tell_compiling(counting.count, "counting.count", "the search")


class _First:
    """The first rows of a gallery."""

    def __init__(self, gallery: Gallery) -> None:
        self._gallery = gallery

    @property
    def dim(self) -> int:
        return self._gallery.dim

    def __len__(self) -> int:
        return min(ROWS, len(self._gallery))

    def blocks(self) -> Iterator[np.ndarray]:
        left = len(self)
        for block in self._gallery.blocks():
            yield block[:left]
            left -= min(left, len(block))
            if not left:
                return

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self._gallery.take(rows)
