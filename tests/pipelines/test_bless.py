"""`cairn bless` accepts old bytes under new code only with evidence, and the trace shows it."""

import json

from tests.pipelines.project import Project

NUMBER = "toytown/rootsift-vlad/hard/map"


def change_code(project: Project, file: str, text: str = "\n_UNUSED = 1\n") -> None:
    path = project.root / file
    path.write_text(path.read_text("utf-8") + text, "utf-8")


def test_a_harmless_change_is_blessed_and_nothing_runs_again(project: Project):
    change_code(project, "assets/descriptors.py")
    result = project.cairn("bless", "descriptors", "--sample", "12", "--seed", "3")
    assert "12" in result.stderr
    [record] = json.loads((project.root / "blessings.json").read_text("utf-8"))
    assert record["compared"] == 12
    assert record["largest_difference"] == 0
    assert record["old_digest"] != record["new_digest"]
    assert project.repro() == []
    traced = json.loads(project.cairn("trace", NUMBER, "--json").stdout)
    notes = traced["artifacts"]["artifacts/toytown/rootsift-vlad/descriptors"]["notes"]
    assert any(record["old_digest"][:12] in note and record["new_digest"][:12] in note for note in notes)


def test_a_change_of_pixels_is_refused(project: Project):
    path = project.root / "cairn" / "images" / "decode.py"
    text = path.read_text("utf-8")
    assert "def decode_gray" in text
    change_code(
        project,
        "cairn/images/decode.py",
        "\n_plain = decode_gray\n\n\ndef decode_gray(*asked):\n    return 255 - _plain(*asked)\n",
    )
    before = (project.root / "dvc.lock").read_bytes()
    result = project.cairn("bless", "descriptors", check=False)
    assert result.returncode == 1
    assert "different under the new code" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (project.root / "blessings.json").exists()
    lock = (project.root / "dvc.lock").read_bytes()
    assert b"descriptors@" in lock
    assert before.split(b"descriptors@", 1)[1] == lock.split(b"descriptors@", 1)[1]


def test_changed_parameters_cannot_be_blessed(project: Project):
    parameters = project.parameters()
    parameters["systems"]["rootsift-vlad"]["rerank"]["geometry"] = {"weight": 0.25}
    project.write_parameters(parameters)
    result = project.cairn("bless", "reranking", check=False)
    assert result.returncode == 2
    assert "more than its code changed" in result.stderr


def test_nothing_to_bless_is_said(project: Project):
    result = project.cairn("bless", "ranking", check=False)
    assert result.returncode == 2
    assert "nothing to bless" in result.stderr
