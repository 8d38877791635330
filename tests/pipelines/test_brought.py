"""Paths of the user's own files: one form in `dvc.yaml` and `dvc.lock`, however they are written; missing ones."""

import json
import posixpath
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import ParameterError
from cairn.lineage.lock import read_lock
from cairn.parameters import load_parameters
from pipelines.brought import plain_path, reranker_files
from pipelines.code_stage import code_of
from pipelines.generate import pipeline_text
from pipelines.graph import build_graph
from tests.pipelines.project import TINY, Project

MD5 = "0" * 32
PREPROCESSING = {"resize": "square", "size": 8}


@pytest.mark.parametrize(
    ("written", "recorded"),
    [
        ("models/mine.ts", "models/mine.ts"),
        ("./models/mine.ts", "models/mine.ts"),
        ("models//./mine.ts", "models/mine.ts"),
        ("photos/", "photos"),
        ("./../shared/photos/", "../shared/photos"),
        ("/data//photos/", "/data/photos"),
        ("//data/photos", "/data/photos"),
        ("..photos/a..b", "..photos/a..b"),
    ],
)
def test_a_path_has_one_form(written: str, recorded: str):
    assert plain_path(written, "systems.mine.model") == recorded


@pytest.mark.parametrize("written", [".", "./", "..", "../..", "/", "a/../b", "../a/..", "/a/../b", "./a/.."])
def test_a_path_without_one_place_of_its_own_is_refused(written: str):
    with pytest.raises(ParameterError) as caught:
        plain_path(written, "benchmarks.mine.images")
    assert str(caught.value).startswith(f"params.yaml: benchmarks.mine.images = {written!r}: ")


@given(st.lists(st.sampled_from(["", ".", "..", "a", "b c", "photos", "ü.ts"]), max_size=6).map("/".join))
def test_what_is_not_refused_can_be_read_from_the_lock(tmp_path_factory, written: str):
    try:
        path = plain_path(written, "systems.mine.model")
    except ParameterError:
        return
    base = "/a/b/c/d/e/f/g"
    assert posixpath.normpath(f"{base}/{path}") == posixpath.normpath(f"{base}/{written}") or path[0] == "/"
    root = tmp_path_factory.mktemp("lock")
    entry = {"cmd": "x", "deps": [{"path": path, "md5": MD5}], "outs": [{"path": "artifacts/x", "md5": MD5}]}
    (root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": {"x": entry}}), "utf-8")
    (stage,) = read_lock(root).values()
    assert [item.path for item in stage.inputs] == [path]


def test_every_path_of_the_user_is_normal_in_the_pipeline(tmp_path: Path):
    ames = {
        "checkpoint": "./ckpt//ames.pt",
        "dinov2": {"model": "./models/d/", "detector": ".//ckpt/detector.pt"},
    }
    files = {
        "queries": "./q.hdf5",
        "gallery": ["../far//g.hdf5"],
        "query_names": "./q.txt",
        "gallery_names": "/g//g.txt",
    }
    systems = {
        "script": {"encoder": "torchscript", "model": "./models/mine.ts", "preprocessing": PREPROCESSING},
        "onnx": {"encoder": "onnx", "model": "models//mine.onnx", "preprocessing": PREPROCESSING},
        "hub": {"encoder": "dinov2", "model": "./models/dinov2-base"},
        "timm": {"encoder": "timm", "architecture": "vit", "model": "./models/t.safetensors"},
        "brought": {"encoder": "precomputed", "features": "./features/{benchmark}/"},
        "ames": {"encoder": "colour-histogram", "rerank": {"method": "ames", "ames": ames}},
        "borrowed": {
            "encoder": "colour-histogram",
            "rerank": {"method": "ames", "ames": {"checkpoint": "./ckpt/ames.pt", "files": files}},
        },
    }
    benchmark = {"adapter": "folder", "images": "./photos/", "truth": ".//truth.csv", "training": "mine"}
    runs = {f"mine-{name}": {"benchmark": "mine", "system": name} for name in systems}
    text = yaml.safe_dump({"benchmarks": {"mine": benchmark}, "systems": systems, "runs": runs})
    (tmp_path / "params.yaml").write_text(text, "utf-8")
    parameters = load_parameters(tmp_path / "params.yaml")

    nodes = build_graph(parameters)
    externals = {path for node in nodes.values() for path in node.externals.values()}
    assert externals == {
        *("photos", "truth.csv", "models/mine.ts", "models/mine.onnx", "models/dinov2-base"),
        *("models/t.safetensors", "features/mine"),
    }
    reread = {
        *("ckpt/ames.pt", "ckpt/detector.pt", "models/d/config.json", "models/d/model.safetensors"),
        *("q.hdf5", "../far/g.hdf5", "q.txt", "/g/g.txt"),
    }
    assert set(reranker_files(parameters)) == reread
    code = {path for node in nodes.values() for path in code_of(node, parameters)[2]}
    assert {path for path in code if not path.startswith("cairn/")} == reread

    stages = yaml.safe_load(pipeline_text(parameters))["stages"]
    assert reread <= set(stages["code"]["deps"])
    places = [stage["foreach"] for stage in stages.values() if isinstance(stage.get("foreach"), dict)]
    items = [item for place in places for item in place.values()]
    named = {item[key] for item in items for key in ("images", "truth", "model", "features") if key in item}
    assert named == externals
    # The steps get what the user wrote: without `./` a folder could be read as a hub id.
    assert parameters.systems["hub"]["settings"]["model"] == "./models/dinov2-base"


def save_network(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    network = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.LayerNorm(12, elementwise_affine=False)
    )
    torch.jit.save(torch.jit.trace(network, torch.zeros(1, 3, 8, 8)), str(path))


@pytest.mark.slow
def test_numbers_on_files_written_with_a_dot_are_traced_and_verified(project: Project):
    folder = project.root / "photos"
    folder.mkdir()
    with tarfile.open(project.root / "artifacts/toytown/sources/images.tar") as archive:
        members = [name for name in sorted(archive.getnames()) if name.startswith("gallery/")][:6]
        for name in members:
            (folder / Path(name).name).write_bytes(archive.extractfile(name).read())  # type: ignore[union-attr]
    names = sorted(path.name for path in folder.iterdir())
    truth = f"query,image,relevance\n{names[0]},{names[1]},positive\n{names[0]},{names[0]},junk\n"
    (project.root / "truth.csv").write_text(truth, "utf-8")
    parameters = project.parameters()
    parameters["benchmarks"]["mine"] = {
        "adapter": "folder",
        "images": "./photos/",
        "truth": "./truth.csv",
        "training": "toytown",
    }
    parameters["systems"]["net"] = {
        "encoder": "torchscript",
        "model": ".//models/net.ts",
        "preprocessing": PREPROCESSING,
        "rerank": {"method": "none"},
        "facts": {"pretraining": "the town next door"},
    }
    parameters["runs"]["mine-net"] = {"benchmark": "mine", "system": "net"}
    project.write_parameters(parameters)

    missing = "params.yaml: systems.net.model = 'models/net.ts': no such file or folder"
    told = json.loads(project.cairn("status", "--json", check=False).stdout)["stale"]
    assert told["mine/net/descriptors"] == ["never made", missing]
    refused = project.cairn("run", "mine", check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == f"error: {missing}"
    assert not (project.root / "artifacts/mine").exists(), "nothing ran"

    save_network(project.root / "models" / "net.ts")
    printed = project.cairn("run", "mine").stdout
    assert "net: pretrained on the town next door; overlap with benchmarks: not declared" in printed
    traced = json.loads(project.cairn("trace", "mine/net", "--json").stdout)
    assert {"photos", "truth.csv", "models/net.ts"} <= {source["location"] for source in traced["sources"]}
    assert traced["unverified_sources"] == []
    project.cairn("verify", "mine")
    assert project.cairn("status", check=False).returncode == 0
    shutil.rmtree(folder)
    stale = json.loads(project.cairn("status", "--json", check=False).stdout)["stale"]
    assert stale == {"mine/sources": ["input photos: deleted"]}


@pytest.mark.slow
def test_a_missing_checkpoint_is_named_with_its_key(project: Project):
    parameters = json.loads(json.dumps(TINY))
    ames = {"method": "ames", "ames": {"checkpoint": "./ckpt/none.pt"}}
    parameters["systems"]["rootsift-vlad"]["rerank"] = ames
    project.write_parameters(parameters)
    for command in ("status", "run"):
        result = project.cairn(command, check=False)
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1] == (
            "error: params.yaml: systems.rootsift-vlad.rerank.ames = 'ckpt/none.pt': no such file or folder"
        )
