"""Exact search on a torch device: against a full sort with ties, and against the CPU."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ParameterError
from cairn.search import device, tiles
from cairn.search.exact import NotFiniteError, exact_search
from tests.search.test_exact import Matrix, full_sort, real_numbers, same, whole_numbers

ON_TORCH = "cpu:0"
"""torch's processor: the same code as on a GPU."""


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tiles, "TILE_NUMBERS", 1)  # tiles of 64 images
    monkeypatch.setattr(device, "TILES", 1)


@settings(deadline=None, max_examples=30)
@given(
    count=st.integers(1, 300),
    dim=st.integers(1, 6),
    top=st.integers(0, 320),
    number=st.integers(1, 80),
    seed=st.integers(0, 1 << 30),
)
def test_equals_a_full_sort_with_ties(count, dim, top, number, seed):
    generator = np.random.default_rng(seed)
    rows, queries = whole_numbers(generator, count, dim), whole_numbers(generator, number, dim)
    manifest_rows = generator.permutation(count) + 5
    judged = [
        generator.permutation(count)[: generator.integers(0, min(count, 12) + 1)] for _ in range(number)
    ]
    found = exact_search(queries, Matrix(rows, 100), manifest_rows, top, judged, device=ON_TORCH)
    for one, (order, line), wanted in zip(
        found, full_sort(queries, rows, manifest_rows), judged, strict=True
    ):
        assert one.rows.tolist() == order[:top].tolist()
        rank_of = {row: rank for rank, row in enumerate(order)}
        assert one.judged_ranks.tolist() == [rank_of[row] for row in manifest_rows[wanted]]
        assert one.judged_scores.tolist() == line[wanted].tolist()


def test_the_best_of_many_are_kept_when_many_are_thrown_out():
    rows = np.sort(real_numbers(20_000, 1), axis=0)  # the best come last
    queries = np.ones((2, 1), np.float16)
    arguments = (queries, Matrix(rows), np.random.default_rng(0).permutation(20_000), 300, [[], [5]])
    assert same(exact_search(*arguments), exact_search(*arguments, device=ON_TORCH))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named(value: float):
    rows = np.ones((500, 4), np.float16)
    rows[130, 2] = value
    with pytest.raises(NotFiniteError, match="gallery row 130"):
        exact_search(np.ones((1, 4)), Matrix(rows), np.arange(500), 5, [[]], device=ON_TORCH)
    single = np.ones((200, 4), np.float32)
    single[77] = 3e38
    queries = np.zeros((80, 4), np.float32)
    queries[75] = 2
    with pytest.raises(NotFiniteError, match="query 75, gallery row 77"):
        exact_search(queries, Matrix(single), np.arange(200), 5, [[]] * 80, device=ON_TORCH)


def test_a_device_that_is_not_there_is_told():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device: what is said without one cannot be seen here")
    with pytest.raises(ParameterError, match="device 'cuda': torch cannot compute there"):
        exact_search(np.ones((1, 4)), Matrix(real_numbers(9, 4)), np.arange(9), 5, [[]], device="cuda")


@pytest.mark.gpu
def test_on_cuda_equals_itself_and_ranks_as_the_cpu_does(monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device: needs an NVIDIA GPU and `make install GPU=1`")
    monkeypatch.undo()
    generator = np.random.default_rng(0)
    rows, queries = whole_numbers(generator, 200_000, 64), whole_numbers(generator, 70, 64)
    judged = [generator.permutation(200_000)[:50] for _ in range(70)]
    arguments = (queries, Matrix(rows, 8192), generator.permutation(200_000), 1600, judged)
    on_cpu, on_cuda = exact_search(*arguments), exact_search(*arguments, device="cuda")
    assert same(on_cpu, on_cuda)  # every product is exact
    real = (
        real_numbers(70, 64, 1),
        Matrix(real_numbers(50_000, 64)),
        np.arange(50_000),
        100,
        judged[:0] + [[7]] * 70,
    )
    first, second = exact_search(*real, device="cuda"), exact_search(*real, device="cuda")
    assert same(first, second)
