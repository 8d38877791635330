"""What the code imports is declared in pyproject.toml and pinned in the lock: a fresh machine has nothing else."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
OWN = {"cairn", "assets", "pipelines"}
# Extras that the tests do without, where the distribution is called otherwise than its module.
NOT_INSTALLED = {"open_clip": ["open-clip-torch"]}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> dict[str, str]:
    """Top-level package imported anywhere in the product → a file that does."""
    found: dict[str, str] = {}
    for top in sorted(OWN):
        for path in (REPOSITORY / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names = [node.module]
                for name in names:
                    found.setdefault(name.split(".")[0], path.relative_to(REPOSITORY).as_posix())
    return {
        name: file for name, file in found.items() if name not in sys.stdlib_module_names and name not in OWN
    }


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    declared = project["dependencies"] + [r for e in project["optional-dependencies"].values() for r in e]
    names = {plain(re.split(r"[\[<>=;~! ]", requirement)[0]) for requirement in declared}
    providers = {**NOT_INSTALLED, **packages_distributions()}
    missing = {
        package: file
        for package, file in imported().items()
        if not {plain(d) for d in providers.get(package, [package])} & names
    }
    assert not missing


def test_every_declared_dependency_is_pinned():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    for extra, lock in (
        ("cpu", "requirements-cpu.lock"),
        ("gpu", "requirements-gpu.lock"),
        ("dev", "requirements-dev.lock"),
    ):
        pinned = {plain(line.split("==")[0]) for line in (REPOSITORY / lock).read_text("utf-8").splitlines()}
        for requirement in project["dependencies"] + project["optional-dependencies"][extra]:
            assert plain(re.split(r"[\[<>=;~! ]", requirement)[0]) in pinned, (lock, requirement)
