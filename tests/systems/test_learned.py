"""A network through the step `descriptors`: batches by shape, both sides, texts, damage, memory, and the cache."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.cache import Cache
from cairn.encoders.network import NetworkEncoder, NetworkParameters
from cairn.encoders.weights import Weights
from cairn.errors import CairnError, ImageError, InputError
from cairn.images.manifest import ImageSource, build_manifest, list_entries, manifest_of
from cairn.store.descriptors import open_queries, open_shards
from cairn.systems import batching, extraction
from cairn.systems import descriptors as step
from cairn.systems.batching import Clock, plan
from cairn.systems.descriptors import extract_descriptors, extract_training_descriptors
from cairn.systems.extraction import gallery_views, query_views, work_of
from cairn.systems.sampling import compare_sample, recomputed_sample
from cairn.systems.vocabulary import learn_vocabulary
from tests.systems.conftest import Town, picture

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
KEYS = {"preprocessing": {"resize": "shorter", "size": 24}, "batch": 8}


class Thumbnail:
    """A network that projects a 4 × 4 thumbnail; texts by the numbers of their letters."""

    device = torch.device("cpu")

    def __init__(self, room: int = 10**9) -> None:
        self.projection = torch.randn(48, 16, generator=torch.Generator().manual_seed(0))
        self.room = room

    def images(self, pixels: Any) -> Any:
        if len(pixels) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        return torch.nn.functional.adaptive_avg_pool2d(pixels, 4).flatten(1) @ self.projection

    def texts(self, texts: list[str]) -> Any:
        return torch.tensor([[float(text.count(letter)) for letter in "abcdefghijklmnop"] for text in texts])


class Encoder(NetworkEncoder):
    """Loaded by name below; the network is this module's."""

    def key(self) -> dict:
        return {"settings": self.parameters.model_dump(mode="json")}


def make(room: int = 10**9, has_text: bool = False, **keys: Any) -> Encoder:
    weights = Weights(Path(), "random", None, {"weights.bin": "0" * 64})
    return Encoder(
        "thumbnail",
        NetworkParameters(**KEYS | keys),
        lambda: weights,
        lambda *_: Thumbnail(room),
        (),
        has_text,
    )


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch):
    """Makes the step use a given encoder."""

    def put(encoder: Any) -> None:
        monkeypatch.setattr(step, "load_encoder", lambda *_: encoder)
        monkeypatch.setattr(step, "encoder_facts", lambda *_: {"overlap": "none"})
        monkeypatch.setattr("cairn.systems.sampling.load_encoder", lambda *_: encoder)

    return put


def extract(town: Town, output: Path, cache: Cache | None = None, code: str = "c") -> Path:
    vocabulary = output.with_name("vocabulary")
    vocabulary.mkdir(exist_ok=True)
    (vocabulary / "vocabulary.json").write_text("{}")
    output.mkdir()
    arguments = (town.manifest, town.truth, town.root, vocabulary, "thumbnail", {}, output)
    extract_descriptors(*arguments, cache=cache, code=code, features_code="")
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Town:
    """Thirty pictures of three shapes in turn, one of them a query with a box; q1 is another."""
    root = tmp_path_factory.mktemp("mixed")
    (root / "images").mkdir()
    sizes = [(160, 120), (120, 160), (120, 120)]
    for number in range(30):
        drawn = Image.fromarray(picture(number)[:, :, ::-1].copy()).resize(sizes[number % 3])
        drawn.save(root / "images" / f"g{number:02d}.png")
    entries = [
        replace(entry, image_id=Path(entry.member).stem, gallery=True)
        for entry in list_entries("images", root)
    ]
    truth = GroundTruth(
        (Query("q0", "g00", (10.0, 10.0, 90.0, 110.0)), Query("q1", "g04")), {"q0": {"g03": "easy"}}
    )
    return Town(root, manifest_of(build_manifest(entries, root)), truth)


def test_batches_hold_one_shape_and_are_a_function_of_the_shard(mixed: Town):
    work = work_of(mixed.manifest, mixed.root, make(), "thumbnail")
    views = gallery_views(mixed.manifest, np.arange(30))
    planned = plan(views, work)
    assert sorted(position for batch in planned for position in batch) == list(range(30))
    assert [len(batch) for batch in planned] == [8, 2, 8, 2, 8, 2]
    for batch in planned:
        assert len({position % 3 for position in batch}) == 1 and batch == sorted(batch)
    assert plan(views[:4], work) == [[0, 3], [1], [2]]


def test_descriptors_are_those_of_each_image_alone(mixed: Town, tmp_path: Path, use):
    encoder = make()
    use(encoder)
    output = extract(mixed, tmp_path / "out")
    store, queries = open_shards(output), open_queries(output)
    source = ImageSource(mixed.manifest, mixed.root)
    for name, row in zip(store.ids, store.array(), strict=True):
        image = np.asarray(Image.open(mixed.root / "images" / f"{name}.png"))[:, :, ::-1]
        alone = encoder.describe([encoder.prepare(image)], {})[0]
        assert np.allclose(row, alone, atol=1e-3), name
    image = extraction.pixels(source, extraction.View(0, (10.0, 10.0, 90.0, 110.0), "q0"), True)
    assert image.shape == (100, 80, 3)
    assert np.allclose(
        queries.array()[0], encoder.describe([encoder.prepare(image, (120, 160))], {})[0], atol=1e-3
    )
    facts = json.loads((output / "descriptors.json").read_text())
    assert facts["weights"]["files"] == {"weights.bin": "0" * 64} and "missing" not in facts
    assert json.loads((output / "sources.json").read_text())["sources"][0]["sha256"] == "0" * 64
    stored = tmp_path / "out"
    again = compare_sample(
        recomputed_sample(
            mixed.manifest,
            mixed.truth,
            mixed.root,
            tmp_path / "vocabulary",
            "thumbnail",
            {},
            stored,
            items=9,
            seed=1,
        )
    )
    assert again["compared"] == 9 and again["largest_difference"] <= 2e-3


def test_worker_processes_and_threads_change_no_byte(mixed: Town, tmp_path: Path, use, monkeypatch):
    use(make())
    alone = contents(extract(mixed, tmp_path / "alone"))
    monkeypatch.setattr(extraction, "FEW", 2)
    monkeypatch.setenv("CAIRN_WORKERS", "2")
    assert contents(extract(mixed, tmp_path / "workers")) == alone


def test_queries_get_their_own_scales(mixed: Town, tmp_path: Path, use):
    use(make(multiscale={"scales": [1.0], "query_scales": [0.5, 2.0]}))
    output = extract(mixed, tmp_path / "out")
    gallery, queries = open_shards(output), open_queries(output)
    [row] = gallery.rows_of(["g04"])
    assert not np.allclose(gallery.array()[row], queries.array()[1], atol=1e-3)
    use(make(multiscale={"scales": [0.5, 2.0]}))
    both = extract(mixed, tmp_path / "both")
    assert np.array_equal(open_queries(both).array(), queries.array())


def test_texts_go_through_the_text_tower(mixed: Town, tmp_path: Path, use):
    texts = GroundTruth(
        (Query("t0", text="abba"), Query("t1", text="cab"), Query("q", "g00")), {"t0": {"g00": "easy"}}
    )
    town = replace(mixed, truth=texts)
    use(make(has_text=True))
    queries = open_queries(extract(town, tmp_path / "out"))
    expected = np.zeros(16)
    expected[:2] = 2 / np.sqrt(8)
    assert queries.ids == ["t0", "t1", "q"] and np.allclose(queries.array()[0], expected, atol=1e-3)
    use(make())
    with pytest.raises(InputError, match="query t0 is a text; the encoder thumbnail has no text tower"):
        extract(town, tmp_path / "none")
    both = GroundTruth((Query("b", "g00", text="a"),), {})
    with pytest.raises(
        InputError, match="query b is an image with a text; thumbnail describes one or the other"
    ):
        query_views(mixed.manifest, both, "thumbnail", texts=True)


def test_reduced_decoding_keeps_the_shapes_that_were_planned(tmp_path: Path, use):
    (tmp_path / "images").mkdir()
    for number, width in enumerate(range(1147, 1154)):  # some become a pixel wider when halved first
        image = np.full((900, width, 3), 30 * number, np.uint8)
        assert cv2.imwrite(str(tmp_path / "images" / f"{number}.jpg"), image)
    entries = [replace(one, gallery=True) for one in list_entries("images", tmp_path)]
    manifest = manifest_of(build_manifest(entries, tmp_path))
    town = Town(tmp_path, manifest, GroundTruth((Query("q", "0.jpg", None),), {}))
    use(make(preprocessing={"resize": "shorter", "size": 224, "reduced": True}))
    assert len(open_shards(extract(town, tmp_path / "out")).ids) == 7


def damage(town: Town, root: Path, *names: str) -> Town:
    """A copy in which some files are cut after the manifest was built, and the manifest says that is right."""
    import hashlib
    import shutil

    shutil.copytree(town.root / "images", root / "images")
    sha256 = list(town.manifest.sha256)
    size = town.manifest.size.copy()
    for name in names:
        path = root / "images" / f"{name}.png"
        path.write_bytes(path.read_bytes()[:-200])
        row = town.manifest.row_of[name]
        sha256[row] = hashlib.sha256(path.read_bytes()).hexdigest()
        size[row] = path.stat().st_size
    return Town(root, replace(town.manifest, sha256=sha256, size=size), town.truth)


def test_a_damaged_image_fails_or_is_listed(mixed: Town, tmp_path: Path, use, capsys):
    town, cache = damage(mixed, tmp_path, "g05", "g07"), Cache(tmp_path / "cache")
    use(make())
    with pytest.raises(ImageError, match=r"image g0[57]"):
        extract(town, tmp_path / "fails")
    for attempt in ("first", "from-the-cache"):
        use(make(damaged="missing"))
        output = extract(town, tmp_path / attempt, cache)
        facts = json.loads((output / "descriptors.json").read_text())
        assert (
            sorted(facts["missing"]["images"]) == ["g05", "g07"]
            and "g05" in facts["missing"]["images"]["g05"]
        )
        assert facts["without_features"]["images"] == []
        store = open_shards(output)
        zero = [name for name, row in zip(store.ids, store.array(), strict=True) if not row.any()]
        assert sorted(zero) == ["g05", "g07"]
        assert "2 images are missing: they rank last" in capsys.readouterr().err
    everything = damage(mixed, tmp_path / "all", *mixed.manifest.image_id)
    use(make(damaged="missing"))
    with pytest.raises(CairnError, match="none of the 30 images of a shard can be decoded"):
        extract(everything, tmp_path / "nothing")


def test_a_training_image_that_is_damaged_is_listed_apart(mixed: Town, tmp_path: Path, use, capsys):
    use(make(damaged="missing"))
    town = damage(mixed, tmp_path, "g05")
    training = replace(town.manifest, train=town.manifest.gallery)
    (tmp_path / "out").mkdir()
    (tmp_path / "vocabulary").mkdir()
    (tmp_path / "vocabulary" / "vocabulary.json").write_text("{}")
    extract_training_descriptors(
        training, town.root, tmp_path / "vocabulary", "thumbnail", {}, tmp_path / "out",
        wanted=True, cache=None, code="c", features_code="f",
    )  # fmt: skip
    facts = json.loads((tmp_path / "out" / "training_descriptors.json").read_text())
    assert list(facts["missing"]) == ["g05"] and facts["without_features"] == []
    assert "1 training images are missing: nothing is learned from them" in capsys.readouterr().err


