"""What separates two numbers or two revisions: exactly what was changed, and nothing else."""

import io
import json
import shutil
import subprocess
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from cairn.errors import LineageError
from cairn.files import dvc_digest, file_digest
from cairn.lineage.against import against
from cairn.lineage.show_against import print_against
from cairn.results import read_results, write_results

BASE = "artifacts/toytown/rootsift-vlad"
GLOBAL = "toytown/rootsift-vlad/global/hard/map"


def told(found) -> list[tuple[str, str, str | None, str | None]]:
    return [(item.kind, item.name, item.first, item.second) for item in found.comparison.differences]


def commit(project) -> None:
    """Keep every artifact in DVC's cache, and commit what git tracks."""
    for file in (project / "artifacts").rglob("*"):
        if file.is_file():
            md5 = file_digest(file, "md5")
            blob = project / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
            blob.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, blob)
    for path in [
        project / "artifacts/code",
        *(project / "artifacts").glob("*/*/*"),
        *(project / "artifacts").glob("*/*"),
    ]:
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
            listing = [
                {"md5": file_digest(file, "md5"), "relpath": file.relative_to(path).as_posix()}
                for file in files
            ]
            md5 = dvc_digest(path)
            blob = project / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
            blob.parent.mkdir(parents=True, exist_ok=True)
            blob.write_text(json.dumps(listing))
    (project / ".gitignore").write_text("/artifacts/\n.dvc/\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "A run"]):
        subprocess.run(["git", "-C", str(project), *arguments], check=True)


def remake(project, stage: str, parameters=None, module=None, package=None) -> None:
    """Change how `stage` was made, and give it and everything downstream other bytes, as a new run would."""
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    stages = lock["stages"]
    ((file, recorded),) = stages[stage]["params"].items()
    code = json.loads((project / file).read_text())
    if parameters:
        recorded["parameters"] = code["parameters"] = parameters
    if module:
        code["modules"][module] = "f" * 64
        recorded["digest"] = code["digest"] = "e" * 64
    if package:
        code["packages"][package] = "0.0.1"
    (project / file).write_text(json.dumps(code))
    changed = {stages[stage]["outs"][0]["path"]}
    for name, entry in stages.items():
        touched = [dep for dep in entry.get("deps", []) if any(_touches(dep["path"], p) for p in changed)]
        if name == stage or touched:
            for output in entry["outs"]:
                if output["path"] not in ("artifacts/code", "artifacts/results"):
                    (project / output["path"] / "again.txt").write_text(
                        f"{stage} {parameters} {module} {package}"
                    )
                    changed.add(output["path"])
    for entry in stages.values():
        for item in [*entry.get("deps", []), *entry["outs"]]:
            if (project / item["path"]).exists():
                item["md5"] = dvc_digest(project / item["path"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))


def _touches(dependency: str, output: str) -> bool:
    return dependency == output or output.startswith(dependency + "/")


def test_two_stages_differ_in_the_step_that_only_one_has(built):
    found = against(built / "cairn", GLOBAL, "toytown/rootsift-vlad/geometry/hard/map")
    assert told(found) == [("step", "reranking", None, f"{BASE}/reranking (k=100)")]


def test_two_slices_differ_in_what_is_measured(built):
    found = against(built / "cairn", GLOBAL, "toytown/rootsift-vlad/global/easy/map")
    assert told(found) == [("number", "slice", "hard", "easy")]


def test_a_number_does_not_differ_from_itself(built):
    assert told(against(built / "cairn", GLOBAL, GLOBAL)) == []


def test_two_benchmarks_differ_in_their_sources_too(built):
    found = against(built / "cairn", "toytown/rootsift-vlad/global/hard", "places/rootsift-vlad/global")
    kinds = {(kind, name) for kind, name, _, _ in told(found)}
    assert ("source", "toytown-generator") in kinds and ("source", "images") in kinds


def test_without_a_stage_the_first_is_taken_and_said(built):
    found = against(built / "cairn", "toytown/rootsift-vlad/hard", "toytown/tiny/hard")
    assert found.notes == (
        "toytown/rootsift-vlad/hard names no stage: this is the first one (global); there is also geometry-k100",
    )


CHANGES = [
    (
        {"stage": "descriptors@toytown-rootsift-vlad", "parameters": {"size": 5}},
        ("parameter", "size", "5", None),
        True,
    ),
    (
        {"stage": "vocabulary@toytown-rootsift-vlad", "parameters": {"words": 128}},
        ("parameter", "words", "128", "64"),
        True,
    ),
    (
        {"stage": "manifest@toytown", "module": "cairn/manifest.py"},
        ("code", "cairn/manifest.py", "f" * 64, None),
        True,
    ),
    (
        {"stage": "ranking@toytown-rootsift-vlad", "package": "numpy"},
        ("package", "numpy", "0.0.1", None),
        True,
    ),
    ({"stage": "local@toytown-rootsift-vlad"}, None, False),  # not under the global number
    (
        {"stage": "ground_truth@toytown"},
        ("unexplained", "artifacts/toytown/ground_truth", None, None),
        True,
    ),
]


@pytest.mark.parametrize(("change", "expected", "differs"), CHANGES)
def test_one_change_between_two_revisions_is_the_one_difference(project, change, expected, differs):
    commit(project)
    remake(project, **change)
    found = against(project, GLOBAL, revision="HEAD")
    assert len(found.comparison.differences) == differs
    if expected is not None:
        (item,) = found.comparison.differences
        for given, wanted in zip((item.kind, item.name, item.first, item.second), expected, strict=True):
            assert wanted is None or given == wanted
        assert item.artifacts == (change_path(change["stage"]),)
    assert found.values[1] is not None  # the revision's own table is in the cache


def change_path(stage: str) -> str:
    step, key = stage.split("@")
    benchmark, _, system = key.partition("-")
    return f"artifacts/{benchmark}/{system}/{step}" if system else f"artifacts/{benchmark}/{step}"


def test_two_changes_are_two_differences_and_numbers_say_which_reach_them(project):
    commit(project)
    remake(project, "vocabulary@places-rootsift-vlad", parameters={"words": 9})
    remake(project, "ranking@toytown-tiny-histogram", module="cairn/ranking.py")
    found = against(project, None, revision="HEAD")
    by_name = dict(zip([d.name for d in found.comparison.differences], found.numbers, strict=True))
    assert set(by_name) == {"words", "cairn/ranking.py"}
    assert {name.split("/")[0] for name in by_name["words"]} == {"places"}
    assert {name.split("/")[1] for name in by_name["cairn/ranking.py"]} == {"tiny-histogram"}


def test_where_the_cache_lacks_the_code_files_git_is_asked(project):
    source = project / "cairn"
    source.mkdir()
    (source / "ranking.py").write_text("old")
    (source / "files.py").write_text("same")
    commit(project)
    shutil.rmtree(project / ".dvc/cache")
    (project / "artifacts/results/again.txt").write_text("newer")
    remake(project, "ranking@toytown-rootsift-vlad", module="cairn/ranking.py")
    digests = {b"old": "a" * 64}

    def digest_of(path, content):
        file = project / "artifacts/code/ranking/toytown-rootsift-vlad.json"
        return digests.get(content, json.loads(file.read_text())["modules"][path])

    found = against(project, GLOBAL, revision="HEAD", digest_of=digest_of)
    assert told(found) == [("code", "cairn/ranking.py", "f" * 64, "a" * 64)]
    assert any("value is not known" in note for note in found.notes)


def test_unknown_revisions_are_one_clear_line(project):
    with pytest.raises(LineageError, match=r"no revision 'nowhere'"):
        against(project, GLOBAL, revision="nowhere")
    commit(project)
    for revision in ("nowhere", "--help", "HEAD~9", ""):
        with pytest.raises(LineageError) as caught:
            against(project, GLOBAL, revision=revision)
        assert "\n" not in str(caught.value)


def test_a_number_that_the_revision_lacks_is_said_to_be_lacking_there(project):
    commit(project)
    table = project / "artifacts/results/results.parquet"
    rows = read_results(table)
    write_results(table, [*rows, replace(rows[0], name=replace(rows[0].name, system="newer"))])
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    lock["stages"]["results"]["outs"][0]["md5"] = dvc_digest(table.parent)
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    with pytest.raises(LineageError, match=r"^at [0-9a-f]{10}: no number is called"):
        against(project, f"{rows[0].name.benchmark}/newer/{rows[0].name.stage}", revision="HEAD")


def test_printed_and_as_json(project):
    commit(project)
    remake(project, "manifest@toytown", module="cairn/manifest.py")
    found = against(project, None, revision="HEAD")
    console = Console(file=io.StringIO(), width=120, highlight=False)
    print_against(found, console)
    text = console.file.getvalue()
    assert "cairn/manifest.py  ffffffffffff → " in text
    assert "reaches 11 numbers" in text  # places learns on toytown's images
    record = json.loads(json.dumps(found.as_dict()))
    assert record["differences"][0]["artifacts"] == ["artifacts/toytown/manifest"]
    assert len(record["differences"][0]["numbers"]) == 11
