"""Runs without scores are named, a few of them."""

from pathlib import Path

import pytest

from cairn.results import gather_results, read_results


def test_many_runs_without_scores_do_not_bury_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [("town", f"system-{number}") for number in range(6)]
    (tmp_path / "out").mkdir()
    gather_results(tmp_path, runs, tmp_path / "out")
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in told] == [
        "town/system-0",
        "town/system-1",
        "town/system-2",
        "…",
    ]
    assert "3 more" in told[-1] and read_results(tmp_path / "out" / "results.parquet") == []
