"""What a benchmark is made of: its published files with address, checksum, size and licence, read from YAML."""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from cairn.errors import SourceError

Kind = Literal["truth", "images"]


class Source(BaseModel):
    """One published file.

    `name` is its path below the benchmark's download folder. `part` says which variant of the benchmark
    needs it, `role` what an adapter takes it for. `sha256`, `md5` are the authors' published checksums, and
    null where they publish none. `checksums` is the address of a published checksum file that covers it.
    `unpacked` is a folder that may stand in its place. A file without `url` is brought by hand: `obtain`
    says how.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[A-Za-z0-9][\w.+/-]*$")
    part: str
    kind: Kind
    licence: str
    role: str | None = None
    url: str | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    size: int | None = Field(default=None, gt=0)
    checksums: str | None = None
    unpacked: str | None = None
    obtain: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _reachable(self) -> "Source":
        if (self.url is None) == (self.obtain is None):
            raise ValueError(f"{self.name}: either url or obtain is expected")
        if ".." in self.name.split("/"):
            raise ValueError(f"{self.name}: a name may not hold ..")
        return self


class Listing(BaseModel):
    """Files that only a published checksum list names: one `checksum  address` a line, those that `match`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listed_in: str
    match: str
    folder: str
    part: str
    kind: Kind
    licence: str
    role: str | None = None
    unpacked: str | None = None
    note: str | None = None


def read_sources(path: Path, parts: Iterable[str]) -> list[Source | Listing]:
    """The entries of a benchmark's YAML file whose `part` is one of `parts`, in the file's order.

    An entry with `numbers: [first, last]` stands for one file per number, put into name, url and checksums
    where they say `{n}` (`{n:03d}`). Raises SourceError, naming file and entry, for anything malformed.
    """
    import yaml

    wanted = set(parts)
    loaded = yaml.safe_load(path.read_text("utf-8"))
    found: list[Source | Listing] = []
    names: set[str] = set()
    known: set[str] = set()
    for number, entry in enumerate(loaded["sources"], 1):
        for each in _expanded(entry, f"{path.name}: entry {number}"):
            known.add(each.part)
            if isinstance(each, Source):
                if each.name in names:
                    raise SourceError(f"{path.name}: {each.name} is listed twice")
                names.add(each.name)
            if each.part in wanted:
                found.append(each)
    # An unpacked folder that holds downloads could not be told from one that stands for them.
    folders = {each.unpacked for each in found if each.unpacked}
    for each in found:
        if isinstance(each, Source) and any(each.name.startswith(f"{folder}/") for folder in folders):
            raise SourceError(
                f"{path.name}: {each.name} lies in a folder that stands for an unpacked archive"
            )
    if unknown := sorted(wanted - known):
        close = difflib.get_close_matches(unknown[0], sorted(known), n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise SourceError(f"{path.name}: no part {unknown[0]!r}{hint}; there are: {', '.join(sorted(known))}")
    return found


def parse_checksums(text: str, where: str) -> dict[str, str]:
    """Checksum by address or file name from the lines `checksum  name` that md5sum and sha256sum write.

    A file with one bare checksum gives it under the empty name. SourceError for a line of another form.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        digest, _, name = line.strip().partition(" ")
        digest = digest.lower()
        if len(digest) not in (32, 64) or not re.fullmatch("[0-9a-f]+", digest):
            raise SourceError(f"{where} line {number}: an MD5 or SHA-256 was expected, not {digest[:40]!r}")
        found[name.strip().removeprefix("*")] = digest
    if not found:
        raise SourceError(f"{where}: no checksum in it")
    return found


def listed(listing: Listing, text: str, limit: int | None) -> list[Source]:
    """The sources a listing stands for, by the text of its checksum file, at most `limit` of them."""
    found = []
    for address, digest in parse_checksums(text, listing.listed_in).items():
        if not re.search(listing.match, address):
            continue
        # A list from outside names no file of this machine.
        if not re.match(r"https?://[^\s\[\]]+/", address):
            raise SourceError(f"{listing.listed_in}: {address[:100]!r} is no http or https address")
        found.append(
            _validated(
                Source,
                {
                    "name": f"{listing.folder}/{address.rstrip('/').rsplit('/', 1)[-1]}",
                    "url": address,
                    "sha256" if len(digest) == 64 else "md5": digest,
                    **{key: getattr(listing, key) for key in ("part", "kind", "licence", "role", "unpacked")},
                },
                listing.listed_in,
            )
        )
    found = found if limit is None else found[:limit]
    if not found:
        raise SourceError(f"{listing.listed_in}: names no file that matches {listing.match!r}")
    return found


def _expanded(entry: dict[str, Any], where: str) -> list[Source | Listing]:
    if "listed_in" in entry:
        return [_validated(Listing, entry, where)]
    entry = dict(entry)
    span = entry.pop("numbers", None)
    if span is None:
        return [_validated(Source, entry, where)]
    first, last = span
    return [
        _validated(
            Source,
            {
                key: value.format(n=n) if key in ("name", "url", "checksums") and value else value
                for key, value in entry.items()
            },
            where,
        )
        for n in range(first, last + 1)
    ]


def _validated(model: Any, values: dict[str, Any], where: str) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise SourceError(f"{where}: {key + ': ' if key else ''}{first['msg']}") from None
