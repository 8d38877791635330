"""Looks names up in a `registry.yaml` and imports the one module that is asked for."""

import difflib
import functools
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from cairn.errors import ParameterError


@functools.cache
def read_registry(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a registry file: name → {"module": dotted name, and facts about it}."""
    import yaml

    return yaml.safe_load(path.read_text("utf-8"))


def look_up(path: Path, name: str, where: str) -> dict[str, Any]:
    """The entry of `name`, else `ParameterError` that lists what is allowed."""
    entries = read_registry(path)
    if name not in entries:
        close = difflib.get_close_matches(name, list(entries), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ParameterError(f"{where} = {name!r}: not known{hint}; allowed: {', '.join(sorted(entries))}")
    return entries[name]


def load_module(path: Path, name: str, where: str) -> ModuleType:
    """The module that `name` stands for, imported alone."""
    return importlib.import_module(look_up(path, name, where)["module"])
