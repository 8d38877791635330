"""A benchmark's download folder: every file it needs brought there once, checked, indexed and remembered."""

import errno
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.errors import SourceError
from cairn.fetch.addresses import hub_checksum, hub_headers, resolve
from cairn.fetch.download import fetch_file
from cairn.fetch.http import Policy
from cairn.fetch.progress import download_bars
from cairn.fetch.record import Record
from cairn.fetch.sources import Kind, Listing, Source, listed, parse_checksums

RECORD = "fetched.json"
"""What was fetched, with sizes and digests; it lies in the download folder itself."""
DOWNLOADS = Path(".cairn/downloads")
UNPINNED = "first fetch"
"""How a file was checked whose authors publish no checksum: not at all, only remembered."""


@dataclass(frozen=True)
class Fetched:
    """A file (or unpacked folder) that is there.

    `path` lies below the download folder. `checked_by`: `pinned` (the benchmark's YAML), the address of the
    authors' checksum file, the hub, `directory` (an unpacked folder), or UNPINNED. `files` is the number of
    files of a folder; its `sha256` is over the lines `size  relative path`, sorted: the manifest has each
    image's own.
    """

    source: Source
    path: Path
    size: int
    sha256: str
    md5: str | None
    checked_by: str
    files: int | None = None
    original: "Fetched | None" = None
    """The gzip tar that this plain tar was inflated from, and whose source it has."""

    @property
    def verified(self) -> bool:
        """Whether a checksum that someone else stated was compared."""
        if self.original is not None:
            return self.original.verified
        return self.checked_by not in (UNPINNED, "directory")


def fetch_sources(
    sources: Sequence[Source | Listing],
    folder: Path,
    *,
    only: Kind | None = None,
    directory: Path | None = None,
    mirror: str | None = None,
    shards: int | None = None,
    repack: bool = False,
    policy: Policy | None = None,
) -> list[Fetched]:
    """Bring `sources` (or only the truth, or only the images) into `folder`, in their order.

    What is there with the size and date remembered in `fetched.json` is kept without being read again. In
    `directory` files already at hand are looked for (as `name`, as the name's last part, also in the folder
    `unpacked`, or as that folder itself) and linked; nothing is downloaded then. `mirror` (else CAIRN_MIRROR)
    replaces where downloads come from (see `addresses.resolve`), not what they must be. `shards` limits a
    Listing. A file without any published checksum is compared with what was fetched first. Gzip tars get
    their seek index beside them, or with `repack` a plain tar, which takes their place in the list returned.

    Raises SourceError for the first file that is missing or wrong, and for a disk that is full or cannot be written;
    what is already there stays.
    """
    folder = Path(folder)
    try:
        return _fetch_all(sources, folder, only, directory, mirror, shards, repack, policy or Policy())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full; free some space and run again" if full else error.strerror or str(error)
        raise SourceError(f"{error.filename or folder}: {what}") from None


def _fetch_all(
    sources: Sequence[Source | Listing],
    folder: Path,
    only: Kind | None,
    directory: Path | None,
    mirror: str | None,
    shards: int | None,
    repack: bool,
    policy: Policy,
) -> list[Fetched]:
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder / RECORD)
    getter = _Getter(folder, record, directory, mirror or os.environ.get("CAIRN_MIRROR"), policy)
    wanted: list[Source] = []
    for entry in sources:
        if only is None or entry.kind == only:
            wanted += [entry] if isinstance(entry, Source) else getter.listed(entry, shards)
    missing = getter.plan(wanted)
    sizes = [source.size for source in missing]
    known = sum(size for size in sizes if size) if all(sizes) else None
    with download_bars(len(missing), known) as advance:
        found: dict[Path, Fetched] = {}
        for source in wanted:
            each = getter.get(source, lambda done, total, name=source.name: advance(name, done, total), found)
            found.setdefault(each.path, each)
    for each in found.values():
        if each.source.kind == "images" and each.files is None:
            if repack:
                found[each.path] = _repacked(each, record)
            else:
                _index(each.path)
    return list(found.values())


def describe(found: Iterable[Fetched], root: Path) -> list[dict[str, Any]]:
    """The entries of `sources.json`: what, from where, which digests, checked by what, under which licence."""
    listed = [one for each in found for one in (each.original, each) if one is not None]
    taken = {each.original.path for each in listed if each.original}
    return [
        {
            "name": each.path.name if each.original else each.source.name,
            "url": None if each.original else each.source.url,
            "path": _relative(each.path, root),
            # Images are read from the plain tar; the archive it came from stays in the lineage.
            "kind": "original" if each.path in taken else each.source.kind,
            "part": each.source.part,
            "role": each.source.role,
            "size": each.size,
            "sha256": each.sha256,
            "md5": each.md5,
            "verified": each.verified,
            "checked_by": each.checked_by,
            "licence": each.source.licence,
            "synthetic": False,
            "note": _note(each),
            **(
                {"files": each.files, "sha256_of": "lines 'size  relative path', sorted"}
                if each.files
                else {}
            ),
        }
        for each in listed
    ]


