"""Encoders are found by name, imported singly, and told apart from what does not exist."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from cairn.encoders import (
    FACTS,
    encoder_code,
    encoder_facts,
    known_encoders,
    load_encoder,
    load_encoder_module,
    user_module_files,
)
from cairn.errors import ParameterError

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
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.split(".")[0] in ("mine", "faulty", "package")]:
        monkeypatch.delitem(sys.modules, name)
    (tmp_path / "mine.py").write_text(USER)
    (tmp_path / "faulty.py").write_text("1 / 0\n")
    (tmp_path / "package" / "inner").mkdir(parents=True)
    for part in ("__init__", "other", "inner/__init__", "inner/model"):
        (tmp_path / "package" / f"{part}.py").write_text(USER if part == "inner/model" else "")
    return tmp_path


@pytest.mark.parametrize("name", known_encoders())
def test_every_encoder_declares_what_the_graph_needs(name: str):
    module = load_encoder_module(name)
    assert issubclass(module.Parameters, BaseModel)
    assert set(module.LEARNING_KEYS) <= set(module.Parameters.model_fields)
    facts = encoder_facts(name)
    assert set(facts) == set(FACTS) and all(isinstance(fact, str) for fact in facts.values())
    encoder = load_encoder(name, {})
    assert encoder.learns == bool(module.LEARNING_KEYS)
    assert (encoder.features is None) == (encoder_code(name).features == ())
    assert encoder_code(name).modules == (module.__name__,)
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
        ("python:mine:broken", {}, "returned a object without features"),
        ("python:mine:create", {"szie": 1}, "did you mean 'size'"),
    ],
)
def test_what_is_wrong_with_a_users_encoder_is_told(project: Path, name: str, parameters: dict, told: str):
    with pytest.raises(ParameterError) as error:
        load_encoder(name, parameters)
    assert told in str(error.value) and "\n" not in str(error.value)
