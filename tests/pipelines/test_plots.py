"""`dvc plots`: the tables that the results step writes, the templates that draw them, and DVC itself showing them."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import vl_convert
import yaml

from cairn.report.plots import TABLES
from pipelines.plot_templates import template_texts
from pipelines.plots import AXES
from tests.report.project import build

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("plotted"))


def test_templates_are_those_of_the_report():
    for name, text in template_texts().items():
        assert (REPOSITORY / name).read_text("utf-8") == text, "run `python -m pipelines.plot_templates`"


def test_every_table_is_declared():
    declared = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text("utf-8"))["plots"]
    names = [Path(path).stem for entry in declared for path in entry]
    assert names == list(AXES) == list(TABLES)
    for entry in declared:
        for path, facts in entry.items():
            assert {facts["x"], facts["y"]} <= set(TABLES[Path(path).stem].columns)


@pytest.mark.parametrize("name", list(AXES))
def test_a_template_draws_its_table(project: Path, name: str):
    with (project / f"artifacts/results/plots/{name}.csv").open() as stream:
        rows = [{**row, "rev": "workspace"} for row in csv.DictReader(stream)]
    assert rows and list(rows[0]) == [*TABLES[name].columns, "rev"]
    text = (REPOSITORY / f".dvc/plots/cairn-{name}.json").read_text("utf-8")
    spec = json.loads(text.replace('"<DVC_METRIC_DATA>"', json.dumps(rows)))
    svg = vl_convert.vegalite_to_svg(spec, vl_version="5.8")
    assert "workspace" in svg and rows[0]["benchmark"] in svg and "NaN" not in svg


def test_dvc_shows_them(project: Path, tmp_path: Path):
    plots = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text("utf-8"))["plots"]
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"plots": plots}))
    shutil.copytree(REPOSITORY / ".dvc/plots", tmp_path / ".dvc/plots")
    (tmp_path / ".dvc/config").write_text("[core]\n    no_scm = true\n")
    shutil.copytree(project / "artifacts/results/plots", tmp_path / "artifacts/results/plots")
    # A kind that nothing was run for has a header alone.
    header = ",".join(TABLES["seeds"].columns)
    (tmp_path / "artifacts/results/plots/seeds.csv").write_text(f"{header}\n")
    command = [sys.executable, "-m", "dvc", "plots", "show"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "failed" not in done.stdout + done.stderr
    page = (tmp_path / "dvc_plots/index.html").read_text("utf-8")
    assert page.count("vegaEmbed(") == len(AXES) and page.count("var spec = {};") == 1
    assert "geometric rerank" in page
