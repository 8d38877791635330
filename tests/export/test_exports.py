"""Exports hold what the graph holds, pass their own validator, and are the same each time."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import yaml

from cairn.errors import LineageError, UsageError
from cairn.export.openlineage import write_events
from cairn.export.ro_crate import crate_metadata, write_crate
from cairn.export.selection import select
from cairn.lineage.tables import flattened
from tests.lineage.project import numbers_of, runs

pytest.importorskip("rocrate", reason="the extra `export` is not installed")
pytest.importorskip("openlineage.client", reason="the extra `export` is not installed")

PLACES = ("places", "rootsift-vlad")


def validator() -> str:
    """The Python of the environment that has roc-validator (it wants another rich than Cairn: `make test` makes it)."""
    own = Path(sys.prefix) / "rocrate" / "bin" / "python"
    found = os.environ.get("CAIRN_ROCRATE_PYTHON") or (str(own) if own.is_file() else "")
    if not found:
        pytest.skip(f"no roc-validator: neither {own} nor CAIRN_ROCRATE_PYTHON (`make test` installs it)")
    return found


def issues(crate: Path) -> list[dict]:
    import rocrate

    context = Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld"
    script = Path(__file__).with_name("validate_crate.py")
    done = subprocess.run(
        [validator(), str(script), str(crate), str(context), "process-run-crate-0.5", "REQUIRED"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def entities(metadata: dict) -> dict[str, dict]:
    return {entity["@id"]: entity for entity in metadata["@graph"]}


def listed(value) -> list:
    return value if isinstance(value, list) else [value]


def test_the_crate_passes_the_validator_and_a_broken_one_does_not(project, tmp_path):
    written = write_crate(select(project), tmp_path / "crate")
    assert issues(written.parent) == []
    metadata = json.loads(written.read_text())
    for entity in metadata["@graph"]:
        if entity["@type"] == "CreateAction":
            del entity["instrument"]
    written.write_text(json.dumps(metadata))
    assert {issue["check"] for issue in issues(written.parent)} == {"process-run-crate-0.5_1.1"}


def test_the_crate_holds_every_number_hash_parameter_and_source(project):
    found = entities(crate_metadata(select(project)))
    numbers = {e["name"] for key, e in found.items() if key.startswith("#number-")}
    assert numbers == numbers_of(*runs())
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    for name, stage in stages.items():
        if name == "code":
            continue
        action = found[f"#stage-{name}"]
        (result,) = (found[item["@id"]] for item in listed(action["result"]))
        assert result["identifier"] == f"md5 {stage['outs'][0]['md5']}"
        used = listed(action["object"])
        given = {found[item["@id"]]["name"]: found[item["@id"]].get("value") for item in used}
        for dep in stage.get("deps", []):
            below = [path for path in given if path == dep["path"] or path.startswith(dep["path"] + "/")]
            assert below or dep["path"].startswith("../"), (name, dep)
        for values in stage["params"].values():
            for key, value in flattened(values["parameters"]):
                assert key in given and (value == {} or str(given[key]) == str(value))
        assert (
            found[action["instrument"]["@id"]]["softwareVersion"]
            == next(iter(stage["params"].values()))["digest"]
        )
    archive = found["artifacts/toytown/sources/images.tar"]
    source = json.loads((project / "artifacts/toytown/sources/sources.json").read_text())["sources"][0]
    assert archive["identifier"] == f"sha256 {source['sha256']}"
    assert archive["copyrightNotice"] == "Apache-2.0"


def test_a_crate_of_one_number_holds_what_is_under_it_alone(project):
    selection = select(project, ["places/rootsift-vlad/global"])
    found = entities(crate_metadata(selection))
    assert [key for key in found if key.startswith("#number-")] == [
        "#number-places/rootsift-vlad/-/-/global/all/map"
    ]
    assert "#stage-ranking@places-rootsift-vlad" in found
    assert "#stage-reranking@places-rootsift-vlad" not in found
    # The table was made for every run, and says so in its parameters.
    apart = [
        key for key in found if "tiny-histogram" in key and not key.startswith("#parameter-results-runs.")
    ]
    assert not apart


def test_the_project_itself_becomes_the_crate_and_the_same_twice(project):
    before = set(project.rglob("*"))
    written = write_crate(select(project))
    first = written.read_bytes()
    assert set(project.rglob("*")) - before == {project / "ro-crate-metadata.json"}
    write_crate(select(project))
    assert written.read_bytes() == first


def test_a_folder_that_exists_is_left_alone(project, tmp_path):
    with pytest.raises(UsageError, match="exists already"):
        write_crate(select(project), tmp_path)


def test_an_unpinned_source_says_so_in_the_crate(project):
    listed = project / "artifacts/places/sources/sources.json"
    content = json.loads(listed.read_text())
    content["sources"].append({"name": "hearsay", "url": "https://example.org/hearsay"})
    listed.write_text(json.dumps(content))
    found = entities(crate_metadata(select(project)))["https://example.org/hearsay"]
    assert "no checksum" in found["description"]


def test_events_tell_every_stage_with_the_versions_of_its_inputs(project, tmp_path):
    selection = select(project)
    path = tmp_path / "events.ndjson"
    count = write_events(selection, path)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(events) == count == 2 * len(selection.made)
    stages = yaml.safe_load((project / "dvc.lock").read_text())["stages"]
    done = {e["job"]["name"]: e for e in events if e["eventType"] == "COMPLETE"}
    assert set(done) == set(stages) - {"code"}
    for name, event in done.items():
        uuid.UUID(event["run"]["runId"])
        (output,) = event["outputs"]
        assert output["facets"]["version"]["datasetVersion"] == stages[name]["outs"][0]["md5"]
        versions = {
            i["name"]: i["facets"]["version"]["datasetVersion"] for i in event["inputs"] if i["facets"]
        }
        for dep in stages[name].get("deps", []):
            if dep["path"] != "artifacts/scores":
                assert versions[dep["path"]] == dep["md5"] or dep["path"].startswith("../")
    write_events(selection, tmp_path / "again.ndjson")
    assert (tmp_path / "again.ndjson").read_bytes() == path.read_bytes()


def test_a_number_that_does_not_exist_is_named(project):
    with pytest.raises(LineageError, match="no number is called"):
        select(project, ["nowhere"])


def test_the_commands(project, tmp_path):
    repository = Path(__file__).resolve().parents[2]

    def cairn(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "pipelines", "export", *arguments],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(repository)},
            capture_output=True,
            text=True,
            check=False,
        )

    made = cairn("ro-crate", "places/rootsift-vlad/global", "--output", str(tmp_path / "crate"))
    assert made.returncode == 0, made.stderr
    assert "1 numbers" in made.stdout
    assert (tmp_path / "crate/artifacts/places/rootsift-vlad/ranking/ranking.parquet").is_file()
    assert cairn("openlineage", str(tmp_path / "events.ndjson")).returncode == 0
    refused = cairn("ro-crate", "--output", str(tmp_path))
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1
