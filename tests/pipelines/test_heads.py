"""Heads in the graph: a run with heads from `cairn run` to numbers, report and verdicts; nothing for runs without."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from assets.step import Job, steps
from cairn.parameters import load_parameters
from cairn.report.contamination import contamination_tables, training_tables
from cairn.results import NumberName, Result, write_results
from cairn.results.table import read_results
from pipelines.generate import pipeline_text
from pipelines.graph import build_graph, effective_parameters
from tests.pipelines.project import TINY, Project
from tests.pipelines.test_agreement import Watched, names

torch = pytest.importorskip("torch", reason="torch is not installed")

HEADS = {
    "seeds": [0, 1],
    "layers": {"hidden": 8, "output": 16},
    "training": {"epochs": 2, "batch": 8, "classes_per_step": 6, "centres": 1},
}
OF_HEADS = {name for name, step in steps().items() if step.of_heads}


def with_heads(**more) -> dict:
    parameters = json.loads(json.dumps(TINY))
    parameters["systems"]["rootsift-vlad"]["heads"] = HEADS | more
    parameters["systems"]["plain"] = {"encoder": "colour-histogram"}
    parameters["runs"]["toytown-plain"] = {"benchmark": "toytown", "system": "plain"}
    return parameters


def loaded(tmp_path: Path, parameters: dict):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(parameters), "utf-8")
    return load_parameters(tmp_path / "params.yaml")


def test_only_runs_with_heads_have_stages_of_heads(tmp_path: Path):
    parameters = loaded(tmp_path, with_heads())
    nodes = build_graph(parameters)
    assert {node.step.name for node in nodes.values()} == set(steps())
    for node in nodes.values():
        if node.step.name in OF_HEADS and node.step.scope != "all":
            assert node.system == "rootsift-vlad"
    assert {n.head for n in nodes.values() if n.step.name == "heads"} == {"standard", "decon"}
    assert (
        len({node.asset for node in nodes.values()}) == len(nodes) == len({n.output for n in nodes.values()})
    )
    stages = yaml.safe_load(pipeline_text(parameters))["stages"]
    assert set(stages["heads"]["foreach"]) == {
        "toytown-rootsift-vlad-standard",
        "toytown-rootsift-vlad-decon",
    }
    # Every stage that feeds the report is named: a folder of everything would hold more than was made.
    assert set(stages["head_report"]["deps"]) == set(nodes["head_report"].inputs.values())
    assert nodes["results"].upstream["scores"] == tuple(
        stage for stage, node in nodes.items() if node.step.name in ("scores", "head_scores")
    )


def test_the_results_know_which_heads_are_listed(tmp_path: Path):
    """Scores of a head that params.yaml no longer lists lie on, and are no rows of the table."""
    parameters = with_heads(protocols=["standard"])
    parameters["systems"]["plain"]["training_set"] = "decon"
    parameters = loaded(tmp_path, parameters)
    nodes = build_graph(parameters)
    runs = effective_parameters(nodes["results"], parameters)["runs"]
    assert runs == effective_parameters(nodes["head_report"], parameters)["runs"]
    assert runs["toytown-rootsift-vlad"]["heads"] == ["standard"]
    assert runs["toytown-plain"] == {"benchmark": "toytown", "system": "plain", "training_set": "decon"}

    for head, folder in {
        "-": "rootsift-vlad",
        "standard": "rootsift-vlad.standard",
        "decon": "rootsift-vlad.decon",
    }.items():
        scores = tmp_path / "artifacts/scores/toytown" / folder
        name = NumberName(
            "toytown", "rootsift-vlad", head, "-" if head == "-" else "0", "global", "all", "map"
        )
        write_results(scores / "scores.parquet", [Result(name, 0.5, 1, 1)])
        (scores / "benchmark.json").write_text("{}")
    output = tmp_path / "artifacts/results"
    output.mkdir()
    no_code = Job(tmp_path, "", "", {}, output, {"runs": runs}, "", "")
    steps()["results"].function(no_code)
    assert {row.name.head for row in read_results(output / "results.parquet")} == {"-", "standard"}
    without = {name: {key: run[key] for key in ("benchmark", "system")} for name, run in runs.items()}
    steps()["results"].function(replace(no_code, parameters={"runs": without}))
    assert {row.name.head for row in read_results(output / "results.parquet")} == {"-"}


def test_epochs_are_selected_on_a_benchmark_that_a_run_describes(tmp_path: Path):
    from cairn.errors import ParameterError

    parameters = with_heads(selection={"benchmark": "other"})
    parameters["benchmarks"]["other"] = TINY["benchmarks"]["toytown"] | {"seed": 7, "training": "toytown"}
    with pytest.raises(
        ParameterError, match=r"selection\.benchmark = 'other': no run pairs it with rootsift-vlad"
    ):
        loaded(tmp_path, parameters)
    parameters["runs"]["other-vlad"] = {"benchmark": "other", "system": "rootsift-vlad"}
    nodes = build_graph(loaded(tmp_path, parameters))
    node = nodes["heads@toytown-rootsift-vlad-decon"]
    assert node.inputs["descriptors"] == "artifacts/other/rootsift-vlad/descriptors"
    assert node.inputs["contamination"] == "artifacts/toytown/contamination"


def test_what_learns_on_descriptors_keeps_to_the_systems_training_set(tmp_path: Path):
    parameters = with_heads()
    parameters["systems"]["plain"]["training_set"] = "decon"
    parameters["systems"]["rootsift-vlad"]["training_set"] = "decon"
    systems = loaded(tmp_path, parameters).systems
    assert systems["plain"]["described_set"] == "decon" and not systems["plain"]["training_descriptors"]
    # Heads have training sets of their own, for which all images are described.
    assert systems["rootsift-vlad"]["described_set"] == "all"
    assert systems["rootsift-vlad"]["training_descriptors"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"protocols": ["decon", "decon"]}, "protocols holds decon, decon: give each once"),
        ({"protocols": ["clean"]}, "heads.protocols"),
        ({"seeds": []}, "heads.seeds"),
        ({"layers": {"hiden": 3}}, "heads.layers.hiden"),
        ({"selection": {"protocol": "mapp"}}, "unknown metric 'mapp'"),
    ],
)
def test_mistakes_in_params_name_the_key(tmp_path: Path, change: dict, named: str):
    from cairn.errors import ParameterError

    with pytest.raises(ParameterError, match=r"systems\.rootsift-vlad\.heads") as caught:
        loaded(tmp_path, with_heads(**change))
    assert named in str(caught.value)


@pytest.mark.slow
def test_a_run_with_heads_from_the_command_to_the_report(made: Project, tmp_path: Path):
    project = made.copy(tmp_path / "project")
    parameters = project.parameters()
    parameters["systems"]["rootsift-vlad"]["heads"] = HEADS
    images = {"precision": 0.8, "labelled": 10, "candidates": 3, "depth": 6, "sample": 4}
    parameters["benchmarks"]["toytown"]["contamination"] = {"images": images}
    project.write_parameters(parameters)
    printed = project.cairn("run").stdout

    rows = [row.name for row in read_results(project.root / "artifacts/results/results.parquet")]
    heads = {(name.head, name.seed) for name in rows}
    assert heads == {("-", "-"), *((head, seed) for head in ("standard", "decon") for seed in "01")}
    report = (project.root / "artifacts/heads/report.txt").read_text("utf-8")
    assert "standard less decon" in report and "head standard" in report
    assert report.splitlines()[0] in printed and "rootsift-vlad decon 0" in printed

    found = json.loads((project.root / "artifacts/heads/uses.json").read_text("utf-8"))["uses"]
    saw = {use["use"]: use["flagged_images_seen"] for use in found}
    assert saw == {"vocabulary": 6, "head standard": 6, "head decon": 0}, "two contaminated classes of three"
    audit = json.loads(
        (project.root / "artifacts/toytown/contamination/contamination.json").read_text("utf-8")
    )
    assert audit["counts_close"] and audit["against_known_overlap"]["strict"]["class_recall"]["ratio"] == 1
    page = (project.root / "artifacts/toytown/rootsift-vlad/verification/judging.html").read_text("utf-8")
    assert page.count("data:image/jpeg") >= 4

    tables = contamination_tables(project.root, "toytown", ["rootsift-vlad"]) + training_tables(project.root)
    rows = {table.title: table for table in tables}
    pictures = rows["Pictures of flagged classes, candidates by rootsift-vlad"]
    assert pictures.rows[0][0] == "all" and " of 6 = " in pictures.rows[0][1]
    assert pictures.notes[0].startswith("A picture is confirmed from ")
    assert rows["rootsift-vlad: heads standard less decon, points"].total == 9
    assert rows["Which training saw flagged images"].total == 3

    trace = project.cairn("trace", "toytown/rootsift-vlad/decon/1/global/hard/map", "--json")
    artifacts = json.loads(trace.stdout)["artifacts"]
    assert {"artifacts/toytown/rootsift-vlad/heads/decon", "artifacts/toytown/contamination"} <= set(
        artifacts
    )
    assert project.cairn("verify").returncode == 0
    sql = "SELECT DISTINCT system, head, seed FROM head_per_query ORDER BY ALL"
    assert "decon" in project.cairn("sql", sql).stdout

    watched = Watched(project)
    try:
        assert watched.agreed() == set()
        undo = watched.edit("assets/heads.py", lambda text: text + "\n_UNUSED = 1\n")
        assert names(watched.agreed()) == {"heads"}
        undo()
    finally:
        watched.close()
