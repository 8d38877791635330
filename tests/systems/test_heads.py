"""The steps of heads: the same seed gives the same file, a killed training goes on, mistakes are named."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.benchmarks.structure import GroundTruth, Query
from cairn.cache import Cache
from cairn.contamination.training_sets import training_set, write_training_set
from cairn.errors import ArtifactError, InputError
from cairn.files import write_json
from cairn.images.manifest import Manifest
from cairn.results.scoring import score_heads
from cairn.results.table import read_results
from cairn.store.descriptors import MISSING, open_shard, open_shards, write_shard
from cairn.systems.heads import describe_with_heads, rank_with_heads, read_heads, train_heads

pytest.importorskip("torch", reason="torch is not installed")

DIM, CLASSES, PER_CLASS, GALLERY = 12, 6, 5, 30
PARAMETERS: dict[str, Any] = {
    "seeds": [0, 3],
    "layers": {"hidden": 6, "output": 8},
    "training": {"epochs": 3, "batch": 8, "classes_per_step": 4, "centres": 1, "dropout": 0.1},
}
ABOUT = {"encoder": "drawn", "dtype": "float16"}


def manifest_of(groups: dict[str, list[str]], labels: dict[str, str]) -> Manifest:
    ids = [image for members in groups.values() for image in members]
    n = len(ids)
    flags = {name: np.array([image in members for image in ids]) for name, members in groups.items()}
    none, ones = np.zeros(n, bool), np.ones(n, np.int64)
    return Manifest(
        ids, ["a"] * n, ids, ones, ones, ones.astype(np.int32), ones.astype(np.int32), ["0" * 64] * n,
        flags.get("gallery", none), flags.get("query", none), flags.get("train", none), [labels.get(i) for i in ids],
    )  # fmt: skip


class World:
    """Descriptors of classes as noisy points, their training manifest, and a tiny benchmark."""

    def __init__(self, root: Path) -> None:
        generator = np.random.default_rng(0)
        points = generator.normal(size=(CLASSES, DIM))
        labels = np.repeat(np.arange(CLASSES), PER_CLASS)
        values = points[labels] + 0.5 * generator.normal(size=(len(labels), DIM))
        self.ids = [f"t{number:02d}" for number in range(len(labels))]
        self.training = manifest_of(
            {"train": self.ids}, dict(zip(self.ids, map(str, labels + 100), strict=True))
        )
        self.descriptors = root / "training-descriptors"
        self.shard(self.descriptors / "0000.parquet", self.ids[:17], values[:17])
        self.shard(self.descriptors / "0001.parquet", self.ids[17:], values[17:])
        gallery = [f"g{number:02d}" for number in range(GALLERY)]
        shown = np.arange(GALLERY) % CLASSES
        seen = points[shown] + 0.8 * generator.normal(size=(GALLERY, DIM))
        seen[7] = 0
        self.benchmark = {name: root / name for name in ("descriptors", "manifest", "ground_truth")}
        self.shard(self.benchmark["descriptors"] / "0000.parquet", gallery, seen)
        asked = points[:3] + 0.8 * generator.normal(size=(3, DIM))
        self.shard(self.benchmark["descriptors"] / "queries.parquet", ["q0", "q1", "q2"], asked, "query_id")
        self.manifest = manifest_of({"gallery": gallery, "query": ["q0", "q1", "q2"]}, {})
        relevance = {
            f"q{number}": {gallery[row]: "easy" for row in np.flatnonzero(shown == number)}
            for number in range(3)
        }
        self.truth = GroundTruth(tuple(Query(name, name) for name in ("q0", "q1", "q2")), relevance)
        self.contamination = root / "contamination"
        self.contamination.mkdir()
        facts = {"audited": False, "note": "no landmark list for this benchmark: `decon` cannot be made"}
        write_json(self.contamination / "contamination.json", facts)
        from cairn.contamination.benchmark import classes_of

        classes = classes_of(self.training, "drawn")
        assert classes is not None
        write_training_set(self.contamination / "standard.json", training_set(classes, "standard", 3))

    @staticmethod
    def shard(path: Path, ids: list[str], values: np.ndarray, id_column: str = "image_id") -> None:
        path.parent.mkdir(exist_ok=True)
        norms = np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-9)
        write_shard(path, ids, (values / norms).astype(np.float16), ABOUT, id_column=id_column)

    def train(
        self, output: Path, cache: Cache | None = None, protocol: str = "standard", **change: Any
    ) -> Path:
        output.mkdir(parents=True)
        train_heads(
            self.training, self.contamination, self.descriptors, PARAMETERS | change, protocol, output,
            selection=self.benchmark, cache=cache, code="c",
        )  # fmt: skip
        return output


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("CAIRN_WORKERS", "1")
    return World(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_one_file_per_seed_and_the_same_bytes_again(world: World, tmp_path: Path):
    first = contents(world.train(tmp_path / "first"))
    assert set(first) == {"0.npz", "3.npz", "heads.json"} and first["0.npz"] != first["3.npz"]
    assert contents(world.train(tmp_path / "second")) == first
    facts = json.loads(first["heads.json"])
    assert facts["classes"] == CLASSES and facts["images"] == len(world.ids)
    assert facts["shape"]["input"] == DIM and facts["seeds"]["3"]["epoch"] == 3
    # One more seed leaves the others as they are.
    more = contents(world.train(tmp_path / "more", seeds=[0, 1, 3]))
    assert more["0.npz"] == first["0.npz"] and more["3.npz"] == first["3.npz"]


def test_a_killed_training_goes_on_to_the_same_weights(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from cairn.heads import training

    whole = contents(world.train(tmp_path / "whole"))
    cache, epochs = Cache(tmp_path / "cache"), []
    original = training._train_epoch

    class Killed(BaseException):
        pass

    def dying(rows, parameters, seed, epoch, *rest):
        if len(epochs) == 4:  # in the second seed's second epoch
            raise Killed
        epochs.append((seed, epoch))
        return original(rows, parameters, seed, epoch, *rest)

    monkeypatch.setattr(training, "_train_epoch", dying)
    with pytest.raises(Killed):
        world.train(tmp_path / "killed", cache)
    assert len(list(cache.folder.glob("*/*.checkpoint"))) == 1
    gone_on = []

    def counted(rows, parameters, seed, epoch, *rest):
        gone_on.append((seed, epoch))
        return original(rows, parameters, seed, epoch, *rest)

    monkeypatch.setattr(training, "_train_epoch", counted)
    assert contents(world.train(tmp_path / "resumed", cache)) == whole
    assert gone_on == [(3, 1), (3, 2)], "the finished head and the finished epoch are not trained again"
    assert not list(cache.folder.glob("*/*.checkpoint"))
    assert contents(world.train(tmp_path / "cached", cache)) == whole and len(gone_on) == 2


def test_epochs_are_selected_on_the_number_that_scoring_gives(world: World, tmp_path: Path):
    from cairn.benchmarks.structure import write_ground_truth

    write_ground_truth(world.benchmark["ground_truth"], world.truth)
    write_manifest_of(world.manifest, world.benchmark["manifest"] / "manifest.parquet")
    selection = {"protocol": "map", "slice": "all"}
    heads = world.train(tmp_path / "selected", selection=selection)
    facts = read_heads(heads)
    for seed in ("0", "3"):
        values = facts["seeds"][seed]["values"]
        assert facts["seeds"][seed]["epoch"] == 1 + values.index(max(values))
    scores = _score(world, heads, tmp_path)
    found = {
        row.name.seed: row.value for row in scores if row.name.slice == "all" and row.name.metric == "map"
    }
    expected = {seed: max(facts["seeds"][seed]["values"]) for seed in ("0", "3")}
    assert found == pytest.approx(expected, abs=1e-6)
    with pytest.raises(InputError, match=r"map gives no hard/map; there are: all/map"):
        world.train(tmp_path / "hard", selection=selection | {"slice": "hard"})


def test_epochs_are_selected_without_what_is_missing(world: World, tmp_path: Path):
    """A pooled number, to which pairs without descriptors add nothing, as it is scored."""
    from cairn.benchmarks.structure import write_ground_truth

    write_ground_truth(world.benchmark["ground_truth"], world.truth)
    write_manifest_of(world.manifest, world.benchmark["manifest"] / "manifest.parquet")
    folder = world.benchmark["descriptors"]
    for name, id_column, gone in (("0000", "image_id", ["g07", "g08"]), ("queries", "query_id", ["q2"])):
        store = open_shard(folder / f"{name}.parquet", id_column)
        rows = store.array()
        rows[store.rows_of(gone)] = 0
        about = ABOUT | {MISSING: json.dumps(dict.fromkeys(gone, "truncated"))}
        write_shard(folder / f"{name}.parquet", store.ids, rows, about, id_column=id_column)
    heads = world.train(
        tmp_path / "selected", selection={"protocol": "micro-ap", "slice": "all", "metric": "micro-ap"}
    )
    facts = read_heads(heads)
    found = {
        row.name.seed: row.value
        for row in _score(world, heads, tmp_path, "micro-ap", top=GALLERY)
        if (row.name.slice, row.name.metric) == ("all", "micro-ap")
    }
    expected = {seed: max(facts["seeds"][seed]["values"]) for seed in ("0", "3")}
    assert found == pytest.approx(expected, abs=1e-6)


def test_descriptors_rankings_and_scores_of_each_seed(world: World, tmp_path: Path):
    heads = world.train(tmp_path / "heads")
    rows = _score(world, heads, tmp_path)
    assert {(row.name.head, row.name.seed) for row in rows} == {("standard", "0"), ("standard", "3")}
    store = open_shards(tmp_path / "described" / "0")
    assert store.dim == 8 and store.metadata["head"] == "standard" and store.metadata["seed"] == "0"
    norms = dict(zip(store.ids, np.linalg.norm(store.array().astype(np.float32), axis=1), strict=True))
    assert norms.pop("g07") == 0, "an image without features stays as similar to every query"
    assert np.allclose(list(norms.values()), 1, atol=2e-3)


def test_what_is_missing_stays_known_behind_a_head(world: World, tmp_path: Path):
    heads = world.train(tmp_path / "heads")
    folder = world.benchmark["descriptors"]
    store = open_shards(folder)
    about = ABOUT | {MISSING: json.dumps({"g07": "truncated"})}
    write_shard(folder / "0000.parquet", store.ids, store.array(), about)
    _score(world, heads, tmp_path)
    assert open_shards(tmp_path / "described" / "0").missing == {"g07": "truncated"}


def mark_missing(world: World, names: Sequence[str]) -> None:
    """These training images could not be decoded."""
    for path in sorted(world.descriptors.glob("*.parquet")):
        store = open_shard(path)
        own = [name for name in names if name in store.ids]
        rows = store.array()
        rows[store.rows_of(own)] = 0
        write_shard(path, store.ids, rows, ABOUT | {MISSING: json.dumps(dict.fromkeys(own, "truncated"))})


def without(world: World, names: Sequence[str]) -> None:
    """The training manifest does not have these images at all."""
    kept = np.array([name not in names for name in world.training.image_id])
    world.training = replace(world.training, train=world.training.train & kept)


def test_missing_images_are_not_trained_on(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # One of the first class, and three of the third, of which fewer are left than the set's three.
    gone = ["t02", "t11", "t12", "t14"]
    mark_missing(world, gone)
    found = contents(world.train(tmp_path / "missing"))
    assert (
        "4 training images could not be decoded and are not trained on, nor are 2 of 1"
        in capsys.readouterr().err
    )
    facts = json.loads(found["heads.json"])
    left_out = {"images": 4, "small_classes": 1, "images_of_small_classes": 2}
    assert facts["missing"] == left_out
    assert (facts["images"], facts["classes"]) == (len(world.ids) - 6, CLASSES - 1)
    without(world, [*gone, "t10", "t13"])
    alone = contents(world.train(tmp_path / "without"))
    assert "missing" not in json.loads(alone["heads.json"])
    assert [found[name] == alone[name] for name in ("0.npz", "3.npz")] == [True, True]


def test_too_few_described_images_are_told(world: World, tmp_path: Path):
    mark_missing(world, [name for name in world.ids if int(name[1:]) % 5 > 1])
    with pytest.raises(InputError, match="18 images could not be decoded, and no class has 3 others"):
        world.train(tmp_path / "none")
    mark_missing(world, world.ids[5:])
    with pytest.raises(InputError, match="1 training classes; a head needs at least two"):
        world.train(tmp_path / "one")


def test_mistakes_are_named(world: World, tmp_path: Path):
    with pytest.raises(InputError, match=r"no training set 'decon': no landmark list"):
        world.train(tmp_path / "decon", protocol="decon")
    heads = world.train(tmp_path / "heads")
    described = tmp_path / "wrong"
    (tmp_path / "narrow").mkdir()
    for name in ("0000", "queries"):
        kind = "query_id" if name == "queries" else "image_id"
        world.shard(tmp_path / "narrow" / f"{name}.parquet", ["a", "b"], np.eye(2, 5), kind)
    described.mkdir()
    with pytest.raises(ArtifactError, match="5 dimensions, the head takes 12"):
        describe_with_heads(tmp_path / "narrow", heads, described)
    (heads / "heads.json").write_text("{", "utf-8")
    with pytest.raises(ArtifactError, match=r"heads\.json: cannot be read"):
        describe_with_heads(world.benchmark["descriptors"], heads, described)
    world.shard(world.descriptors / "0001.parquet", world.ids[17:-1], np.ones((len(world.ids) - 18, DIM)))
    with pytest.raises(InputError, match=f"1 training images have no descriptor, such as {world.ids[-1]}"):
        world.train(tmp_path / "missing")


def write_manifest_of(manifest: Manifest, path: Path) -> None:
    import pyarrow as pa

    from cairn.images.manifest import manifest_schema, write_manifest

    schema = manifest_schema()
    columns = {name: pa.array(getattr(manifest, name)).cast(schema.field(name).type) for name in schema.names}
    path.parent.mkdir(exist_ok=True)
    write_manifest(pa.table(columns).cast(schema), path)


def _score(world: World, heads: Path, tmp_path: Path, metric: str = "map", top: int = 10) -> list:
    from cairn.benchmarks.structure import write_ground_truth

    described, ranked, scores = (tmp_path / name for name in ("described", "ranked", "scores"))
    for folder in (described, ranked, scores):
        folder.mkdir()
    describe_with_heads(world.benchmark["descriptors"], heads, described)
    rank_with_heads(described, world.manifest, world.truth, {"top": top}, ranked)
    if not world.benchmark["manifest"].exists():
        write_manifest_of(world.manifest, world.benchmark["manifest"] / "manifest.parquet")
    if not world.benchmark["ground_truth"].exists():
        write_ground_truth(world.benchmark["ground_truth"], world.truth)
    (world.benchmark["ground_truth"] / "benchmark.json").write_text("{}", "utf-8")
    score_heads(
        "drawn", "points", "standard", ranking=ranked, ground_truth=world.benchmark["ground_truth"],
        manifest=world.benchmark["manifest"], metric=metric, output=scores,
    )  # fmt: skip
    return read_results(scores / "scores.parquet")
