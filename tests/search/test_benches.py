"""The benches of search and reading run small, and compare what they say they compare."""

import pytest

from bench import bench_reading, bench_rounding, bench_search


def test_reading(capsys: pytest.CaptureFixture[str]):
    bench_reading.main(["--rows", "600", "--rounds", "1", "--slow-rounds", "1"])
    printed = capsys.readouterr().out
    for wanted in ("numpy.memmap, raw file", "Cairn, fallback", "DuckDB", "target ≥ 80%"):
        assert wanted in printed


def test_search(capsys: pytest.CaptureFixture[str]):
    bench_search.main(["--rows", "2500", "--rounds", "1", "--index-rows", "400", "--no-ray"])
    printed = capsys.readouterr().out
    assert "images among Cairn's: 1.0000" in printed and "identical" in printed
    assert "DIFFERENT" not in printed
    for wanted in ("faiss.knn / the same", "anonymous memory", "ivf-pq", "hnsw", "top 100,000"):
        assert wanted in printed


def test_rounding(capsys: pytest.CaptureFixture[str]):
    bench_rounding.main(["--rows", "500", "--no-images"])
    printed = capsys.readouterr().out
    assert "clustered" in printed and "mAP float32" in printed
