"""What the adapters of published benchmarks share: fetching their files, finding their images in archives."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from cairn.errors import ArtifactError, InputError, SourceError
from cairn.files import write_json

if TYPE_CHECKING:
    from cairn.images.manifest import Entry

SOURCES_FILE = "sources.json"
TRUTH_FOLDER = "ground_truth"
MAX_TEXT = 1 << 16
"""Largest text file read out of an archive, in bytes."""


class PublishedParameters(BaseModel):
    """Keys that every published benchmark has in `params.yaml`: where its files are if not at their address."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    directory: str | None = Field(
        None, min_length=1, description="folder with the files already at hand; nothing is downloaded then"
    )
    mirror: str | None = Field(
        None, min_length=1, description="address prefix that holds the original addresses, host first"
    )
    damaged: int = Field(
        0,
        ge=0,
        description="how many damaged distractors may be left out (listed in damaged.json); more is an error",
    )
    repack: bool = Field(
        False, description="inflate gzip tars once into plain tars, instead of a seek index beside them"
    )


def fetch_published(
    sources_yaml: Path,
    parts: Iterable[str],
    settings: Mapping[str, Any],
    root: Path,
    *,
    only: Any = None,
) -> list[Any]:
    """Bring the files of `parts` into `.cairn/downloads/NAME/` of the project (NAME is that of the YAML file).

    The folder belongs to the files, not to one entry of `params.yaml`: roxford5k and rparis6k share their
    distractors. Returns a list of `cairn.fetch.folder.Fetched`; SourceError where something is missing or wrong.
    """
    from cairn.fetch.folder import DOWNLOADS, fetch_sources
    from cairn.fetch.sources import read_sources

    directory = settings.get("directory")
    return fetch_sources(
        read_sources(sources_yaml, parts),
        root / DOWNLOADS / sources_yaml.stem,
        only=only,
        directory=root / directory if directory else None,
        mirror=settings.get("mirror"),
        shards=settings.get("shards"),
        repack=settings.get("repack", False),
    )


def write_parts(
    sources_yaml: Path, parts: Iterable[str], settings: Mapping[str, Any], root: Path, output: Path
) -> None:
    """Fetch the files of `parts` and write what `write_published` writes: an adapter's `write_sources`."""
    write_published(fetch_published(sources_yaml, parts, settings, root), root, output)


def write_published(found: Iterable[Any], root: Path, output: Path) -> None:
    """Write `sources.json` under `output`, and the truth files, which are small, under `ground_truth/`.

    Image archives stay in the download folder: `sources.json` says where, and what they hash to.
    """
    from cairn.fetch.folder import describe

    listed = []
    for entry in describe(found, root):
        if entry["kind"] == "truth":
            entry["name"] = f"{TRUTH_FOLDER}/{entry['name']}"
            target = output / entry["name"]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / entry["path"], target)
        listed.append(entry)
    write_json(output / SOURCES_FILE, {"sources": listed})


def truth_path(root: Path, sources: Path, name: str) -> Path:
    """Where a truth file lies in the sources artifact; ArtifactError where it is not there."""
    path = Path(root) / sources / TRUTH_FOLDER / name
    if not path.is_file():
        raise ArtifactError(f"{path}: no such file; run the step `sources` again")
    return path


def archives(root: Path, sources: Path, role: str) -> list[str]:
    """Paths, relative to the project, of the image archives with this role, in the order they were listed."""
    path = Path(root) / sources / SOURCES_FILE
    try:
        entries = json.loads(path.read_text("utf-8"))["sources"]
        return [entry["path"] for entry in entries if entry["kind"] == "images" and entry["role"] == role]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path}: cannot be read ({type(error).__name__})") from None