def test_nothing_is_learned_where_a_training_image_cannot_be_decoded(
    mixed: Town, tmp_path: Path, monkeypatch
):
    class Learning(Encoder):
        learns = True

        def learn(self, training: Any, count: int) -> dict:
            assert count == sum(1 for _ in training())
            raise AssertionError("not reached")

    plain = make(damaged="missing")
    learning = Learning("thumbnail", plain.parameters, plain.weights, lambda *_: Thumbnail(), (), False)
    monkeypatch.setattr("cairn.systems.vocabulary.load_encoder", lambda *_: learning)
    monkeypatch.setattr("cairn.systems.vocabulary.load_encoder_module", lambda *_: None)
    town = damage(mixed, tmp_path, "g05")
    training = replace(town.manifest, train=town.manifest.gallery)
    (tmp_path / "out").mkdir()
    with pytest.raises(
        ImageError, match=r"image g05: .*; `damaged: missing` does not hold for what an encoder"
    ):
        learn_vocabulary(
            training, town.root, "thumbnail", {}, tmp_path / "out", cache=None, features_code="f"
        )


def test_a_file_that_is_gone_or_another_is_no_damaged_image(mixed: Town, tmp_path: Path, use):
    town, cache = damage(mixed, tmp_path), Cache(tmp_path / "cache")
    path = tmp_path / "images" / "g05.png"
    content = path.read_bytes()
    use(make(damaged="missing"))
    for attempt, other in enumerate((content[:-200], None)):
        path.unlink() if other is None else path.write_bytes(other)
        with pytest.raises(ImageError, match="image g05: "):
            extract(town, tmp_path / f"fails{attempt}", cache)
    path.write_bytes(content)
    assert "missing" not in json.loads(
        (extract(town, tmp_path / "whole", cache) / "descriptors.json").read_text()
    )


def test_a_shard_whose_batches_were_halved_is_flagged(mixed: Town, tmp_path: Path, use, capsys):
    use(make(room=3))
    output = extract(mixed, tmp_path / "out")
    assert json.loads((output / "descriptors.json").read_text())["shards_with_halved_batches"] == 1
    assert [metadata.get("shard.halved") for metadata in open_shards(output).shard_metadata] == ["true"]
    assert "had batches halved" in capsys.readouterr().err
    use(make())
    assert np.allclose(
        open_shards(extract(mixed, tmp_path / "whole")).array(), open_shards(output).array(), atol=1e-3
    )


def test_a_helper_that_changes_pixels_changes_descriptors_with_a_warm_cache(mixed: Town, tmp_path: Path):
    """The key holds the digest of the code: here the digest of a copy of the tree whose `prepare` was edited."""
    pytest.importorskip("grimp")
    import shutil

    repository = Path(__file__).resolve().parents[2]
    tree = tmp_path / "tree"
    for package in ("cairn", "assets", "pipelines"):
        shutil.copytree(repository / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    helper = tree / "cairn" / "images" / "preprocessing.py"
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 8, 8), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    )
    torch.jit.save(torch.jit.trace(model.eval(), torch.zeros(1, 3, 32, 32)), tmp_path / "model.ts")
    found = []
    for attempt in range(2):
        if attempt == 1:
            changed = re.sub(r"cv2\.cvtColor\((.*), cv2\.COLOR_BGR2RGB\)", r"\1", helper.read_text())
            assert changed != helper.read_text()
            helper.write_text(changed)
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                WARM,
                str(mixed.root),
                str(tmp_path / f"out{attempt}"),
                str(tmp_path / "cache"),
            ],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found.append((done.stdout, contents(tmp_path / f"out{attempt}")))
    assert found[0][0] != found[1][0]
    assert found[0][1]["0000.parquet"] != found[1][1]["0000.parquet"]


WARM = """
import sys
from pathlib import Path
from cairn.cache import Cache
from cairn.images.manifest import build_manifest, list_entries, manifest_of
from cairn.systems.descriptors import extract_descriptors
from cairn.benchmarks.structure import GroundTruth, Query
from pipelines.digests import CodeGraph
import dataclasses

root, output, cache = map(Path, sys.argv[1:])
digest = CodeGraph(Path.cwd()).describe(["assets.descriptors", "cairn.encoders.torchscript"], {})["digest"]
entries = [dataclasses.replace(e, image_id=Path(e.member).stem, gallery=True) for e in list_entries("images", root)]
model = str(cache.with_name("model.ts"))
vocabulary = output.with_name("vocabulary")
vocabulary.mkdir(exist_ok=True)
(vocabulary / "vocabulary.json").write_text("{}")
output.mkdir()
extract_descriptors(
    manifest_of(build_manifest(entries, root)), GroundTruth((Query("q", "g00"),), {}), root, vocabulary,
    "torchscript", {"model": model, "preprocessing": {"resize": "square", "size": 32}}, output,
    cache=Cache(cache), code=digest, features_code="",
)
print(digest)
"""

