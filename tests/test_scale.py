"""docs/scale.md is what bench/scale.py derives, and follows its figures."""

from pathlib import Path

import pytest
import yaml

from bench import scale

REPOSITORY = Path(__file__).resolve().parents[1]


def test_the_document_is_what_the_script_derives():
    text = scale.DOCUMENT.read_text("utf-8")
    derived = scale.tables(scale.Figures.read(scale.FIGURES))
    assert scale.document(text, derived) == text, "run `python bench/scale.py --write`"


def changed(tmp_path: Path, **values) -> scale.Figures:
    document = yaml.safe_load(scale.FIGURES.read_text("utf-8"))
    for name, value in values.items():
        section, _, key = name.partition("__")
        document[section][key]["value"] = value
    path = tmp_path / "figures.yaml"
    path.write_text(yaml.safe_dump(document))
    return scale.Figures.read(path)


def test_everything_follows_from_the_figures(tmp_path: Path):
    before = scale.derive(scale.Figures.read(scale.FIGURES))["one machine"]
    twice = scale.derive(changed(tmp_path, collection__images=200_000_000))["one machine"]
    for name in (
        "archives",
        "descriptors",
        "memory",
        "GPU seconds, bound",
        "energy",
        "carbon",
        "search, products",
    ):
        assert twice[name] == pytest.approx(2 * before[name]), name
    assert before["descriptors"] > 100_000_000 * 1024 * 2
    assert before["descriptors"] < 1.1 * 100_000_000 * 1024 * 2
    measured = scale.derive(
        changed(tmp_path, measured__gpu_images_per_second=1000, measured__decoded_images_per_second=50)
    )["one machine"]
    assert measured["GPU seconds, measured"] == 100_000
    assert measured["extraction"] == 100_000 / 8 and measured["processors decoding"] == 160
    assert measured["energy"] == pytest.approx(100_000 / 3600 * 1.0 * 1.56)


def test_operations_of_a_known_model(tmp_path: Path):
    # ViT-B/16 at 224: 17.6 GFLOP counted as multiply-adds in its paper's successors, so 35 GFLOP here.
    figures = changed(
        tmp_path, model__layers=12, model__width=768, model__mlp=3072, model__patch=16, model__side=224
    )
    assert scale.image_flops(figures) == pytest.approx(35e9, rel=0.02)


def test_a_figure_without_a_source_is_refused(tmp_path: Path):
    path = tmp_path / "figures.yaml"
    path.write_text("hardware: {gpu: {value: 3}}\nsetups: {}\n")
    with pytest.raises(ValueError, match=r"hardware\.gpu needs a value and where it is from"):
        scale.Figures.read(path)