def find_images(
    root: Path,
    places: Sequence[str],
    wanted: Mapping[str, str],
    key: Callable[[str], str],
    what: str,
    **flags: bool,
) -> list["Entry"]:
    """Manifest entries of the images `wanted` (key → image id), found in the archives `places`.

    `key` turns a member's path into what `wanted` is keyed by; members that nobody wants are passed over
    without being read (Paris has twenty broken files that the revisited protocol leaves out). `flags` are the
    entries' roles. SourceError where one image is in two places, or some are in none.
    """
    from cairn.images.manifest import list_entries

    found: dict[str, Entry] = {}
    for place in dict.fromkeys(places):
        for entry in list_entries(place, root):
            image = wanted.get(key(entry.image_id))
            if image is None:
                continue
            if (before := found.get(image)) is not None:
                raise SourceError(
                    f"{what} image {image} is in {before.archive} ({before.member}) and in {place} ({entry.member})"
                )
            found[image] = replace(entry, image_id=image, **flags)
    missing = [image for image in wanted.values() if image not in found]
    if missing:
        looked = ", ".join(dict.fromkeys(places)) or "no archive"
        raise SourceError(
            f"{len(missing):,} of {len(wanted):,} {what} images are not in {looked:.300} (first: {missing[0]})"
        )
    return list(found.values())


def all_images(
    root: Path, places: Sequence[str], name: Callable[[str, str], str], **flags: bool
) -> list["Entry"]:
    """Manifest entries of every image in the archives; `name(archive, member path)` gives its id."""
    from cairn.images.manifest import list_entries

    return [
        replace(entry, image_id=name(place, entry.image_id), **flags)
        for place in dict.fromkeys(places)
        for entry in list_entries(place, root)
    ]


def read_texts(root: Path, place: str, suffix: str, key: Callable[[str], str]) -> dict[str, str]:
    """The small text files with this ending in a folder or tar, by `key` of their path there."""
    import tarfile

    from cairn.images.archives import archive_kind, check_inflation, check_name, tar_entries

    path = Path(root) / place
    texts: dict[str, bytes] = {}
    if path.is_dir():
        for file in sorted(path.rglob(f"*{suffix}")):
            if not file.resolve().is_relative_to(path.resolve()):
                raise SourceError(f"{file}: a symbolic link that leaves {path}")
            with file.open("rb") as stream:
                texts[key(file.relative_to(path).as_posix())] = stream.read(MAX_TEXT + 1)
    else:
        compressed = path.stat().st_size if archive_kind(path) == "tar.gz" else None
        try:
            with tarfile.open(path, "r:*") as tar:
                for member in tar_entries(tar, path):
                    name = check_name(member.name, path)
                    check_inflation(member.offset_data + member.size, compressed, path)
                    if not member.isreg() or not name.endswith(suffix):
                        continue
                    stream = tar.extractfile(member)
                    texts[key(name)] = stream.read(MAX_TEXT + 1) if stream else b""
        except (tarfile.TarError, OSError, EOFError, ValueError) as error:
            raise SourceError(f"{path}: not a readable tar file ({str(error)[:100]})") from None
    read = {}
    for name, data in texts.items():
        if len(data) > MAX_TEXT:
            raise SourceError(f"{path}: {name} has more than {MAX_TEXT} bytes; a short text is expected")
        try:
            read[name] = data.decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            raise InputError(f"{path}: {name} is not UTF-8 text") from None
    return read


def tail(path: str, parts: int) -> str:
    """The last `parts` components of a member's path, without an image's ending: what published lists name."""
    from cairn.images.archives import SUFFIXES

    pure = PurePosixPath(path)
    pure = pure.with_suffix("") if pure.suffix.lower() in SUFFIXES else pure
    return "/".join(pure.parts[-parts:])


def keyed(names: Iterable[str], parts: int, where: str) -> dict[str, str]:
    """Image id by `tail` of it. InputError where two names have one tail."""
    found: dict[str, str] = {}
    for name in names:
        short = tail(name, parts)
        if found.setdefault(short, name) != name:
            raise InputError(f"{where}: {found[short]} and {name} cannot be told apart by {short}")
    return found


def unique_ids(names: Sequence[str]) -> list[str]:
    """One query id per name: the name, with `-2`, `-3`, … where it occurs again."""
    seen: Counter[str] = Counter()
    ids = []
    for name in names:
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids
