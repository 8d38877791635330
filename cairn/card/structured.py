"""Checks statements that carry their operands as data: `{sentence, stated, difference, of, minus or against}`."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from cairn.card.document import Path_, is_number, lookup, walk
from cairn.card.finding import Finding, found

_DIRECTIONS = {"above": 1, "below": -1, "adds": 1, "loses": -1}
_COMPARISON = "published_comparison"


@dataclass(frozen=True)
class Named:
    """A number that has a name: its value, the places of its objects, the ends of its interval."""

    value: Decimal
    paths: list[Path_] = field(default_factory=list)
    ends: tuple[Decimal, ...] = ()


def check_structured(document: Mapping) -> Iterator[Finding]:
    """Whether each stated difference is that of the numbers it names, and the sentence beside it gives it.

    A sentence is checked by its operands: every number of `stated` stands in it, in that order, the difference
    with its direction, and what has decimals belongs to the operands.
    """
    values: dict[str, Named] = {}
    for path, value in walk(document):
        if (
            isinstance(value, Mapping)
            and isinstance(value.get("number"), str)
            and is_number(value.get("value"))
        ):
            name = value["number"]
            ends = tuple(Decimal(value[end]) for end in ("low", "high") if is_number(value.get(end)))
            before = values.setdefault(name, Named(Decimal(value["value"]), [], ends))
            if before.paths and before.value != value["value"]:
                text = f"{name} is {value['value']} here and {before.value} elsewhere"
                yield found("error", "structured", path, text, [before.paths[0]])
            before.paths.append(path)
    for path, value in walk(document):
        if isinstance(value, Mapping) and {"difference", "of", "minus"} <= value.keys():
            yield from _check_difference(path, value, values)
        if isinstance(value, Mapping) and _carries(value):
            yield from _check_sentence(document, path, value, values)


def sentences_with_operands(document: Mapping) -> frozenset[Path_]:
    """The places of the sentences that `check_structured` checks: their words need no resolving."""
    return frozenset(
        (*path, "sentence")
        for path, value in walk(document)
        if isinstance(value, Mapping) and _carries(value)
    )


def _carries(value: Mapping) -> bool:
    """Whether a statement names its operands, and its sentence speaks of their systems."""
    sentence, stated = value.get("sentence"), value.get("stated")
    names: list[Any] = [value.get("of"), value["minus"] if "minus" in value else value.get("against")]
    return (
        isinstance(sentence, str)
        and isinstance(stated, list)
        and all(isinstance(number, str) for number in stated)
        and all(isinstance(name, str) for name in names)
        and _system(names[0]) in sentence
        and (_system(names[1]) if "minus" in value else names[1]) in sentence
    )


def _system(name: Any) -> str:
    """The system of a number's name (benchmark/system/…); the name itself where it has no such parts."""
    parts = name.split("/")
    return parts[1] if len(parts) == 7 else name


def _check_difference(path: Path_, value: Mapping, values: Mapping[str, Named]) -> Iterator[Finding]:
    stated, of, minus = value["difference"], value["of"], value["minus"]
    unknown = [name for name in (of, minus) if not isinstance(name, str) or name not in values]
    if unknown or not is_number(stated):
        text = f"names {unknown[0]!r}, and no number is called so" if unknown else f"{stated!r} is no number"
        yield found("error", "structured", path, text)
        return
    actual = values[of].value - values[minus].value
    related = [values[of].paths[0], values[minus].paths[0]]
    text = f"{values[of].value} ({of}) − {values[minus].value} ({minus}) = {actual:+f}, stated {stated}"
    yield found("right" if actual == stated else "error", "structured", path, text, related)
    sentence = value.get("sentence")
    if isinstance(sentence, str) and f"{abs(Decimal(stated)):.2f}" not in sentence:
        text = f"the sentence does not give the difference {stated} that stands beside it"
        yield found("error", "structured", path + ("sentence",), text)


def _check_sentence(
    document: Mapping, path: Path_, value: Mapping, values: Mapping[str, Named]
) -> Iterator[Finding]:
    sentence, where = value["sentence"], path + ("sentence",)
    after = 0
    for number in value["stated"]:
        here = _written(number).search(sentence, after)
        if here is None:
            yield found(
                "error", "structured", where, f"the sentence does not give {number}, which stands beside it"
            )
            return
        after = here.end()
    of = values.get(value["of"])
    if of is None:
        yield found("error", "structured", path, f"names {value['of']!r}, and no number is called so")
        return
    reference = values.get(value["minus"]) if "minus" in value else _published(document, value)
    if reference is None:
        if "minus" not in value:
            text = f"no published row {value['against']!r} has a value for {value['of']}"
            yield found("error", "structured", path, text)
        return
    actual = of.value - reference.value
    stated: Any = value.get("difference")
    known = {of.value, reference.value, *of.ends, *reference.ends}
    if is_number(stated):
        known.add(abs(Decimal(stated)))
        if "minus" not in value and actual != stated:
            text = f"{of.value} ({value['of']}) − {reference.value} ({value['against']}) = {actual:+f}, stated {stated}"
            yield found("error", "structured", path, text, [of.paths[0], reference.paths[0]])
        said = _direction(sentence, abs(Decimal(stated)))
        if said is not None and said * Decimal(stated) < 0:
            text = f"{abs(Decimal(stated)):.2f} has the wrong direction: the difference is {stated}"
            yield found("error", "structured", where, text)
    others = [number for number in value["stated"] if "." in number and Decimal(number) not in known]
    if others:
        yield found(
            "note", "unresolved", where, f"{others[0]} belongs to none of the numbers named: not checked"
        )
    # The rows of one comparison, where both stand in it, else where they stand first.
    compared = next((place for place in of.paths if place[0] == _COMPARISON), of.paths[0])
    related = [compared + ("value",), reference.paths[0] + (("value",) if "minus" in value else ())]
    text = f"{of.value} ({value['of']}) − {reference.value} ({value.get('minus', value.get('against'))}) = {actual:+f}"
    yield found("right", "difference", where, text, related)


def _written(number: str) -> re.Pattern[str]:
    """Where `number` stands by itself, and not within another or a name."""
    return re.compile(
        rf"(?<![\w.@/-]){re.escape(number)}(?![\w@/-]|\.\w)|(?<=[ (][-+−]){re.escape(number)}(?![\w@/-]|\.\w)"
    )


def _direction(sentence: str, size: Decimal) -> int | None:
    """Which way a sentence says that a difference goes: 1, -1, or None where it does not say."""
    number = re.escape(f"{size:.2f}")
    said = re.search(rf"\b{number} points? (above|below)\b|\b(adds|loses) {number}\b", sentence)
    return _DIRECTIONS[said[1] or said[2]] if said else None


def _published(document: Mapping, value: Mapping) -> Named | None:
    """The cell of the published row that a statement is about: by system, source, benchmark and slice."""
    parts = value["of"].split("/")
    comparison = document.get(_COMPARISON)
    rows = comparison.get("rows") if isinstance(comparison, Mapping) else None
    if len(parts) != 7 or not isinstance(rows, list):
        return None
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            continue
        if (row.get("system"), row.get("source")) == (value["against"], value.get("source")):
            path = (_COMPARISON, "rows", place, parts[0], parts[5])
            cells = row.get(parts[0])
            if isinstance(cells, Mapping) and is_number(cells.get(parts[5])):
                return Named(Decimal(lookup(document, path)), [path])
    return None
