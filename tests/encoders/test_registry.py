"""Encoders are found by name, imported singly, and told apart from what does not exist."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from cairn.encoders import (
    FACTS,
    checked_parameters,
    encoder_code,
    encoder_facts,
    known_encoders,
    learning_keys,
    load_encoder,
    load_encoder_module,
    parameters_model,
    user_module_files,
)
from cairn.errors import ParameterError

OWN = ("mine", "faulty", "package", "bare", "sibling", "quits")
USER = """
import numpy as np
from pydantic import BaseModel, ConfigDict

FACTS = {"licence": "MIT"}

class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")
    size: int = 4

class Mean:
    features, colour, in_workers, learns = None, True, False, False
    def __init__(self, parameters): self.parameters = parameters
    def key(self): return {"mean": self.parameters.size}
    def prepare(self, image): return image.mean(axis=(0, 1))
    def learn(self, training, count): return {}
    def describe(self, prepared, learned): return np.array(prepared, np.float32)

def create(parameters): return Mean(parameters)
def broken(parameters): return object()
def raising(parameters): raise KeyError("no weights")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] in OWN]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine.py").write_text(USER)
    (tmp_path / "faulty.py").write_text("1 / 0\n")
    (tmp_path / "quits.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for part in ("__init__", "other", "inner/__init__", "inner/model"):
        (tmp_path / "package" / f"{part}.py").write_text(USER if part == "inner/model" else "")
    return tmp_path


CHECKPOINT = {"model": "./checkpoint"}
NEEDED = {
    **dict.fromkeys(("clip", "dinov2", "dinov3", "siglip", "siglip2", "qwen3-vl-embedding"), CHECKPOINT),
    **dict.fromkeys(("timm", "openclip"), CHECKPOINT | {"architecture": "vit_tiny_patch16_224"}),
    "precomputed": {"features": "mine.npz"},
    **dict.fromkeys(("torchscript", "onnx"), CHECKPOINT | {"preprocessing": {"size": 64}}),
}
"""Keys without a default; encoders that are not listed have none."""


@pytest.mark.parametrize("name", known_encoders())
def test_every_encoder_declares_what_the_graph_needs(name: str):
    module = load_encoder_module(name)
    assert issubclass(module.Parameters, BaseModel)
    assert set(module.LEARNING_KEYS) <= set(module.Parameters.model_fields)
    facts = encoder_facts(name)
    assert set(facts) == set(FACTS) and all(isinstance(fact, str) for fact in facts.values())
    encoder = load_encoder(name, NEEDED.get(name, {}))
    assert encoder.learns == bool(module.LEARNING_KEYS)
    assert (encoder.features is None) == (encoder_code(name).features == ())
    assert encoder_code(name).modules[0] == module.__name__
    assert list(encoder_code(name).entry) == [name]


@pytest.mark.parametrize("name", known_encoders())
def test_no_encoder_imports_another(name: str):
    others = [load_encoder_module(other).__name__ for other in known_encoders() if other != name]
    code = (
        "import sys; from cairn.encoders import load_encoder_module; "
        f"load_encoder_module({name!r}); print(*(m for m in {others!r} if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_an_unknown_name_lists_what_is_allowed():
    with pytest.raises(ParameterError) as error:
        load_encoder_module("rootsift-vald")
    for part in ("'rootsift-vald'", "did you mean 'rootsift-vlad'", "colour-histogram", "python:package"):
        assert part in str(error.value)


def test_wrong_parameters_name_the_key():
    with pytest.raises(ParameterError, match=r"rootsift-vlad\.vocabulary\.wrods.*did you mean 'words'"):
        load_encoder("rootsift-vlad", {"vocabulary": {"wrods": 3}})
    with pytest.raises(ParameterError, match=r"rootsift-vlad\.vlad\.power = 2"):
        load_encoder("rootsift-vlad", {"vlad": {"power": 2}})


def test_a_users_encoder_is_loaded_from_the_project(project: Path):
    encoder = load_encoder("python:mine:create", {"size": 3})
    assert encoder.key() == {"mean": 3}
    assert encoder.describe([np.ones(3)], {}).tolist() == [[1, 1, 1]]
    assert encoder_facts("python:mine:create") == {
        "weights": "not declared",
        "licence": "MIT",
        "pretraining": "not declared",
        "overlap": "not declared",
    }
    assert encoder_code("python:mine:create").files == ("mine.py",)
    assert encoder_code("python:mine:create").modules == ()
    assert load_encoder("python:package.inner.model:create", {}).key() == {"mean": 4}
    assert user_module_files("python:package.inner.model:create") == [
        "package/__init__.py",
        "package/inner/__init__.py",
        "package/inner/model.py",
        "package/other.py",
    ]
    assert user_module_files("rootsift-vlad") == []


@pytest.mark.parametrize(
    ("name", "parameters", "told"),
    [
        ("python:mine", {}, "python:package.module:factory is expected"),
        ("python:../x:y", {}, "python:package.module:factory is expected"),
        ("python:absent_module:create", {}, "cannot import absent_module"),
        ("python:faulty:create", {}, "ZeroDivisionError"),
        ("python:mine:absent", {}, "mine has no function absent"),
        ("python:mine:creat", {}, "mine has no function creat (did you mean 'create'?)"),
        ("python:mine:broken", {}, "returned a object without features"),
        ("python:mine:create", {"szie": 1}, "did you mean 'size'"),
        ("python:mine:raising", {}, "raising failed (KeyError: 'no weights')"),
        ("python:quits:create", {}, "cannot import quits (SystemExit: 3)"),
    ],
)
def test_what_is_wrong_with_a_users_encoder_is_told(project: Path, name: str, parameters: dict, told: str):
    with pytest.raises(ParameterError) as error:
        load_encoder(name, parameters)
    assert told in str(error.value) and "\n" not in str(error.value)


BARE = USER.replace("Parameters(BaseModel)", "Unused(BaseModel)").replace(".parameters.size", ".parameters")


def test_a_module_without_a_model_takes_any_key(project: Path):
    (project / "bare.py").write_text(BARE)
    module = load_encoder_module("python:bare:create")
    assert parameters_model(module) is None
    values = checked_parameters("python:bare:create", module, {"b": 1, "a": [2]}, "systems.x")
    assert values == {"b": 1, "a": [2]} and learning_keys(module, values) == ("b", "a")
    assert load_encoder("python:bare:create", values).key() == {"mean": values}
    with pytest.raises(ParameterError, match=r"systems\.x: parameters of .* plain JSON"):
        checked_parameters("python:bare:create", module, {"day": {1, 2}}, "systems.x")
    with pytest.raises(ParameterError, match=r"systems\.x = 3: a mapping is expected"):
        checked_parameters("python:bare:create", module, 3, "systems.x")


def test_learning_keys_are_all_unless_the_module_says(project: Path):
    module = load_encoder_module("python:mine:create")
    values = checked_parameters("python:mine:create", module, {}, "systems.x")
    assert values == {"size": 4} and learning_keys(module, values) == ("size",)
    module.LEARNING_KEYS = ()  # type: ignore[attr-defined]
    assert learning_keys(module, values) == ()
    module.LEARNING_KEYS = ("sise",)  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match=r"names 'sise'.*did you mean 'size'"):
        learning_keys(module, values)
    module.LEARNING_KEYS = "size"  # type: ignore[attr-defined]
    with pytest.raises(ParameterError, match=r"mine\.LEARNING_KEYS is 'size'; a tuple"):
        learning_keys(module, values)
    with pytest.raises(ParameterError, match=r"systems\.x\.szie.*did you mean 'size'"):
        checked_parameters("python:mine:create", module, {"szie": 4}, "systems.x")


@pytest.mark.parametrize(
    ("line", "call", "told"),
    [
        (
            "Parameters = 3",
            lambda: load_encoder("python:bare:create", {}),
            r"bare\.Parameters is 3; a pydantic",
        ),
        (
            "FEATURE_MODULES = 'mine'",
            lambda: encoder_code("python:bare:create"),
            r"FEATURE_MODULES is 'mine'",
        ),
        ("FACTS = 'MIT'", lambda: encoder_facts("python:bare:create"), r"FACTS is 'MIT'; a mapping"),
    ],
)
def test_wrong_declarations_of_a_users_module(project: Path, line: str, call, told: str):
    (project / "bare.py").write_text(f"{BARE}\n{line}\n")
    with pytest.raises(ParameterError, match=told):
        call()


def test_files_and_modules_that_a_users_encoder_imports(project: Path, tmp_path_factory, monkeypatch):
    (project / "mine.py").write_text(
        f"import sibling, cairn.cache\n{USER}\ndef late():\n    from cairn.images import decode\n"
        "    from cairn.errors import CairnError\n    import package.other, assets.descriptors, pipelines.cli\n"
    )
    (project / "sibling.py").write_text("import mine\nfrom cairn.store.local import LocalFeatures\n")
    (project / "package" / "other.py").write_text("from . import inner\nimport aside\n")
    (project / "package" / "broken.py").write_text("def\n")
    (project / "aside").mkdir()
    (project / "aside" / "deep.py").write_text("")
    (project / "aside" / "site-packages").mkdir()
    (project / "aside" / "site-packages" / "installed.py").write_text("")
    for ours in ("cairn", "assets", "pipelines"):
        (project / ours).mkdir()
        (project / ours / "x.py").write_text("import unused\n")
    (project / "unused.py").write_text("")
    files = [
        "aside/deep.py",
        "mine.py",
        "package/__init__.py",
        "package/broken.py",
        "package/inner/__init__.py",
        "package/inner/model.py",
        "package/other.py",
        "sibling.py",
    ]
    modules = ("cairn.cache", "cairn.errors", "cairn.images", "cairn.images.decode", "cairn.store.local")
    assert user_module_files("python:mine:create") == files
    assert user_module_files("python:mine:create", project) == files
    # Seen from elsewhere, it is the project that counts.
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert user_module_files("python:mine:create") == []
    assert user_module_files("python:mine:create", project) == files
    code = encoder_code("python:mine:create", project)
    assert code.files == tuple(files) and code.modules == modules


def test_features_that_own_files_decide_are_not_keyed_by_others_code(project: Path):
    (project / "bare.py").write_text(f"{BARE}\nFEATURE_MODULES = ('cairn.encoders.rootsift',)\n")
    assert encoder_code("python:bare:create").features == ("cairn.encoders.rootsift",)
    (project / "sibling.py").write_text(f"{BARE}\nFEATURE_MODULES = ('cairn.encoders.rootsift', 'sibling')\n")
    assert encoder_code("python:sibling:create").features == ()