CHILD = """
import sys, time
from pathlib import Path
import torch
from cairn.cache import Cache
from cairn.systems import descriptors, extraction
from tests.systems.conftest import Town
from tests.systems import test_learned as case

if __name__ == "__main__":
    root, output, cache = map(Path, sys.argv[1:])
    extraction.FEW = 2
    descriptors.assign_shards = case.five_shards
    encoder = case.make()
    slow = case.Thumbnail()
    images = slow.images
    slow.images = lambda pixels: (time.sleep(0.05), images(pixels))[1]
    encoder.loaded["network"] = slow
    descriptors.load_encoder = lambda *_: encoder
    descriptors.encoder_facts = lambda *_: {"overlap": "none"}
    print("on", flush=True)
    case.extract(case.town_of(root), output, Cache(cache))
"""


def five_shards(ids: list[str]) -> list[list[int]]:
    return [list(range(start, len(ids), 5)) for start in range(5)]


def town_of(root: Path) -> Town:
    entries = [
        replace(entry, image_id=Path(entry.member).stem, gallery=True)
        for entry in list_entries("images", root)
    ]
    truth = GroundTruth(
        (Query("q0", "g00", (10.0, 10.0, 90.0, 110.0)), Query("q1", "g04")), {"q0": {"g03": "easy"}}
    )
    return Town(root, manifest_of(build_manifest(entries, root)), truth)


def test_killed_at_random_moments_it_loses_at_most_one_shard(mixed: Town, tmp_path: Path, use, monkeypatch):
    monkeypatch.setattr(step, "assign_shards", five_shards)
    use(make())
    whole = contents(extract(mixed, tmp_path / "whole"))
    assert len([name for name in whole if name[0] == "0"]) == 5
    script, cache = tmp_path / "child.py", tmp_path / "cache"
    script.write_text(CHILD)
    repository, chance = Path(__file__).resolve().parents[2], random.Random(1)
    entries: list[int] = [0]
    for attempt in range(2):
        child = subprocess.Popen(
            [sys.executable, str(script), str(mixed.root), str(tmp_path / f"try{attempt}"), str(cache)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=repository,
            env=os.environ
            | {
                "PYTHONPATH": f"{repository}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "CAIRN_WORKERS": "2",
            },
            start_new_session=True,
        )
        assert child.stdout is not None and child.stdout.readline() == b"on\n"
        deadline = time.monotonic() + 90
        while sum(1 for _ in cache.glob("??/[!.]*")) <= entries[-1] and time.monotonic() < deadline:
            if child.poll() is not None:
                break
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        written = len(list((tmp_path / f"try{attempt}").glob("*.parquet")))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        entries.append(sum(1 for _ in cache.glob("??/[!.]*")))
        # What stood in the output is kept, except at most the shard that was being written.
        assert entries[-1] >= written - 1
    assert 0 < entries[1] < entries[2] or entries[2] == 6
    made: list[int] = []
    original = batching.described_batch
    monkeypatch.setattr(
        batching, "described_batch", lambda batch, views, work: made.append(1) or original(batch, views, work)
    )
    assert contents(extract(mixed, tmp_path / "last", Cache(cache))) == whole
    kept = entries[-1]
    assert (len(made) == 0) == (kept == 6) and len(made) <= 3 * (6 - kept)


def test_the_clock_tells_what_holds_the_work_up():
    assert Clock(0.3, 0.2).note() == ""
    assert Clock(3.0, 1.0).note() == "(decode-bound)" and Clock(1.0, 3.0).note() == "(device-bound)"
