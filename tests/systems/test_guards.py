"""A user's encoder that misbehaves and a disk that is full end in one line that says where."""

import errno
import importlib
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from cairn.cache import Cache
from cairn.errors import CairnError, ImageError
from cairn.systems import descriptors as descriptors_step
from cairn.systems import ranking as ranking_step
from cairn.systems.descriptors import extract_descriptors
from cairn.systems.disk import full_disk, no_space
from cairn.systems.local import extract_local
from cairn.systems.ranking import search
from cairn.systems.sampling import recomputed_sample
from cairn.systems.vocabulary import learn_vocabulary
from tests.systems.conftest import Town

ENCODERS = """
import numpy as np

class Good:
    features, colour, in_workers, learns = None, True, True, False
    def __init__(self, **changes): vars(self).update(changes)
    def key(self): return {}
    def prepare(self, image): return image
    def learn(self, training, count): return {}
    def describe(self, prepared, learned):
        return np.array([i.mean(axis=(0, 1)) / 255 for i in prepared], np.float32)

def fail(*_): raise RuntimeError("two\\nlines")

class Ragged:
    def __array__(self, *_, **__): raise TypeError("on the accelerator")

RESULTS = {
    "integer": 3, "none": None, "text": ["a"], "flat": np.ones(3), "int_array": np.ones((1, 3), int),
    "long": np.ones((2, 3)), "empty": np.ones((1, 0)), "deep": np.ones((1, 2, 2)), "accelerator": Ragged(),
    "complex": np.ones((1, 3), complex),
}

def returned(which):
    return lambda settings: Good(describe=lambda *_: RESULTS[which])

for _name in RESULTS:
    globals()[_name] = returned(_name)

def good(settings): return Good()
def prepare(settings): return Good(prepare=fail)
def describe(settings): return Good(describe=fail)
def batched(settings): return Good(describe=fail, in_workers=False)
def leaves(settings): return Good(describe=lambda *_: exit(0))
def key(settings): return Good(key=fail)
def odd_key(settings): return Good(key=lambda: {1, 2})
def learn(settings): return Good(learn=fail, learns=True)
def odd_learn(settings): return Good(learn=lambda *_: [1], learns=True)

class Extractor:
    colour, dim, dtype, limit = False, 4, "float32", 5
    def __init__(self, answer): self.answer = answer
    def key(self): return {}
    def __call__(self, image): return self.answer(image)

def features(settings): return Good(features=Extractor(fail))
def odd_features(settings): return Good(features=Extractor(lambda image: [1]))
"""

OWN_FEATURES = """
import numpy as np
from cairn.store.local import LocalFeatures

class Extractor:
    colour, dim, dtype, limit = False, 4, "float32", 5
    def key(self): return {}
    def __call__(self, image):
        one = np.ones(2, np.float32)
        return LocalFeatures(np.ones((2, 2), np.float32), one, one, np.full((2, 4), VALUE, np.float32))

class Encoder:
    features, colour, in_workers, learns = Extractor(), False, True, False
    def key(self): return {}
    def prepare(self, image): raise AssertionError
    def learn(self, training, count): return {}
    def describe(self, prepared, learned): return np.array([p.descriptors.mean(axis=0) for p in prepared])

def create(settings): return Encoder()
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("misbehaving", "own_features"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "misbehaving.py").write_text(ENCODERS)
    return tmp_path


def describe(town: Town, output: Path, encoder: str, cache: Cache | None = None, **codes: str) -> Path:
    vocabulary = output.with_name(output.name + "-vocabulary")
    vocabulary.mkdir(exist_ok=True)
    output.mkdir(exist_ok=True)
    codes = {"code": "c", "features_code": "f"} | codes
    learn_vocabulary(
        town.manifest, town.root, encoder, {}, vocabulary, cache=cache, features_code=codes["features_code"]
    )
    extract_descriptors(
        town.manifest, town.truth, town.root, vocabulary, encoder, {}, output, cache=cache, **codes
    )
    return output


@pytest.mark.parametrize(
    ("factory", "told"),
    [
        ("prepare", r"prepare of image '[gq]\d+' failed \(RuntimeError: two lines\)"),
        ("describe", r"describe of image '[gq]\d+' failed \(RuntimeError: two lines\)"),
        ("batched", r"describe of image '[gq]\d+' and the \d+ after it failed \(RuntimeError: two lines\)"),
        ("leaves", r"describe of image '[gq]\d+' failed \(SystemExit: 0\)"),
        ("key", r"key failed \(RuntimeError: two lines\)"),
        ("odd_key", r"key failed \(TypeError: .*set"),
        ("learn", r"learn failed \(RuntimeError: two lines\)"),
        ("odd_learn", r"learn returned a list that is not numeric arrays by name"),
        ("features", r"local features of image '[gq]\d+' failed \(RuntimeError: two lines\)"),
        (
            "odd_features",
            r"local features of image '[gq]\d+' are a list; a cairn\.store\.local\.LocalFeatures",
        ),
        ("integer", r"returned a int of type int64 and shape \[\]; .*\[1, dim\] \(at image '[gq]\d+'\)"),
        ("none", r"returned a NoneType of type object.*image '[gq]\d+'"),
        ("text", r"returned a list of type <U1.*image '[gq]\d+'"),
        ("flat", r"shape \[3\]; one vector.*image '[gq]\d+'"),
        ("int_array", r"type int64 and shape \[1, 3\].*image '[gq]\d+'"),
        ("complex", r"type complex128 and shape \[1, 3\].*image '[gq]\d+'"),
        ("long", r"shape \[2, 3\].*image '[gq]\d+'"),
        ("empty", r"shape \[1, 0\].*image '[gq]\d+'"),
        ("deep", r"shape \[1, 2, 2\].*image '[gq]\d+'"),
        ("accelerator", r"returned a Ragged \(TypeError: on the accelerator\).*image '[gq]\d+'"),
    ],
)
def test_a_misbehaving_encoder_is_named(project: Path, town: Town, factory: str, told: str):
    with pytest.raises(CairnError, match=f"^encoder python:misbehaving:{factory}: .*{told}") as caught:
        describe(town, project / "out", f"python:misbehaving:{factory}")
    assert "\n" not in str(caught.value)


def test_a_sample_of_a_misbehaving_encoder_too(project: Path, town: Town):
    stored = describe(town, project / "out", "python:misbehaving:good")
    with pytest.raises(CairnError, match=r"python:misbehaving:batched: describe of image"):
        recomputed_sample(
            town.manifest,
            town.truth,
            town.root,
            project / "out-vocabulary",
            "python:misbehaving:batched",
            {},
            stored,
            items=3,
            seed=0,
        )


def test_features_without_a_code_digest_are_never_cached(project: Path, town: Town):
    cache = Cache(project / "cache")
    found = []
    for value in ("1.0", "2.00"):
        (project / "own_features.py").write_text(OWN_FEATURES.replace("VALUE", value))
        sys.modules.pop("own_features", None)
        importlib.invalidate_caches()
        # What the digest of the step's code does when the file changes.
        output = describe(
            town,
            project / value,
            "python:own_features:create",
            cache,
            code=value,
            features_code="",
        )
        found.append(descriptors_step.open_shards(output).array().astype(float)[0].tolist())
    assert found == [[1.0] * 4, [2.0] * 4]


def test_features_with_a_code_digest_are_cached(project: Path, town: Town):
    cache = Cache(project / "cache")
    (project / "own_features.py").write_text(OWN_FEATURES.replace("VALUE", "1.0"))
    describe(town, project / "out", "python:own_features:create", cache)
    assert len(list((project / "cache").glob("??/*"))) > len(town.manifest.rows(gallery=True))


SCALED = """
from cairn.encoders import colour_histogram

class Scaled(colour_histogram.ColourHistogram):  # whose key, taken over, says nothing of its factor
    def describe(self, prepared, learned):
        return self.factor * super().describe(prepared, learned)