def _note(each: Fetched) -> str | None:
    notes = [each.source.note] if each.source.note else []
    if each.original:
        notes.append(f"inflated from {each.original.source.name}, SHA-256 {each.original.sha256}")
    if each.checked_by == UNPINNED:
        notes.append("its authors publish no checksum: this one was recorded when it was first fetched")
    if each.checked_by == "directory":
        notes.append("a folder that was at hand, in place of the published archive")
    return "; ".join(notes) or None


def _relative(path: Path, root: Path) -> str:
    try:
        return path.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        return path.absolute().as_posix()


def _index(path: Path) -> None:
    """Write a gzip tar's seek index where it has none, or an older one than the archive."""
    from cairn.images.archives import INDEX_SUFFIX, archive_kind
    from cairn.images.gzip_tars import write_gzip_index

    if archive_kind(path) != "tar.gz":
        return
    index = path.with_name(path.name + INDEX_SUFFIX)
    if not index.is_file() or index.stat().st_mtime_ns < path.stat().st_mtime_ns:
        from cairn.progress import say

        say(f"indexing {path.name}")
        write_gzip_index(path)


def _repacked(each: Fetched, record: Record) -> Fetched:
    """The plain tar beside a gzip tar, made where it is not there; anything else as it is."""
    from cairn.images.archives import archive_kind
    from cairn.images.gzip_tars import repack

    if archive_kind(each.path) != "tar.gz":
        return each
    target = each.path.with_name(f"{each.path.name}.tar")
    name = f"{each.source.name}.tar"
    made_from = f"inflated from SHA-256 {each.sha256}"
    known = record.matching(name, target) if target.is_file() else None
    if known is None or known["checked_by"] != made_from:
        from cairn.progress import say

        say(f"repacking {each.path.name}")
        size, sha256 = repack(each.path, target)
        plain = Fetched(each.source, target, size, sha256, None, made_from, original=each)
        record.add(plain, name)
        return plain
    return Fetched(each.source, target, known["size"], known["sha256"], None, made_from, original=each)


