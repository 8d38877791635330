"""Every field of `dvc.lock` edited, one at a time: nothing that a reader would believe passes in silence."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from cairn.errors import CairnError
from cairn.lineage import verify
from cairn.lineage.lock_checks import Declared

MD5 = 32
# One stage of each kind: the others are recorded alike.
STAGES = (
    "code",
    "sources-toytown@toytown",
    "sources-folder@places",
    "manifest@places",
    "ground_truth@toytown",
    "training@places",
    "vocabulary@toytown-rootsift-vlad",
    "descriptors@toytown-rootsift-vlad",
    "ranking@toytown-rootsift-vlad",
    "reranking@toytown-rootsift-vlad",
    "scores@toytown-rootsift-vlad",
    "results",
)
# The code stage's own input: code is compared module by module over the syntax tree, and a comment changes the md5.
SILENT = {"stages / code / deps / 0 / md5"}


@pytest.fixture(scope="module")
def lock(built) -> dict:
    return yaml.safe_load((built / "cairn/dvc.lock").read_text())


@pytest.fixture(scope="module")
def declared(lock) -> dict[str, Declared]:
    """What `params.yaml` would declare: the project as it was made."""
    return {
        name: Declared(tuple(item["path"] for item in stage.get("deps", [])), stage["outs"][0]["path"])
        for name, stage in lock["stages"].items()
    }


def leaves(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all values in the lock, empty mappings and lists included."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from leaves(value, (*path, key))
    if not items and path:
        yield path


def nodes(node: Any, path: tuple = ()) -> Iterator[tuple]:
    """The paths of all values, mappings and items of lists."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from nodes(value, (*path, key))


def changed(value: Any) -> Any:
    """Another value of the same type, and of the same look."""
    if isinstance(value, int):
        return value + 1
    if value and len(value) >= MD5 and set(value[:MD5]) <= set("0123456789abcdef"):
        return ("0" if value[0] != "0" else "1") + value[1:]
    return f"{value}x" if isinstance(value, str) else "x"


def tried(paths: Iterator[tuple]) -> list[tuple]:
    return [path for path in paths if len(path) == 1 or path[1] in STAGES]


def edited(lock: dict, path: tuple, change) -> dict:
    other = copy.deepcopy(lock)
    holder = other
    for key in path[:-1]:
        holder = holder[key]
    change(holder, path[-1])
    return other


def replace(holder: Any, key: Any) -> None:
    holder[key] = changed(holder[key])


def remove(holder: Any, key: Any) -> None:
    del holder[key]


def said(project, lock: dict, declared: dict[str, Declared]) -> tuple[list[str], list[str]]:
    """Findings and notes, beyond those that stand without an edit; an error is a finding."""
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    try:
        verification = verify(project, declared=declared)
    except CairnError as error:
        return [str(error)], []
    notes = [note for note in verification.notes if "not a git repository" not in note]
    return [finding.message for finding in verification.findings], notes


@pytest.mark.parametrize("change", [replace, remove])
def test_no_edit_of_the_lock_passes_in_silence(project, lock, declared, change):
    assert said(project, lock, declared) == ([], [])
    silent = set()
    paths = tried(leaves(lock) if change is replace else nodes(lock))
    for path in paths:
        findings, notes = said(project, edited(lock, path, change), declared)
        # No parameters at all is what an empty mapping says.
        if not findings and not notes and not (path[-1] == "parameters" and change is remove):
            silent.add(" / ".join(map(str, path)))
        for text in [*findings, *notes]:
            assert len(text.splitlines()) == 1
    assert len(paths) > 150
    assert silent == (SILENT if change is replace else set())


@pytest.mark.parametrize("field", ["size", "nfiles", "hash"])
@pytest.mark.parametrize("change", [replace, remove])
def test_sizes_numbers_of_files_and_kinds_of_hash_are_findings(project, lock, declared, field, change):
    """Each names the file, the stage, the path, what is recorded and what is expected, and taints numbers."""
    paths = [path for path in tried(leaves(lock)) if path[-1] == field]
    assert len(paths) > 20
    for path in paths:
        _, stage, part, number, _ = path
        item = lock["stages"][stage][part][number]
        recorded = "absent" if change is remove else changed(item[field])
        (project / "dvc.lock").write_text(yaml.safe_dump(edited(lock, path, change), sort_keys=False))
        (finding,) = verify(project, declared=declared).findings
        assert (finding.kind, finding.artifact, finding.file) == ("entry", item["path"], "dvc.lock")
        place = f"dvc.lock, stage {stage}, {part}: of {item['path']} "
        assert finding.message.startswith(
            f"{place}{field} is {recorded}, expected {item[field]}: `git checkout"
        )
        assert (finding.expected, finding.found) == (str(recorded), str(item[field]))
        assert finding.numbers
