"""Checks sums and repeated totals: galleries with and without distractors, numbers that differ by a slip."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from decimal import Decimal

from cairn.card.document import Path_, is_number, numbers, texts, walk
from cairn.card.finding import Finding, found
from cairn.card.tokens import tokens_of
from cairn.card.words import all_words, dataset

_DISTRACTOR = re.compile(r"distractor|\br?1m\b|revisitop1m", re.IGNORECASE)
_GALLERIES = re.compile(
    r"\b(?:galler(?:y|ies)|databases?)\b(?: sizes?)? (?:of )?(?P<sizes>\d[\d,]*(?:(?:, | and |, and )\d[\d,]*)+)"
)
_BASE = re.compile(
    r"\b(?P<name>[A-Z]\w+)\s(?:base|gallery|database|index)\s\((?P<size>\d[\d,]*)\s(?:images|photos)\)"
)
LEAST_DIGITS = 4
"""Numbers of fewer digits differ by one digit too often to say anything."""

MANY_DIGITS = 6
YEARS = range(1900, 2100)


def check_totals(document: Mapping) -> Iterator[Finding]:
    """Findings about totals."""
    tables = _count_tables(document)
    distractors: set[int] = set()
    stated = _stated(document)
    for first in tables:
        for second in tables:
            if first[:-1] == second[:-1] and first != second:
                yield from _sum(first, second, tables, stated, distractors)
    yield from _sizes(document, tables)
    yield from _slips(document)


def _count_tables(document: Mapping) -> dict[Path_, dict[str, int]]:
    """Objects that give one count for each of several benchmarks."""
    made: dict[Path_, dict[str, int]] = {}
    for path, value in walk(document):
        if isinstance(value, Mapping) and len(value) >= 2 and all(is_number(item) for item in value.values()):
            counts = {key: Decimal(item) for key, item in value.items()}
            if all(count == count.to_integral_value() and count >= 100 for count in counts.values()):
                made[path] = {key: int(count) for key, count in counts.items()}
    return made


def _stated(document: Mapping) -> dict[int, list[Path_]]:
    """Whole numbers that texts about distractors give, with the places."""
    made: dict[int, list[Path_]] = defaultdict(list)
    for path, text in texts(document):
        about = _DISTRACTOR.search(text) or any(
            isinstance(step, str) and _DISTRACTOR.search(step) for step in path[-1:]
        )
        if about or any(isinstance(step, str) and _DISTRACTOR.search(step) for step in path):
            for token in tokens_of(text):
                if token.kind == "number" and not token.decimals and not token.sign and token.value >= 10_000:
                    made[int(token.value)].append(path)
    return made


def _sum(
    first: Path_,
    second: Path_,
    tables: Mapping[Path_, Mapping[str, int]],
    stated: Mapping[int, list[Path_]],
    seen: set[int],
) -> Iterator[Finding]:
    """ "gallery + distractors": the larger table exceeds the smaller by one number, which texts give."""
    small, large = tables[first], tables[second]
    if small.keys() != large.keys() or not all(large[key] > small[key] for key in small):
        return
    if not any("plus1m" in all_words([str(step)]) for step in second[-1:]):
        return
    added = {key: large[key] - small[key] for key in small}
    counted = Counter(added.values())
    known = [count for count in counted if count in stated]
    common = known[0] if known else counted.most_common(1)[0][0]
    related = [first, *stated.get(common, [])]
    if len(counted) == 1 and known:
        text = f"each gallery is larger by {common:,}, the number of distractors given in {len(stated[common])} places"
        yield found("right", "sum", second, text, related)
        others = {count: paths for count, paths in stated.items() if count != common and _near(count, common)}
        for count, paths in others.items():
            yield found(
                "error",
                "sum",
                paths[0],
                f"{count:,} distractors here, the galleries hold {common:,}",
                related,
            )
    elif len(counted) == 1:
        text = f"each gallery is larger by {common:,}, a number of distractors that no text gives"
        yield found(
            "error" if stated else "note",
            "sum",
            second,
            text,
            [first, *(path for paths in stated.values() for path in paths)],
        )
    else:
        for key, count in added.items():
            if count != common:
                text = (
                    f"{key}: {large[key]:,} − {small[key]:,} = {count:,} distractors, for others {common:,}"
                )
                yield found("error", "sum", second + (key,), text, [first + (key,), *related])


def _sizes(document: Mapping, tables: Mapping[Path_, Mapping[str, int]]) -> Iterator[Finding]:
    """Gallery sizes in sentences are those of the tables."""
    galleries = {
        path: counts for path, counts in tables.items() if any("galler" in str(step).lower() for step in path)
    }
    if not galleries:
        return
    for path, text in texts(document):
        for match in _GALLERIES.finditer(text):
            sizes = [
                int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\d", match.group("sizes"))
            ]
            same = [place for place, counts in galleries.items() if list(counts.values()) == sizes]
            shown = " and ".join(f"{size:,}" for size in sizes)
            if same:
                yield found("right", "agreement", path, f"galleries of {shown}, as listed", same)
            elif any(len(counts) == len(sizes) for counts in galleries.values()):
                text_ = f"galleries of {shown} are not those listed"
                yield found("error", "agreement", path, text_, list(galleries))
        for match in _BASE.finditer(text):
            name, size = dataset(match.group("name")), int(match.group("size").replace(",", ""))
            known = {
                place + (key,): counts[key]
                for place, counts in galleries.items()
                for key in counts
                if name is not None and dataset(key) == name
            }
            if known:
                right = size in known.values()
                text_ = f"{match.group()!r} is {'' if right else 'not '}a gallery size listed for {name}"
                yield found("right" if right else "error", "agreement", path, text_, list(known))


def _slips(document: Mapping) -> Iterator[Finding]:
    """A whole number that stands once, one digit away from one that stands several times."""
    places: dict[int, list[Path_]] = defaultdict(list)
    in_text: set[int] = set()
    for path, value in numbers(document):
        if value == value.to_integral_value() and value >= 0:
            places[int(value)].append(path)
    for path, text in texts(document):
        for token in tokens_of(text):
            if token.kind == "number" and not token.decimals and not token.sign:
                places[int(token.value)].append(path)
                in_text.add(int(token.value))
    by_length: dict[int, list[int]] = defaultdict(list)
    for value in sorted(places):
        by_length[len(str(value))].append(value)
    for length, values in by_length.items():
        # A long number differs from another by one digit hardly ever by chance.
        often = [value for value in values if len(places[value]) > 1 or length >= MANY_DIGITS]
        if length < LEAST_DIGITS or len(often) > 500:
            continue
        for value in values:
            if len(places[value]) > 1 or value in YEARS:
                continue
            for other in often:
                told = value in in_text and (other in in_text or len(places[other]) > 1)
                if told and _near(value, other) and (len(places[other]) > 1 or value < other):
                    text = f"{value:,} stands here only, {other:,} in {_places(len(places[other]))}: a slip?"
                    yield found("warning", "slip", places[value][0], text, places[other])


def _places(count: int) -> str:
    return "1 other place" if count == 1 else f"{count} places"


def _near(first: int, second: int) -> bool:
    """Whether two numbers differ in one digit, or in the order of two neighbouring ones."""
    one, other = str(first), str(second)
    if len(one) != len(other) or one == other:
        return False
    places = [index for index in range(len(one)) if one[index] != other[index]]
    if len(places) == 1:
        return True
    return (
        len(places) == 2
        and places[1] == places[0] + 1
        and one[places[0]] == other[places[1]]
        and one[places[1]] == other[places[0]]
    )
