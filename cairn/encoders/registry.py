"""Encoders by name: found in `registry.yaml` and imported singly, so that one never costs another's imports."""

import functools
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cairn.encoders.protocol import Encoder
from cairn.errors import ParameterError
from cairn.validation import close_match, validated

PYTHON = "python:"
"""`python:package.module:factory` names a user's own encoder: `factory(parameters)` returns it."""


@dataclass(frozen=True)
class EncoderFacts:
    """An encoder's entry in the registry. `facts`: weights, licence, pretraining, overlap."""

    name: str
    module: str
    title: str
    summary: str
    facts: Mapping[str, str]


def known_encoders() -> dict[str, EncoderFacts]:
    """Every encoder of the registry by name, in the order of their names."""
    return dict(_registry())


def encoder_facts(name: str) -> EncoderFacts:
    """Facts of one encoder. ParameterError, listing what is allowed, for a name that does not exist.

    Of a user's encoder nothing is known but what its module says in `FACTS`.
    """
    if name.startswith(PYTHON):
        module, _ = _python_parts(name)
        declared = getattr(load_encoder_module(name), "FACTS", {})
        unknown = dict.fromkeys(("weights", "licence", "pretraining", "overlap"), "not declared")
        return EncoderFacts(name, module, name, "A user's own encoder.", unknown | dict(declared))
    known = _registry()
    if name not in known:
        allowed = sorted(known)
        raise ParameterError(
            f"encoder {name!r} does not exist{close_match(name, allowed)}; "
            f"allowed: {', '.join(allowed)}, or python:package.module:factory"
        )
    return known[name]


def load_encoder_module(name: str) -> ModuleType:
    """Import the module of one encoder and no other. ParameterError where it does not exist or fails.

    An encoder module has `Parameters` (a pydantic model), `LEARNING_KEYS` (the keys that what it learns
    depends on), `FEATURE_MODULES` (the modules whose code decides its cached features) and
    `create(parameters)`.
    """
    module = _python_parts(name)[0] if name.startswith(PYTHON) else encoder_facts(name).module
    try:
        return importlib.import_module(module)
    except Exception as error:
        # A user's module may raise anything while it is imported.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ParameterError(f"encoder {name!r}: module {module} cannot be imported ({reason})") from error


def load_encoder(name: str, parameters: Mapping[str, Any]) -> Encoder:
    """The encoder `name` with `parameters` checked. ParameterError names the key and what is allowed."""
    module = load_encoder_module(name)
    checked = check_parameters(name, parameters)
    if not name.startswith(PYTHON):
        return module.create(checked)
    factory = getattr(module, _python_parts(name)[1], None)
    if not callable(factory):
        raise ParameterError(f"encoder {name!r}: {module.__name__} has no function {_python_parts(name)[1]}")
    encoder: Any = factory(checked)
    if missing := [part for part in _PROTOCOL if not hasattr(encoder, part)]:
        raise ParameterError(
            f"encoder {name!r}: its factory returned a {type(encoder).__name__} without "
            f"{', '.join(missing)} (see cairn.encoders.protocol.Encoder)"
        )
    return encoder


def check_parameters(name: str, parameters: Mapping[str, Any]) -> Any:
    """`parameters` as the encoder's `Parameters` model; unchanged for a user's module that declares none."""
    model = getattr(load_encoder_module(name), "Parameters", None)
    return validated(model, parameters, name) if model is not None else dict(parameters)


def learning_keys(name: str) -> tuple[str, ...]:
    """The parameter keys that what an encoder learns from training images depends on; () if it learns nothing."""
    return tuple(getattr(load_encoder_module(name), "LEARNING_KEYS", ()))


def feature_modules(name: str) -> tuple[str, ...]:
    """The modules whose import closure decides an encoder's cached local features; () where it has none."""
    return tuple(getattr(load_encoder_module(name), "FEATURE_MODULES", ()))


_PROTOCOL = ("features", "colour", "in_workers", "learns", "key", "prepare", "learn", "describe")


@functools.cache
def _registry() -> dict[str, EncoderFacts]:
    import yaml

    path = Path(__file__).with_name("registry.yaml")
    entries = yaml.safe_load(path.read_text("utf-8"))
    return {name: EncoderFacts(name=name, **entry) for name, entry in sorted(entries.items())}


def _python_parts(name: str) -> tuple[str, str]:
    module, colon, factory = name.removeprefix(PYTHON).partition(":")
    parts = [*module.split("."), factory]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ParameterError(f"encoder {name!r} does not have the form python:package.module:factory")
    return module, factory
