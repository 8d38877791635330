"""Vocabularies of many thousand visual words: k-means and the nearest word, on all processors.

At 8,192 words nearly all of the time goes into the products of descriptors with words, which are as fast as the
matrix product itself; what is left is to share them out. Descriptors are cut into blocks of one size, each of
which one thread multiplies alone, so that the result does not depend on how many threads there are.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

BLOCK = 1024
"""Descriptors that are multiplied at once, by as many words as WORDS: 32 MiB of products in each thread."""
WORDS = 8192
AHEAD = 64
"""Images whose features wait for a thread."""


def nearest_words(descriptors: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Number of the word nearest to each descriptor, int64 [n]; the lowest number among equals.

    `descriptors` float32 [n, dim], `words` float32 [words, dim]; on the threads that BLAS has here.
    """
    halves = (words * words).sum(axis=1) / 2
    found = np.zeros(len(descriptors), np.int64)
    for start in range(0, len(descriptors), BLOCK):
        block = descriptors[start : start + BLOCK]
        everyone = np.arange(len(block))
        best = np.full(len(block), -np.inf, np.float32)
        for first in range(0, len(words), WORDS):
            # |d − w|² is least where d·w − |w|² / 2 is largest.
            close = block @ words[first : first + WORDS].T
            close -= halves[first : first + WORDS]
            at = close.argmax(axis=1)
            closer = close[everyone, at] > best
            best[closer] = close[everyone, at][closer]
            found[start : start + BLOCK][closer] = first + at[closer]
    return found


def learn_many_words(
    descriptors: np.ndarray, words: int, *, iterations: int, seed: int, threads: int | None = None
) -> np.ndarray:
    """k-means centroids, float32 [words, dim], of descriptors float32 [n, dim] with n ≥ words.

    By the k-means of `faiss.contrib.clustering`, whose step that costs time is `nearest_words` here. `threads`:
    None for as many as there are processors; the words do not depend on it.
    """
    import contextlib
    import io

    from faiss.contrib.clustering import DatasetAssign, kmeans

    class Sample(DatasetAssign):
        def assign_to(self, centroids, weights=None):
            blocks = (self.x[start : start + BLOCK] for start in range(0, len(self.x), BLOCK))
            found = np.concatenate(
                list(in_threads(lambda block: nearest_words(block, centroids), blocks, threads))
            )
            order = np.argsort(found, kind="stable")
            used, first = np.unique(found[order], return_index=True)
            sums = np.zeros_like(centroids)
            sums[used] = np.add.reduceat(self.x[order], first, axis=0)
            return found, np.zeros(1, np.float32), sums  # distances would only be printed

    with contextlib.redirect_stdout(io.StringIO()):  # it prints a line whatever `verbose` says
        found = kmeans(words, Sample(descriptors), niter=iterations, seed=seed, verbose=False)
    return np.ascontiguousarray(found, np.float32)


def in_threads(
    function: Callable[[np.ndarray], np.ndarray], arrays: Iterable[np.ndarray], threads: int | None = None
) -> Iterator[np.ndarray]:
    """`function` of each array in order, several at once; each computes on one thread of BLAS."""
    from threadpoolctl import threadpool_limits

    from cairn.parallel import workers

    waiting = iter(arrays)
    with threadpool_limits(1), ThreadPoolExecutor(threads or workers()) as pool:
        while some := list(islice(waiting, AHEAD)):
            yield from pool.map(function, some)
