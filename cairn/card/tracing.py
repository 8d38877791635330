"""Asks of every number where it comes from, and of every source whether a reader could reach it."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cairn.card.document import Path_, json_path, lookup, numbers, texts
from cairn.card.finding import Finding, found
from cairn.card.tokens import tokens_of
from cairn.card.words import vocabulary
from cairn.results.names import printable

_SOURCE_KEY = re.compile(
    r"^artifacts?$|(?:^|_)(?:source_artifacts?|sources?|citations?|references?|urls?|doi|evidence)$",
    re.IGNORECASE,
)
_PINNED_KEY = re.compile(r"^(?:md5|sha1|sha256|hash|checksum|digest|source_md5)$", re.IGNORECASE)
_DIGEST = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})\b")
_PUBLIC = re.compile(r"https?://|\bdoi\b|\barxiv\b|\b10\.\d{4,}/", re.IGNORECASE)
_EXACT = re.compile(
    r"\b(?:table|tab\.|figure|fig\.|page|section|sec\.|appendix|supplementary)", re.IGNORECASE
)
_PRIVATE = re.compile(
    r"(?:^|[\s(])(?:[\w-]+:/(?!/)|s3://|gs://|hdfs://|file://|/(?:home|mnt|data|root)/|[A-Z]:\\)"
)
_FILE = re.compile(
    r"(?<![\w/:.{}-])(?P<file>(?:[\w.-]+/)*[\w-]+\.(?:py|md|json|yaml|yml|csv|txt|ipynb|pkl|pt|npz|h5|hdf5))\b"
)
_LOCAL = re.compile(r"\bin this (?:repo|repository|release)\b|^[\w./-]+$|\bsee [\w./-]+\b", re.IGNORECASE)
_SEE = re.compile(r"\bsee (?:the )?(?:section )?[\"']?(?P<what>[a-z][a-z_ ]{2,40}?)[\"']? (?:below|above)\b")
# Keys whose numbers are settings, versions or layout, not measurements.
_NOT_MEASURED = re.compile(r"(?:^|_)(?:version|format|schema|year|seed|command|defaults|revision)(?:$|_)")
LEAST_WORDS = 3
"""A text of fewer words is a label, not a sentence."""
_YEARS = range(1900, 2100)


@dataclass(frozen=True)
class Cited:
    """One source in the document: what is written, where, and the numbers that rest on it."""

    text: str
    path: Path_
    pinned: bool


def check_sources(document: Mapping, checked: set[str], folder: Path | None = None) -> Iterator[Finding]:
    """Findings about where numbers come from.

    `checked`: JSON paths of sentences whose numbers were recomputed from others: they need no source of their
    own. `folder`: where the document lies; files that it says lie beside it are looked for there.
    """
    resting: dict[Path_, int] = defaultdict(int)
    cited: dict[Path_, list[Cited]] = {}
    homeless: dict[Path_, list[Path_]] = defaultdict(list)
    for path, _ in numbers(document):
        if any(isinstance(step, str) and _NOT_MEASURED.search(step) for step in path[-1:]):
            continue
        holder = _holder(document, path)
        if holder is None:
            homeless[_group(path)].append(path)
        else:
            resting[holder] += 1
            cited.setdefault(holder, _cited(document, holder))
    for group, paths in homeless.items():
        text = f"{len(paths)} {'number' if len(paths) == 1 else 'numbers'} without a source"
        yield found("note", "untraceable", group, text, paths)
    yield from _sentences(document, checked)
    yield from _reach(cited, resting)
    yield from _absent(document, folder)


def _holder(document: Mapping, path: Path_) -> Path_ | None:
    """The innermost object around `path` that names a source."""
    for length in range(len(path) - 1, -1, -1):
        value = lookup(document, path[:length])
        if isinstance(value, Mapping) and any(_names_source(key, item) for key, item in value.items()):
            return path[:length]
        if isinstance(value, Mapping) and {"difference", "of", "minus"} <= value.keys():
            return path[:length]  # computed from two numbers that it names
    return None


def _names_source(key: str, value: object) -> bool:
    return bool(value) and isinstance(value, str | list | Mapping) and _SOURCE_KEY.search(key) is not None


def _cited(document: Mapping, holder: Path_) -> list[Cited]:
    value = lookup(document, holder)
    pinned = any(_PINNED_KEY.match(key) and item for key, item in value.items())
    made = []
    for key, item in value.items():
        if _names_source(key, item):
            for path, text in texts({key: item}):
                made.append(Cited(text, holder + path, pinned or _DIGEST.search(text) is not None))
    return made


def _group(path: Path_) -> Path_:
    """Where numbers without a source are reported together: two levels down, or the object around them."""
    return path[: min(2, len(path) - 1)]


def _sentences(document: Mapping, checked: set[str]) -> Iterator[Finding]:
    """Sentences with measurements in them that nothing supports."""
    for path, text in texts(document):
        here = json_path(path)
        last = next((step for step in reversed(path) if isinstance(step, str)), "")
        if here in checked or _SOURCE_KEY.search(last) or _NOT_MEASURED.search(last):
            continue
        if last in vocabulary()["names"] or len(text.split()) < LEAST_WORDS:
            continue
        measured = [
            token.text
            for token in tokens_of(text)
            if token.kind == "number"
            and (token.decimals or token.sign or token.value >= 100)
            and not (token.value in _YEARS and not token.decimals)
        ]
        shown = ", ".join(measured[:6]) + (", …" if len(measured) > 6 else "")
        if measured and _holder(document, path) is None:
            yield found("note", "untraceable", path, f"a sentence with {shown} and no source")
        elif measured:
            yield found("note", "unchecked", path, f"{shown}: nothing in the file allows to recompute it")


def _reach(cited: Mapping[Path_, list[Cited]], resting: Mapping[Path_, int]) -> Iterator[Finding]:
    private: dict[str, list[tuple[Path_, int]]] = defaultdict(list)
    total = pinned = 0
    for holder, sources in cited.items():
        for source in sources:
            total += 1
            pinned += source.pinned
            if source.pinned:
                continue
            if _PRIVATE.search(source.text):
                private[source.text].append((source.path, resting[holder]))
            elif _PUBLIC.search(source.text) and not _EXACT.search(source.text):
                text = f"{printable(source.text, 80)} names no table, figure or page"
                yield found("note", "inexact-source", source.path, text)
    for text, places in private.items():
        count = sum(number for _, number in places)
        message = (
            f"{printable(text, 100)} is a place that only its owner can open, without a checksum: "
            f"{count} {'number stands' if count == 1 else 'numbers stand'} beside it"
        )
        yield found("note", "private-source", places[0][0], message, [path for path, _ in places[1:]])
    if total and not pinned:
        yield found("note", "unpinned", (), f"none of the {total} sources of numbers carries a checksum")


def _absent(document: Mapping, folder: Path | None) -> Iterator[Finding]:
    """Files and sections that the text points at and that are not there."""
    wanted: dict[str, Path_] = {}
    for path, text in texts(document):
        for match in _SEE.finditer(text):
            name = match.group("what").strip()
            key = name.replace(" ", "_")
            if not any(key in (step, str(step).lower()) for place in _keys(document) for step in place[-1:]):
                yield found(
                    "warning", "absent", path, f"points at {name!r}, and no part of the file is called so"
                )
        if _PRIVATE.search(text):
            continue
        for match in _FILE.finditer(text):
            if _LOCAL.search(text) and not _PUBLIC.search(text):
                wanted.setdefault(match.group("file"), path)
    for name, path in wanted.items():
        if folder is None:
            continue
        if ".." not in name.split("/") and not (folder / name).exists():
            yield found("note", "absent", path, f"cites {name}, which does not lie beside the file")


def _keys(document: Mapping) -> Iterator[Path_]:
    stack: list[tuple[Path_, object]] = [((), document)]
    while stack:
        path, value = stack.pop()
        if path:
            yield path
        if isinstance(value, Mapping):
            stack.extend((path + (key,), item) for key, item in value.items())
