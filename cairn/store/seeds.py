"""Artifacts with a folder per seed."""

from pathlib import Path

from cairn.errors import ArtifactError


def seeds_of(folder: Path) -> list[str]:
    """The seeds that have a folder in an artifact, ascending."""
    seeds = [path.name for path in Path(folder).iterdir() if path.is_dir() and path.name.isdigit()]
    if not seeds:
        raise ArtifactError(f"{folder}: no folder of a seed in it; run the step that writes it")
    return sorted(seeds, key=int)