class _Getter:
    """Brings single files, by what is remembered, at hand, or served."""

    def __init__(
        self, folder: Path, record: Record, directory: Path | None, mirror: str | None, policy: Policy
    ) -> None:
        self.folder, self.record, self.directory, self.mirror, self.policy = (
            folder, record, directory, mirror, policy,
        )  # fmt: skip
        self._texts: dict[str, str] = {}
        self._bases: Counter[str] = Counter()

    def plan(self, sources: Sequence[Source]) -> list[Source]:
        """Those of `sources` that are not here yet."""
        self._bases.update(source.name.rsplit("/", 1)[-1] for source in sources)
        return [source for source in sources if not self._is_here(source)]

    def _is_here(self, source: Source) -> bool:
        path = self.folder / source.name
        return self.directory is not None or path.exists() or self._unpacked(source) is not None

    def listed(self, listing: Listing, limit: int | None) -> list[Source]:
        """The files of a listing: those its checksum file names, else those in `directory`."""
        name = listing.listed_in.rsplit("/", 1)[-1]
        if self.directory is None or self._at_hand(name):
            return listed(listing, self.text(listing.listed_in), limit)
        place = self.directory / listing.folder
        names = sorted(path.name for path in place.glob("*") if re.search(listing.match, path.name))
        if not names:
            raise SourceError(f"directory {self.directory} has neither {name} nor files in {listing.folder}")
        return [
            Source(
                name=f"{listing.folder}/{name}",
                obtain=f"it was found in {place}",
                part=listing.part,
                kind=listing.kind,
                licence=listing.licence,
                role=listing.role,
            )
            for name in names[:limit]
        ]

    def get(self, source: Source, advance: Any, found: Mapping[Path, Fetched]) -> Fetched:
        path = self.folder / source.name
        if self.directory is not None:
            self._link(source)
        unpacked = self._unpacked(source)
        if unpacked is not None and not path.exists():
            # One folder may stand for a hundred archives: it is described once.
            return found.get(unpacked) or _describe_folder(source, unpacked)
        if path.exists() and (known := self.record.matching(source.name, path)):
            return self._known(source, path, known)
        expected, checked_by = self._expected(source)
        address = resolve(source.url, f"{self.folder.name}/{source.name}", self.mirror)
        if path.exists():
            address = path.resolve().as_uri()  # already at hand: hashed, not fetched
        elif address is None:
            raise SourceError(
                f"{path} is missing; {source.obtain}, and put it there (or name its folder: `directory`)"
            )
        headers = {} if self.mirror else hub_headers(source.url or "")
        got = fetch_file(
            address,
            path,
            sha256=expected.get("sha256"),
            md5=expected.get("md5"),
            size=source.size,
            policy=self.policy,
            headers=headers,
            advance=advance,
        )
        fetched = Fetched(source, path, got.size, got.sha256, got.md5, checked_by)
        self.record.add(fetched)
        return fetched

    def text(self, url: str) -> str:
        """A published checksum file, downloaded afresh once in a run."""
        if url not in self._texts:
            name = f"checksums/{hashlib.sha256(url.encode()).hexdigest()[:16]}.txt"
            path = self.folder / name
            at_hand = self._at_hand(url.rsplit("/", 1)[-1])
            if at_hand is None:
                path.unlink(missing_ok=True)
                fetch_file(resolve(url, name, self.mirror) or url, path, policy=self.policy)
            try:
                self._texts[url] = (at_hand or path).read_text("utf-8")
            except UnicodeDecodeError:
                raise SourceError(f"{url}: not a text file of checksums") from None
        return self._texts[url]

    def _expected(self, source: Source) -> tuple[dict[str, str], str]:
        pinned = {name: value for name in ("sha256", "md5") if (value := getattr(source, name))}
        if pinned:
            return pinned, "pinned"
        if source.checksums and not (
            self.directory and self._at_hand(source.checksums.rsplit("/", 1)[-1]) is None
        ):
            found = parse_checksums(self.text(source.checksums), source.checksums)
            name = source.name.rsplit("/", 1)[-1]
            digest = next((d for key, d in found.items() if key.rsplit("/", 1)[-1] == name), found.get(""))
            if digest is None:
                raise SourceError(f"{source.checksums}: no checksum of {name} in it")
            return {"sha256" if len(digest) == 64 else "md5": digest}, source.checksums
        if source.url and not self.mirror and self.directory is None and (stated := hub_checksum(source.url)):
            return {"sha256": stated}, "the hub that serves it"
        if first := self.record.first(source.name, source.url):
            return {"sha256": first}, UNPINNED
        return {}, UNPINNED

    def _known(self, source: Source, path: Path, known: Mapping[str, Any]) -> Fetched:
        for name in ("sha256", "md5"):
            if (stated := getattr(source, name)) and known[name] and known[name] != stated:
                raise SourceError(
                    f"{path}: expected {name} {stated}, found {known[name]}; remove the file to download it again"
                )
        if source.sha256 or (source.md5 and known["md5"]):
            checked_by = "pinned"
        else:
            checked_by = known["checked_by"]
        return Fetched(source, path, known["size"], known["sha256"], known["md5"], checked_by)

    def _unpacked(self, source: Source) -> Path | None:
        path = self.folder / source.unpacked if source.unpacked else None
        return path if path is not None and path.is_dir() else None

    def _at_hand(self, name: str) -> Path | None:
        if self.directory is None:
            return None
        path = self.directory / name
        return path if path.is_file() else None

    def _link(self, source: Source) -> None:
        """Link what `directory` has in the place of the source, unless it was downloaded (then it is no link)."""
        assert self.directory is not None
        places = [
            self.folder / name
            for name in (source.name, source.unpacked)
            if name and (self.folder / name).exists()
        ]
        if any(not place.is_symlink() for place in places):
            return
        base = source.name.rsplit("/", 1)[-1]
        files = [source.name, *([f"{source.unpacked}/{base}"] if source.unpacked else []), base]
        if self._bases[base] > 1:  # images_000.tar of which set?
            files.remove(base)
        choices = [(self.directory / file, source.name) for file in dict.fromkeys(files)]
        if source.unpacked:
            choices.append((self.directory / source.unpacked, source.unpacked))
        for target, name in choices:
            if target.exists():
                link = self.folder / name
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink() or link.readlink() != target.absolute():
                    link.unlink(missing_ok=True)  # of another directory, or whose target is gone
                    link.symlink_to(target.absolute())
                return
        looked = ", ".join(dict.fromkeys(str(target.relative_to(self.directory)) for target, _ in choices))
        raise SourceError(f"directory {self.directory} has none of: {looked}")


def _describe_folder(source: Source, path: Path) -> Fetched:
    lines, size, count = [], 0, 0
    for place, folders, files in os.walk(path):
        folders.sort()
        for name in files:
            file = Path(place) / name
            bytes_ = file.stat().st_size
            lines.append(f"{bytes_}  {file.relative_to(path).as_posix()}\n")
            size, count = size + bytes_, count + 1
    digest = hashlib.sha256("".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
    return Fetched(source, path, size, digest, None, "directory", count)
