"""Encoders: from an image (or a text) to descriptors. Looked up by name and imported singly.

`registry.yaml` names them and states their facts. `python:package.module:factory` names a user's own. An
encoder's module has

- `Parameters`: a pydantic model of its keys in `params.yaml`; a user's may lack it: then any key goes;
- `LEARNING_KEYS`: those of them that what it learns from training images depends on (`()`: it learns nothing);
  a user's may lack it: then all of them;
- `FEATURE_MODULES`: modules whose code, with all they import, decides its cached local features; without it
  they are not cached;
- `external(settings, benchmark)`, where its descriptors are files that the user brings: name → path of each;
- `create(parameters)`, a user's under any name: the encoder (see `cairn.encoders.protocol`).

In the registry, `writer` names the module that writes an encoder's descriptors in place of the usual extraction
(`write_descriptors` and `write_training_descriptors`, see `cairn.systems.precomputed`), and `sparse` says that they
are sparse.
"""

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cairn.encoders.user_files import user_code
from cairn.errors import ParameterError
from cairn.registry import load_module, look_up, read_registry
from cairn.validation import hint, shown, validated

if TYPE_CHECKING:
    from pydantic import BaseModel

    from cairn.encoders.protocol import Encoder

REGISTRY = Path(__file__).with_name("registry.yaml")
PYTHON = "python:"
FACTS = ("weights", "licence", "pretraining", "overlap")


@dataclass(frozen=True)
class EncoderCode:
    """What an encoder's results depend on: modules of the project, its registry entry, files of the user's.

    For a user's own, `modules` are those of `cairn` that its files import. `features` are the modules whose
    import closure decides the local features, () where there are none or where the user's own files decide.
    `files` are relative to the project.
    """

    modules: tuple[str, ...]
    entry: Mapping[str, Any]
    files: tuple[str, ...]
    features: tuple[str, ...]


def known_encoders() -> tuple[str, ...]:
    """Names of the registry, sorted."""
    return tuple(sorted(read_registry(REGISTRY)))


def encoder_facts(name: str, root: Path = Path()) -> dict[str, str]:
    """Where an encoder's weights come from, their licence, their pretraining data, known overlaps with benchmarks.

    For a user's own encoder: what its module says in a mapping `FACTS`, else "not declared".
    """
    if name.startswith(PYTHON):
        declared = getattr(load_encoder_module(name, root), "FACTS", {})
        if not isinstance(declared, Mapping):
            raise ParameterError(f"encoder = {name!r}: FACTS is {shown(declared)}; a mapping is expected")
        return {fact: str(declared.get(fact, "not declared")) for fact in FACTS}
    return dict(_entry(name)["facts"])


def load_encoder_module(name: str, root: Path = Path()) -> ModuleType:
    """The module of one encoder, imported alone. ParameterError where there is none, or it fails.

    A user's own is looked for in the project at `root` first.
    """
    if not name.startswith(PYTHON):
        _entry(name)
        return load_module(REGISTRY, name, "encoder")
    module, _ = _python_parts(name)
    place = str(Path(root).resolve())
    if user_module_files(name, root) and place not in sys.path:
        sys.path.insert(0, place)
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ParameterError(f"encoder = {name!r}: cannot import {module} ({reason(error)})") from error


def parameters_model(module: ModuleType) -> "type[BaseModel] | None":
    """The pydantic model of an encoder's keys, None where its module has none. ParameterError for anything else."""
    from pydantic import BaseModel

    model = getattr(module, "Parameters", None)
    if model is None or (isinstance(model, type) and issubclass(model, BaseModel)):
        return model
    raise ParameterError(
        f"{module.__name__}.Parameters is {shown(model)}; a pydantic model is expected (or nothing at all)"
    )


def checked_parameters(name: str, module: ModuleType, values: Any, where: str) -> dict[str, Any]:
    """An encoder's own keys, checked by its model, defaults filled in, as plain JSON types.

    Without a model every key is allowed. ParameterError names the dotted key below `where`.
    """
    import json

    instance = _validated(name, module, values, where)
    try:
        plain = instance if isinstance(instance, dict) else instance.model_dump(mode="json")
        json.dumps(plain, allow_nan=False)
    except Exception as error:  # a user's serializers may raise anything
        raise ParameterError(
            f"{where}: parameters of {name} cannot be written as plain JSON ({reason(error)})"
        ) from error
    return plain


