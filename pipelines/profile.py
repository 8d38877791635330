"""Profiles: files of further benchmarks, systems and runs that are put into `params.yaml` by name."""

from pathlib import Path
from typing import Any

from cairn.errors import UsageError
from cairn.files import atomic
from cairn.parameters import SECTIONS, load_parameters
from pipelines.project import PARAMETERS

FOLDER = "profiles"


def apply_profile(root: Path, name: str) -> list[str]:
    """Merge `profiles/NAME.yaml` into `params.yaml`, keys that are there already included; what was changed.

    The result is checked before it takes the place of the file; nothing is written where it would be wrong, or
    where it is there already. Raises `UsageError` for an unknown profile.
    """
    from ruamel.yaml import YAML

    path = root / FOLDER / f"{name}.yaml"
    if not path.is_file() or path.parent != root / FOLDER:
        there = ", ".join(sorted(file.stem for file in (root / FOLDER).glob("*.yaml"))) or "none"
        raise UsageError(f"no profile {name!r}; there are: {there}")
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    target, added = root / PARAMETERS, yaml.load(path.read_text("utf-8"))
    document = yaml.load(target.read_text("utf-8"))
    changed: list[str] = []
    for section in SECTIONS:
        _merge(document.setdefault(section, {}), added.get(section) or {}, section, changed)
    if changed:
        with atomic(target) as temporary:
            with temporary.open("w", encoding="utf-8") as stream:
                yaml.dump(document, stream)
            load_parameters(temporary)
    return changed


def _merge(into: Any, values: Any, prefix: str, changed: list[str]) -> None:
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value, f"{prefix}.{key}", changed)
        elif into.get(key) != value:
            into[key] = value
            changed.append(f"{prefix}.{key}")