def create(parameters):
    scaled = Scaled(colour_histogram.Parameters())
    object.__setattr__(scaled, "factor", parameters["factor"])
    return scaled
"""


def test_a_setting_that_a_users_key_leaves_out_is_not_taken_from_the_cache(project: Path, town: Town):
    cache, encoder = Cache(project / "cache"), "python:scaled:create"
    (project / "scaled.py").write_text(SCALED)
    norms = []
    for factor in (1, 2, 1):
        output = project / f"out{len(norms)}"
        vocabulary = project / f"learned{len(norms)}"
        output.mkdir()
        vocabulary.mkdir()
        parts = (town.manifest, town.truth, town.root, vocabulary, encoder, {"factor": factor}, output)
        learn_vocabulary(
            town.manifest, town.root, encoder, {"factor": factor}, vocabulary, cache=cache, features_code=""
        )
        extract_descriptors(*parts, cache=cache, code="c", features_code="")
        array = descriptors_step.open_shards(output).array().astype(float)
        norms.append(round(float(np.linalg.norm(array[0])), 2))
    assert norms == [1, 2, 1]


def test_a_full_disk_is_told_by_each_step(project: Path, town: Town, monkeypatch: pytest.MonkeyPatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    stored = describe(town, project / "out", "python:misbehaving:good")
    (project / "ranking").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(ranking_step, "write_table", full)
        with pytest.raises(CairnError, match=r"no space left on the disk while writing .*ranking; free some"):
            search(stored, town.manifest, town.truth, {"top": 5}, project / "ranking")
    with monkeypatch.context() as patch:
        patch.setattr(descriptors_step, "write_shard", full)
        with pytest.raises(CairnError, match=r"no space left on the disk while writing .*again"):
            describe(town, project / "again", "python:misbehaving:good")
    with monkeypatch.context() as patch:
        patch.setattr("cairn.systems.local.write_json", full)
        with pytest.raises(CairnError, match=r"no space left on the disk while writing .*local"):
            extract_local(
                project / "ranking",
                town.manifest,
                town.truth,
                town.root,
                "python:misbehaving:good",
                {},
                {"method": "none"},
                output=project / "local",
                cache=None,
                features_code="",
            )


def test_local_features_stop_before_the_disk_is_full(
    project: Path, town: Town, monkeypatch: pytest.MonkeyPatch
):
    (project / "own_features.py").write_text(OWN_FEATURES.replace("VALUE", "1.0"))
    encoder = "python:own_features:create"
    stored = describe(town, project / "out", encoder)
    ranking, local = project / "ranking", project / "local"
    for folder in (ranking, local):
        folder.mkdir()
    search(stored, town.manifest, town.truth, {"top": 20}, ranking)
    left = [10**9] * 3

    def usage(folder):
        assert Path(folder) == local
        return shutil._ntuple_diskusage(10**12, 0, left.pop() if left else 10_000)  # type: ignore[attr-defined]

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(CairnError, match=r"no space left on the disk while writing .*local"):
        extract_local(
            ranking,
            town.manifest,
            town.truth,
            town.root,
            encoder,
            {},
            {"method": "geometry", "shortlist": 10},
            local,
            cache=None,
            features_code="",
        )
    assert not left and list(local.iterdir()) == []


def test_what_counts_as_a_full_disk(tmp_path: Path):
    assert no_space(OSError(errno.EDQUOT, "quota"))
    assert no_space(RuntimeError("write error in index.faiss: No space left on device"))
    assert not no_space(ValueError("No space left on device")) and not no_space(OSError(errno.EIO, "input"))
    with pytest.raises(CairnError, match="no space left"), full_disk(tmp_path):
        try:
            raise OSError(errno.ENOSPC, "full")
        except OSError:
            raise RuntimeError("cannot close the file") from None
    with pytest.raises(PermissionError), full_disk(tmp_path):
        raise PermissionError(errno.EACCES, "denied")
    with pytest.raises(ImageError), full_disk(tmp_path):
        raise ImageError("x")
