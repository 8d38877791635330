"""The product of a tile and a block of queries, in which a pair's score never depends on where the two stand.

Most BLAS kernels treat every element of a product alike. Some do not: OpenBLAS's for AVX2 (`Haswell`, which it also
takes on AMD's Zen 1 to 3) adds up the columns that its register blocks do not fill in another order, so that two equal
images get scores that differ in the last bit and a tie is broken by chance. Whether the BLAS at hand is one of those is
tried out once per shape; where it is, a kernel of our own multiplies, at four fifths of that BLAS's speed.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cairn.tail.compiled import compiled

TILE = 256
"""Rows in each of `product`'s products."""
TRIALS = 16
"""Products that are compared: two orders of addition may round alike now and then, but not every time."""


def multiply(images: np.ndarray, block: np.ndarray, products: np.ndarray) -> None:
    """`products` (float32 [rows, queries]) of `images` (float32 [rows, dim], rows even) and `block` ([dim, queries]).

    Numbers that overflow become infinite or NaN, without a warning.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if place_matters(len(images), *block.shape):
            alike(images, block, products)
        else:
            np.matmul(images, block, out=products)


def product(rows: np.ndarray, columns: np.ndarray) -> NDArray[np.float32]:
    """float32 [n, m] of `rows` [n, dim] and `columns` [dim, m]: equal rows give equal results, wherever they stand.

    For what is ranked later: a read-out or a re-ranking that tells copies apart breaks their tie by chance.
    """
    rows, columns = np.asarray(rows, np.float32), np.ascontiguousarray(columns, np.float32)
    found = np.empty((len(rows), columns.shape[1]), np.float32)
    tile = np.zeros((TILE, rows.shape[1]), np.float32)
    products = np.empty((TILE, columns.shape[1]), np.float32)
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        tile[: len(part)] = part  # what is left of an earlier tile behind it is computed in vain
        multiply(tile, columns, products)
        found[start : start + len(part)] = products[: len(part)]
    return found


@lru_cache
def place_matters(rows: int, dim: int, queries: int) -> bool:
    """Whether the BLAS of this process rounds a score by where in a product of this shape its pair stands."""
    generator = np.random.default_rng(0)
    products = np.empty((rows, queries), np.float32)
    for _ in range(TRIALS):
        image, query = generator.normal(size=(2, dim)).astype(np.float32)
        images, block = np.tile(image, (rows, 1)), np.tile(query[:, None], (1, queries))
        np.matmul(images, block, out=products)
        if (products != products[0, 0]).any():
            return True
    return False


@compiled(nogil=True, fastmath={"contract"})
def alike(images, block, products):
    """As `multiply`: every score adds its terms in the order of the dimensions, one fused step each.

    Two images and eight dimensions at a time keep what is added to in registers; the vector instructions are over
    the queries, which never changes the order of a sum.
    """
    rows, dim = images.shape
    queries = block.shape[1]
    whole = dim // 8 * 8
    for i in range(0, rows, 2):
        for j in range(queries):
            products[i, j] = np.float32(0)
            products[i + 1, j] = np.float32(0)
        for k in range(0, whole, 8):
            a0, a1, a2, a3 = images[i, k], images[i, k + 1], images[i, k + 2], images[i, k + 3]
            a4, a5, a6, a7 = images[i, k + 4], images[i, k + 5], images[i, k + 6], images[i, k + 7]
            b0, b1, b2, b3 = (
                images[i + 1, k],
                images[i + 1, k + 1],
                images[i + 1, k + 2],
                images[i + 1, k + 3],
            )
            b4, b5, b6, b7 = (
                images[i + 1, k + 4],
                images[i + 1, k + 5],
                images[i + 1, k + 6],
                images[i + 1, k + 7],
            )
            for j in range(queries):
                q0, q1, q2, q3 = block[k, j], block[k + 1, j], block[k + 2, j], block[k + 3, j]
                q4, q5, q6, q7 = block[k + 4, j], block[k + 5, j], block[k + 6, j], block[k + 7, j]
                a, b = products[i, j], products[i + 1, j]
                a, b = a + a0 * q0, b + b0 * q0
                a, b = a + a1 * q1, b + b1 * q1
                a, b = a + a2 * q2, b + b2 * q2
                a, b = a + a3 * q3, b + b3 * q3
                a, b = a + a4 * q4, b + b4 * q4
                a, b = a + a5 * q5, b + b5 * q5
                a, b = a + a6 * q6, b + b6 * q6
                a, b = a + a7 * q7, b + b7 * q7
                products[i, j], products[i + 1, j] = a, b
        for k in range(whole, dim):
            a0, b0 = images[i, k], images[i + 1, k]
            for j in range(queries):
                products[i, j] += a0 * block[k, j]
                products[i + 1, j] += b0 * block[k, j]
