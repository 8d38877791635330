"""What is known of a system's pretraining stands below its numbers."""

import json
from pathlib import Path

from cairn.encoders import encoder_facts
from cairn.results.facts import pretraining_notes


def write(root: Path, benchmark: str, system: str, encoder: str) -> None:
    folder = root / "artifacts" / benchmark / system / "descriptors"
    folder.mkdir(parents=True)
    facts = {} if encoder.startswith("python:") else encoder_facts(encoder)
    facts = {"pretraining": "not declared", "overlap": "none", **facts}
    (folder / "descriptors.json").write_text(json.dumps({"encoder": encoder, "facts": facts}))


def test_what_was_trained_is_told_once_and_what_was_not_is_not(tmp_path: Path):
    write(tmp_path, "a", "floor", "colour-histogram")
    write(tmp_path, "a", "dino", "dinov2")
    write(tmp_path, "b", "dino", "dinov2")
    write(tmp_path, "b", "script", "torchscript")
    (tmp_path / "artifacts/a/broken/descriptors").mkdir(parents=True)
    (tmp_path / "artifacts/a/broken/descriptors/descriptors.json").write_text("[")
    pairs = [("a", "floor"), ("a", "dino"), ("b", "dino"), ("b", "script"), ("a", "broken"), ("a", "absent")]
    first, second = pretraining_notes(tmp_path, pairs)
    assert first.startswith("dino: pretrained on LVD-142M") and "GLDv2" in first and "ROxford" in first
    assert second == (
        "script: pretrained on not declared; overlap with benchmarks: not declared "
        "(declare it under systems.script.facts: docs/encoders.md)"
    )


def test_a_users_module_is_told_where_it_declares_them(tmp_path: Path):
    write(tmp_path, "a", "mine", "python:mymodel:build")
    (note,) = pretraining_notes(tmp_path, [("a", "mine")])
    assert note == (
        "mine: pretrained on not declared; overlap with benchmarks: none "
        "(declare it in FACTS of its module: docs/encoders.md)"
    )
