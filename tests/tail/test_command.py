"""`cairn tail` from a file, its JSON, its plots, and where compiled code is kept."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from small import exponential_world
from typer.testing import CliRunner

from cairn.errors import InputError, UsageError
from cairn.tail.estimate import ESTIMATORS
from pipelines.commands.tail import tail

app = typer.Typer()
app.command()(tail)
runner = CliRunner()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    scores, gallery, cutoff, truth = exponential_world(2)
    path = tmp_path_factory.mktemp("tail") / "scores.npz"
    np.savez(
        path,
        top=scores.top,
        pos_q=scores.query,
        pos_s=scores.score,
        S=scores.sample_size,
        full_map=truth,
        true_x=np.exp(-scores.score),
    )
    return path, gallery, cutoff, truth


def test_json_holds_what_the_docs_promise(file):
    path, gallery, cutoff, truth = file
    got = runner.invoke(app, [str(path), "--gallery", str(gallery), "--metric", f"map@{cutoff}", "--json"])
    assert got.exit_code == 0, got.output
    record = json.loads(got.stdout)
    assert set(record) == {"estimates", "ci95", "model_bias", "diagnostics", "warnings"}
    assert set(record["estimates"]) == {
        "default",
        "evt",
        "count",
        "naive",
        "log-linear",
        "log-quadratic",
        "power-law",
        "log-uniform",
    }
    assert abs(record["estimates"]["default"] - truth) < 0.03
    assert set(record["ci95"]) == {"fixed_queries", "new_queries", "evt_queries"}


def test_table_and_selection(file):
    path, gallery, cutoff, _ = file
    got = runner.invoke(
        app,
        [str(path), "--gallery", str(gallery), "--metric", f"map@{cutoff}", "--estimators", "default,naive"],
    )
    assert got.exit_code == 0, got.output
    assert "default" in got.stdout and "power-law" not in got.stdout
    assert "these queries" in got.stdout and "new queries" in got.stdout


def test_errors_are_cairns(file, tmp_path):
    path, gallery, _, _ = file
    for arguments, error in (
        ([str(tmp_path / "no.npz"), "--gallery", "1000"], InputError),
        ([str(path), "--gallery", "10"], InputError),
        ([str(path), "--gallery", str(gallery), "--metric", "ndcg"], UsageError),
        ([str(path), "--gallery", str(gallery), "--estimators", "best"], UsageError),
        ([str(path), "--gallery", str(gallery), "--plots", str(path)], InputError),
        ([str(path), "--gallery", str(gallery), "--plots", "/proc/no/folder"], InputError),
    ):
        got = runner.invoke(app, arguments)
        assert isinstance(got.exception, error), got.output


def test_plots_come_with_their_tables(file, tmp_path):
    path, gallery, cutoff, _ = file
    got = runner.invoke(
        app,
        [
            str(path),
            "--gallery",
            str(gallery),
            "--metric",
            f"map@{cutoff}",
            "--plots",
            str(tmp_path),
            "--json",
        ],
    )
    assert got.exit_code == 0, got.output
    for name in ("gallery", "hardness", "sample", "truth"):
        assert (tmp_path / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        with (tmp_path / f"{name}.csv").open() as stream:
            assert len(list(csv.DictReader(stream))) >= 4
    with (tmp_path / "gallery.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    series = {row["series"] for row in rows}
    estimates = json.loads(got.stdout)["estimates"]
    # The sample's own number, whatever N.
    naive = {float(row["map"]) for row in rows if row["series"] == "naive"}
    (value,) = naive
    assert value == pytest.approx(estimates["naive"])
    assert series == {"sample", "interval", *ESTIMATORS}


def test_mined_scores_come_with_a_warning_about_the_others(file, tmp_path):
    path, gallery, cutoff, _ = file
    mined = np.random.default_rng(0).uniform(8, 14, (150, 20))
    np.savez(tmp_path / "mined.npz", **(dict(np.load(path)) | {"hard": mined}))
    arguments = [
        str(tmp_path / "mined.npz"),
        "--gallery",
        str(gallery),
        "--metric",
        f"map@{cutoff}",
        "--json",
    ]
    record = json.loads(runner.invoke(app, arguments).stdout)
    assert "hard-mined" in record["estimates"]
    assert any("only hard-mined counts the 20 mined distractors" in warning for warning in record["warnings"])


def test_a_seed_below_zero_is_wrong_usage(file):
    path, gallery, _, _ = file
    assert runner.invoke(app, [str(path), "--gallery", str(gallery), "--seed", "-1"]).exit_code == 2


def test_first_use_says_that_it_compiles(monkeypatch, tmp_path, capsys):
    from cairn.tail import posterior
    from cairn.tail.posterior import tell_first_use

    class Fresh:
        class stats:
            cache_path = str(tmp_path)

    monkeypatch.setattr(posterior, "_integrate", Fresh)
    tell_first_use()
    assert "compiling" in capsys.readouterr().err
    (tmp_path / "posterior._integrate-1.py3.nbi").touch()
    tell_first_use()
    assert capsys.readouterr().err == ""


def test_compiled_code_stays_in_the_users_cache(tmp_path):
    """Neither the package's folder nor the working folder is written to."""
    import cairn.tail

    package = Path(cairn.tail.__file__).parent
    before = {p for p in package.rglob("*") if p.suffix in {".nbi", ".nbc"}}
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "NUMBA_NUM_THREADS": "1"}
    program = (
        "import numpy as np; from cairn.tail.scores import count_ahead;"
        "assert count_ahead(np.array([[3.0, 2.0]]), np.array([0]), np.array([2.0]))[0] == 2"
    )
    work = tmp_path / "work"
    work.mkdir()
    environment["PYTHONPATH"] = str(package.parents[1])
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=work)
    assert list((tmp_path / "cache" / "cairn" / "numba").rglob("*.nbi"))
    assert {p for p in package.rglob("*") if p.suffix in {".nbi", ".nbc"}} == before
    assert not list(work.iterdir())
