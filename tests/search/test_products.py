"""The product of exact search: right, and the same wherever a pair stands, whatever BLAS is at hand."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from cairn.search import products
from cairn.search.products import alike, multiply, place_matters
from cairn.search.tiles import QUERY_BLOCK, tile_rows


@pytest.mark.parametrize("dim", [1, 2, 7, 8, 9, 33, 128, 577])
def test_the_kernel_of_our_own_multiplies(dim: int):
    generator = np.random.default_rng(dim)
    images = generator.integers(-9, 10, (64, dim)).astype(np.float32)  # whole numbers: every sum is exact
    block = generator.integers(-9, 10, (dim, QUERY_BLOCK)).astype(np.float32)
    found = np.full((64, QUERY_BLOCK), np.nan, np.float32)
    alike(images, block, found)
    np.testing.assert_array_equal(found, images @ block)


@pytest.mark.parametrize("dim", [3, 8, 100, 515])
def test_in_the_kernel_of_our_own_no_place_matters(dim: int):
    generator = np.random.default_rng(dim)
    image, query = generator.normal(size=(2, dim)).astype(np.float32)
    images, block = np.tile(image, (tile_rows(dim), 1)), np.tile(query[:, None], (1, QUERY_BLOCK))
    found = np.empty((len(images), QUERY_BLOCK), np.float32)
    alike(images, block, found)
    assert len(np.unique(found)) == 1
    assert found[0, 0] == pytest.approx(image.astype(float) @ query.astype(float), rel=1e-4, abs=1e-4)


def test_a_product_in_which_the_place_matters_is_not_used(monkeypatch: pytest.MonkeyPatch):
    original = np.matmul

    def one_column_apart(images, block, out):
        original(images, block, out=out)
        out[5, 3] = np.nextafter(out[5, 3], np.float32(np.inf))
        return out

    monkeypatch.setattr(products.np, "matmul", one_column_apart)
    place_matters.cache_clear()
    try:
        assert place_matters(64, 24, QUERY_BLOCK)
        generator = np.random.default_rng(0)
        images, block = (
            generator.normal(size=size).astype(np.float32) for size in ((64, 24), (24, QUERY_BLOCK))
        )
        found, expected = (np.empty((64, QUERY_BLOCK), np.float32) for _ in range(2))
        multiply(images, block, found)
        alike(images, block, expected)
        np.testing.assert_array_equal(found, expected)
    finally:
        place_matters.cache_clear()


SEARCH = """
import numpy as np
from cairn.search.exact import exact_search
from cairn.search.tiles import QUERY_BLOCK
from tests.search.test_exact import Matrix, real_numbers

for dim in (17, 300):
    rows = np.repeat(real_numbers(1, dim), 131, axis=0)
    queries = np.repeat(real_numbers(1, dim, 1), QUERY_BLOCK + 3, axis=0)
    found = exact_search(queries, Matrix(rows, 70), np.arange(131), 131, [[5, 90]] * len(queries))
    assert len({score for one in found for score in one.scores.tolist()}) == 1, dim
    assert all(one.rows.tolist() == list(range(131)) for one in found), dim
"""


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="the kernels named here are those of x86-64"
)
@pytest.mark.parametrize("kernel", ["Haswell", "Sandybridge", "Nehalem"])
def test_duplicates_tie_with_every_kernel_of_openblas(kernel: str):
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel}
    run = subprocess.run(
        [sys.executable, "-c", SEARCH], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


COPIES = """
import numpy as np
from cairn.readout.transform import Transform
from cairn.rerank.superglobal import superglobal_scores
from cairn.search.products import product
from tests.search.test_exact import real_numbers

rows = real_numbers(20, 96).astype(np.float32)
place = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 30))
copies = rows[place]
def told_apart(found):
    return [number for number in range(20) if len(np.unique(found[place == number], axis=0)) > 1]

assert not told_apart(product(copies, rows.T))
read_out = Transform(dimension=None, mean=rows.mean(axis=0), projection=real_numbers(96, 40, 1).astype(np.float32))
assert not told_apart(read_out(copies))
assert not told_apart(superglobal_scores(real_numbers(1, 96, 2)[0], copies)[:, None])
"""


@pytest.mark.parametrize("kernel", ["Haswell", ""])
def test_neither_read_outs_nor_superglobal_tell_copies_apart(kernel: str):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    if kernel and platform.machine() in ("x86_64", "AMD64"):
        environment["OPENBLAS_CORETYPE"] = kernel
    run = subprocess.run(
        [sys.executable, "-c", COPIES], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
