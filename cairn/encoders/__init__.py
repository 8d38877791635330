"""Encoders: from an image (or a text) to descriptors. Looked up by name and imported singly.

`registry.yaml` names them and states their facts. `python:package.module:factory` names a user's own. An
encoder's module has

- `Parameters`: a pydantic model of its keys in `params.yaml`;
- `LEARNING_KEYS`: those of them that what it learns from training images depends on (none: it learns nothing);
- `FEATURE_MODULES`: modules whose code, with all they import, decides its cached local features;
- `create(parameters)`: the encoder (see `cairn.encoders.protocol`).
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cairn.errors import ParameterError
from cairn.registry import load_module, look_up, read_registry
from cairn.validation import validated

if TYPE_CHECKING:
    from cairn.encoders.protocol import Encoder

REGISTRY = Path(__file__).with_name("registry.yaml")
PYTHON = "python:"
FACTS = ("weights", "licence", "pretraining", "overlap")


@dataclass(frozen=True)
class EncoderCode:
    """What an encoder's results depend on: modules of the project, its registry entry, files of the user's.

    `features` are the modules whose import closure decides the local features, () where there are none.
    `files` are relative to the project.
    """

    modules: tuple[str, ...]
    entry: Mapping[str, Any]
    files: tuple[str, ...]
    features: tuple[str, ...]


def known_encoders() -> tuple[str, ...]:
    """Names of the registry, sorted."""
    return tuple(sorted(read_registry(REGISTRY)))


def encoder_facts(name: str) -> dict[str, str]:
    """Where an encoder's weights come from, their licence, their pretraining data, known overlaps with benchmarks.

    For a user's own encoder: what its module says in a mapping `FACTS`, else "not declared".
    """
    if name.startswith(PYTHON):
        declared = getattr(load_encoder_module(name), "FACTS", {})
        return {fact: str(declared.get(fact, "not declared")) for fact in FACTS}
    return dict(_entry(name)["facts"])


def load_encoder_module(name: str) -> ModuleType:
    """The module of one encoder, imported alone. ParameterError where there is none, or it fails."""
    if not name.startswith(PYTHON):
        _entry(name)
        return load_module(REGISTRY, name, "encoder")
    import importlib

    module, _ = _python_parts(name)
    if user_module_files(name) and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ParameterError(f"encoder = {name!r}: cannot import {module} ({reason})") from error


def load_encoder(name: str, parameters: Mapping[str, Any]) -> "Encoder":
    """The encoder `name` with these parameters, checked. ParameterError names the key and what is allowed."""
    module = load_encoder_module(name)
    model = getattr(module, "Parameters", None)
    checked = validated(model, parameters, name) if model is not None else dict(parameters)
    if not name.startswith(PYTHON):
        return module.create(checked)
    factory = getattr(module, _python_parts(name)[1], None)
    if not callable(factory):
        raise ParameterError(
            f"encoder = {name!r}: {module.__name__} has no function {_python_parts(name)[1]}"
        )
    encoder: Any = factory(checked)
    if missing := [part for part in _PROTOCOL if not hasattr(encoder, part)]:
        raise ParameterError(
            f"encoder = {name!r}: its factory returned a {type(encoder).__name__} without "
            f"{', '.join(missing)} (see cairn.encoders.protocol)"
        )
    return encoder


def encoder_code(name: str) -> EncoderCode:
    """What belongs to an encoder's code, for the digest of the steps that use it."""
    module = load_encoder_module(name)
    features = tuple(getattr(module, "FEATURE_MODULES", ()))
    if name.startswith(PYTHON):
        return EncoderCode((), {name: {"module": module.__name__}}, tuple(user_module_files(name)), features)
    entry = _entry(name)
    return EncoderCode((entry["module"],), {name: entry}, (), features)


def user_module_files(name: str) -> list[str]:
    """Files of a user's encoder that lie in the project (the working directory), relative to it; [] for others.

    A module inside a package stands for all modules of its outermost package.
    """
    if not name.startswith(PYTHON):
        return []
    top, *inner = _python_parts(name)[0].split(".")
    package = Path(top)
    if not inner and Path(f"{top}.py").is_file():
        return [f"{top}.py"]
    if not package.is_dir():
        return []
    return sorted(path.as_posix() for path in package.rglob("*.py"))


_PROTOCOL = ("features", "colour", "in_workers", "learns", "key", "prepare", "learn", "describe")


def _entry(name: str) -> dict[str, Any]:
    try:
        return look_up(REGISTRY, name, "encoder")
    except ParameterError as error:
        raise ParameterError(f"{error}, python:package.module:factory") from None


def _python_parts(name: str) -> tuple[str, str]:
    module, colon, factory = name.removeprefix(PYTHON).partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), factory)):
        raise ParameterError(f"encoder = {name!r}: the form python:package.module:factory is expected")
    return module, factory