def learning_keys(module: ModuleType, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Those of the checked `parameters` that what an encoder learns depends on: all where it does not say.

    ParameterError where `LEARNING_KEYS` is no tuple of keys of the encoder.
    """
    keys = getattr(module, "LEARNING_KEYS", None)
    if keys is None:
        return tuple(parameters)
    if not isinstance(keys, tuple | list) or not all(isinstance(key, str) for key in keys):
        raise ParameterError(
            f"{module.__name__}.LEARNING_KEYS is {shown(keys)}; a tuple of names of keys is expected"
        )
    if parameters_model(module) is not None:
        for key in keys:
            if key not in parameters:
                raise ParameterError(
                    f"{module.__name__}.LEARNING_KEYS names {key!r}, which is no key of the encoder"
                    f"{hint(key, parameters)}; there are: {', '.join(parameters) or 'none'}"
                )
    return tuple(key for key in keys if key in parameters)


def load_encoder(name: str, parameters: Mapping[str, Any], root: Path = Path()) -> "Encoder":
    """The encoder `name` with these parameters, checked. ParameterError names the key and what is allowed.

    A user's factory gets an instance of its `Parameters`, or a dict where it has none.
    """
    module = load_encoder_module(name, root)
    checked = _validated(name, module, parameters, name)
    if not name.startswith(PYTHON):
        return module.create(checked)
    function = _python_parts(name)[1]
    check_factory(name, module)
    try:
        factory: Any = getattr(module, function)
        encoder: Any = factory(checked)
        missing = [part for part in _PROTOCOL if not hasattr(encoder, part)]
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        raise ParameterError(f"encoder = {name!r}: {function} failed ({reason(error)})") from error
    if missing:
        raise ParameterError(
            f"encoder = {name!r}: its factory returned a {type(encoder).__name__} without "
            f"{', '.join(missing)} (see cairn.encoders.protocol)"
        )
    return encoder


def check_factory(name: str, module: ModuleType) -> None:
    """ParameterError where `module`, that of `name`, lacks the factory of a user's own encoder."""
    if not name.startswith(PYTHON):
        return
    function = _python_parts(name)[1]
    if not callable(getattr(module, function, None)):
        there = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ParameterError(
            f"encoder = {name!r}: {module.__name__} has no function {function}{hint(function, there)}"
        )


def encoder_code(name: str, root: Path = Path()) -> EncoderCode:
    """What belongs to an encoder's code, for the digest of the steps that use it.

    For a user's own: its files in the project at `root`, and the modules of `cairn` that they import. Its
    FEATURE_MODULES count only where all are Cairn's: what the user's own files decide must not be cached by
    the code of others.
    """
    module = load_encoder_module(name, root)
    features = _feature_modules(module)
    if name.startswith(PYTHON):
        own = user_code(_python_parts(name)[0], root)
        if not all(feature.partition(".")[0] == "cairn" for feature in features):
            features = ()
        return EncoderCode(own.imports, {name: {"module": module.__name__}}, own.files, features)
    entry = _entry(name)
    modules = (entry["module"], *([entry["writer"]] if "writer" in entry else []))
    return EncoderCode(modules, {name: entry}, (), features)


def load_writer(name: str) -> ModuleType | None:
    """The module that writes an encoder's descriptors itself (see `cairn.systems.precomputed`), None for most."""
    writer = None if name.startswith(PYTHON) else _entry(name).get("writer")
    return None if writer is None else importlib.import_module(writer)


def is_sparse(name: str) -> bool:
    """Whether an encoder's descriptors are sparse (see `cairn.store.sparse`)."""
    return not name.startswith(PYTHON) and bool(_entry(name).get("sparse"))


def has_local_features(name: str) -> bool:
    """Whether an encoder has local features of its own; True for a user's, of which its factory alone can tell."""
    return name.startswith(PYTHON) or bool(_feature_modules(load_encoder_module(name)))


def external_paths(name: str, settings: Mapping[str, Any], benchmark: str) -> dict[str, str]:
    """The user's own paths whose content a system's descriptors are: name → path; most encoders have none."""
    if name.startswith(PYTHON):
        return {}
    find = getattr(load_encoder_module(name), "external", None)
    return {} if find is None else find(settings, benchmark)


def user_module_files(name: str, root: Path = Path()) -> list[str]:
    """Files of a user's encoder, with those it imports, that lie in the project at `root`; [] for others.

    Relative to `root`, sorted. A module inside a package stands for all modules of its outermost package.
    """
    return list(user_code(_python_parts(name)[0], root).files) if name.startswith(PYTHON) else []


def reason(error: BaseException) -> str:
    """What was raised, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".removesuffix(": ")


_PROTOCOL = ("features", "colour", "in_workers", "learns", "key", "prepare", "learn", "describe")


def _validated(name: str, module: ModuleType, values: Any, where: str) -> Any:
    model = parameters_model(module)
    if model is None:
        if not isinstance(values, Mapping):
            raise ParameterError(f"{where} = {shown(values)}: a mapping is expected")
        return dict(values)
    try:
        return validated(model, values, where)
    except ParameterError:
        raise
    except Exception as error:  # a user's validators may raise anything
        raise ParameterError(f"{where}: Parameters of {name} failed ({reason(error)})") from error


def _feature_modules(module: ModuleType) -> tuple[str, ...]:
    names = getattr(module, "FEATURE_MODULES", ())
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise ParameterError(
            f"{module.__name__}.FEATURE_MODULES is {shown(names)}; a tuple of dotted module names is expected"
        )
    return tuple(names)


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
