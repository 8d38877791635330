"""`dvc.yaml` is what the declarations say: committed, templated, and complete."""

from pathlib import Path

import yaml

from assets.step import MODULES, steps
from cairn.parameters import load_parameters
from pipelines.generate import pipeline_text
from pipelines.graph import build_graph
from tests.pipelines.project import Project

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_committed_pipeline_is_the_generated_one():
    parameters = load_parameters(REPOSITORY / "params.yaml")
    committed = (REPOSITORY / "dvc.yaml").read_text("utf-8")
    assert committed == pipeline_text(parameters), "run `cairn generate` and commit dvc.yaml"


def test_every_step_is_a_stage_and_depends_on_its_own_digest():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text("utf-8"))["stages"]
    for name, step in steps().items():
        body = stages["sources-toytown" if name == "sources" else name]
        body = body.get("do", body)
        [(file, keys)] = body["params"][0].items()
        assert file.startswith(f"artifacts/code/{name}/")
        assert keys[0] == "digest"
        assert ("parameters" in keys) == bool(step.parameters)
        assert len(body["outs"]) == 1


def test_runs_come_from_params_yaml_at_run_time():
    stages = yaml.safe_load((REPOSITORY / "dvc.yaml").read_text("utf-8"))["stages"]
    for name, step in steps().items():
        if step.scope == "run":
            assert stages[name]["foreach"] == "${runs}"


def test_known_benchmarks_are_written_out_since_dvc_cannot_read_them_in_params_yaml(tmp_path: Path):
    text = (REPOSITORY / "params.yaml").read_text("utf-8")
    (tmp_path / "params.yaml").write_text(
        f"{text}  mine: {{benchmark: rparis6k, system: colour-histogram}}\n"
    )
    stages = yaml.safe_load(pipeline_text(load_parameters(tmp_path / "params.yaml")))["stages"]
    assert stages["sources-revisitop"]["foreach"] == {"rparis6k": {"name": "rparis6k"}}
    for name, step in steps().items():
        if step.scope == "benchmark" and name != "sources":
            assert stages[name]["foreach"] == {
                "toytown": {"training": "toytown"},
                "rparis6k": {"training": "toytown"},
            }


def test_the_graph_covers_every_run_upstream_first():
    nodes = build_graph(load_parameters(REPOSITORY / "params.yaml"))
    seen: set[str] = set()
    for stage, node in nodes.items():
        for upstream in node.upstream.values():
            assert set(upstream) <= seen
        seen.add(stage)
    assert {node.step.name for node in nodes.values()} == set(MODULES)
    assert len({node.asset for node in nodes.values()}) == len(nodes)
    assert len({node.output for node in nodes.values()}) == len(nodes)


def test_drift_is_an_error_that_says_what_to_run(project: Project):
    path = project.root / "dvc.yaml"
    path.write_text(path.read_text("utf-8") + "# edited\n", "utf-8")
    for command in (("generate", "--check"), ("code",)):
        result = project.cairn(*command, check=False)
        assert result.returncode == 1
        assert "cairn generate" in result.stderr
        assert "Traceback" not in result.stderr
    project.cairn("generate")
    assert project.cairn("generate", "--check").returncode == 0
