"""Checks counts against each other: excluded and remaining, parts and totals, flagged and existing."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from cairn.card.document import Path_, clauses, is_number, lookup, numbers, texts, walk
from cairn.card.finding import Finding, found

UNITS = {"class": "class", "classes": "class", "image": "image", "images": "image", "photos": "image"}
"""Nouns that sets are counted in → one name each."""
PLURALS = {"class": "classes", "image": "images"}

_COUNTED = re.compile(
    r"(?<![\w.,$])(?P<count>\d{1,3}(?:,\d{3})+|\d+)(?![\w.]*\d|%)(?P<between>(?:\s[A-Za-z][\w-]*){0,3}?)\s"
    r"(?P<unit>classes|class|images|image|photos)\b"
)
_KEYED = re.compile(r"\b(?P<key>[a-z]+(?:_[a-z]+)+)[ :=]+(?P<count>\d[\d,]*)\b")
_MINUS = re.compile(
    r"\b(?:minus|without|excluding|except|less)\s(?:the |those |these )?(?P<count>\d[\d,]*)\s"
    r"(?:[A-Za-z][\w-]*\s){0,2}?(?P<unit>classes|images)\b"
)
_FLAGGED = re.compile(
    r"\b(?:match(?:es|ed)?|flag(?:s|ged)?|exclud(?:e|es|ed)|leak\w*|minus)\b", re.IGNORECASE
)
_SAMPLE = re.compile(r"\b(?:random|sampled?|stratified)\b", re.IGNORECASE)
_OTHERS = re.compile(r"published_(?!class)|baseline|prior|related", re.IGNORECASE)
_OF = re.compile(
    r"(?<![\w.])(?P<part>\d[\d,]*) of (?:the |its |all |[A-Z][\w-]*'s )?(?P<whole>\d[\d,]*)(?![\w.]*\d)"
    r"(?P<after>[^.;]*)"
)
_PERCENT = re.compile(r"(?<![\w.])(?P<percent>\d{1,3}(?:\.\d+)?)\s?%")
_FOUND = re.compile(r"\b(?:found|detected|recovered|caught)\b", re.IGNORECASE)
_SET_HAS = re.compile(
    r"\b(?P<name>[A-Z][\w-]*\d[\w-]*) (?:removes|has|holds|contains|lists) "
    r"(?P<count>\d[\d,]*) (?P<unit>classes|images)\b"
)
_SET_OF = re.compile(r"\b(?P<name>[A-Z][\w-]*\d[\w-]*)'s (?P<rest>\d[^.;]*)")
_PART_OF = re.compile(r"(?:^|of its |of the )(?P<count>\d[\d,]*) (?P<unit>classes|images)\b")
_MARGIN = re.compile(r"(?<![\w.])(?P<middle>0\.\d+) ?(?:\+/-|±) ?(?P<margin>0\.\d+)")


@dataclass(frozen=True)
class Count:
    """How many of `unit` something has, and where that stands."""

    count: int
    unit: str
    path: Path_


@dataclass(frozen=True)
class Sizes:
    """The numbers of classes and images of one set, and where they stand."""

    classes: Count
    images: Count


def check_counts(document: Mapping) -> Iterator[Finding]:
    """Findings about counts that are tied to each other."""
    flagged = _flagged(document)
    for unit, counts in flagged.items():
        yield from _agreement(unit, counts)
    yield from _shares(document, flagged)
    yield from _exclusions(document)
    yield from _precision(document, flagged)
    yield from _named_sets(document)
    yield from _samples(document)


def _flagged(document: Mapping) -> dict[str, list[Count]]:
    """Every statement of how many classes or images were matched, flagged, or left out."""
    made: dict[str, list[Count]] = defaultdict(list)
    for path, text in texts(document):
        if any(isinstance(step, str) and _OTHERS.search(step) for step in path):
            continue
        for sentence in clauses(text):
            if _FLAGGED.search(sentence):
                for match in _COUNTED.finditer(sentence):
                    if not _SAMPLE.search(match.group("between")):
                        made[UNITS[match.group("unit")]].append(_count(match, path))
        for match in _KEYED.finditer(text):
            unit = _unit_of(match.group("key"))
            if unit and _FLAGGED.search(match.group("key").replace("_", " ")):
                made[unit].append(Count(_whole(match.group("count")), unit, path))
    for path, value in numbers(document):
        key = str(path[-1])
        unit = _unit_of(key)
        if unit and _FLAGGED.search(key.replace("_", " ")) and value == value.to_integral_value():
            made[unit].append(Count(int(value), unit, path))
    return made


def _agreement(unit: str, counts: Sequence[Count]) -> Iterator[Finding]:
    values = defaultdict(list)
    for item in counts:
        values[item.count].append(item.path)
    if len(values) == 1 and len(counts) > 1:
        text = f"{counts[0].count:,} flagged {PLURALS[unit]}, {len(counts)} times"
        yield found("right", "agreement", counts[0].path, text, [item.path for item in counts[1:]])
    elif len(values) > 1:
        most = max(values, key=lambda value: len(values[value]))
        for value, paths in values.items():
            if value != most:
                text = f"{value:,} flagged {PLURALS[unit]} here, {most:,} in {len(values[most])} other places"
                yield found("error", "agreement", paths[0], text, values[most])


def _shares(document: Mapping, flagged: Mapping[str, Sequence[Count]]) -> Iterator[Finding]:
    """ "757 of 995 …, 76%": no part above its whole, and the percentage that of the two."""
    for path, text in texts(document):
        for match in (match for clause in clauses(text) for match in _OF.finditer(clause)):
            part, whole = _whole(match.group("part")), _whole(match.group("whole"))
            said = f"{match.group('part')} of {match.group('whole')}"
            if part > whole:
                yield found("error", "share", path, f"{said}: the part is above the whole")
                continue
            percent = _PERCENT.search(match.group("after"))
            if percent and whole:
                actual = Decimal(100 * part) / whole
                stated = Decimal(percent.group("percent"))
                decimals = len(percent.group("percent").partition(".")[2])
                right = abs(actual - stated) <= Decimal(5).scaleb(-decimals - 1)
                text_ = f"{said} is {actual:.2f}%, {'stated' if right else 'not'} {stated}%"
                yield found("right" if right else "error", "share", path, text_)
            unit = _unit_of(str(path[-1]))
            known = {item.count for item in flagged.get(unit or "", ())}
            if unit and "precision" in str(path[-1]) and known:
                right = whole in known
                text_ = f"{said}: {whole:,} is {'' if right else 'not '}the number of flagged {PLURALS[unit]}"
                related = [item.path for item in flagged.get(unit, ())]
                yield found("right" if right else "error", "agreement", path, text_, related)


def _exclusions(document: Mapping) -> Iterator[Finding]:
    """ "A minus the N classes": the set without them has N fewer classes, and as many fewer images.

    Where the numbers differ, one rule may explain both: classes of k images each that fall below a minimum
    size are dropped as well. The rule is tested on the other totals that the document gives.
    """
    sets = _sets(document)
    pairs = _class_image_pairs(document)
    for path, sizes in sets.items():
        texts_ = [(key, value) for key, value in lookup(document, path).items() if isinstance(value, str)]
        for key, text in texts_:
            match = _MINUS.search(text)
            if match is None:
                continue
            stated = _whole(match.group("count"))
            wholes = [other for place, other in sets.items() if place[:-1] == path[:-1] and place != path]
            for whole in wholes:
                yield from _exclusion(path + (key,), match, stated, whole, sizes, pairs)


def _exclusion(
    path: Path_,
    match: re.Match[str],
    stated: int,
    whole: Sizes,
    rest: Sizes,
    pairs: Sequence[Sizes],
) -> Iterator[Finding]:
    by_classes = match.group("unit") == "classes"
    fewer_classes = whole.classes.count - rest.classes.count
    fewer_images = whole.images.count - rest.images.count
    excluded = next(
        (pair for pair in pairs if (pair.classes if by_classes else pair.images).count == stated), None
    )
    related = [whole.classes.path, rest.classes.path, whole.images.path, rest.images.path]
    fewer = fewer_classes if by_classes else fewer_images
    unit = match.group("unit")
    if excluded is None:
        right = fewer == stated
        text = f"{match.group()!r}: the two sets differ by {fewer:,} {unit}"
        yield found("right" if right else "error", "exclusion", path, text, related)
        return
    related += [excluded.classes.path]
    lost = (excluded.classes.count - fewer_classes, excluded.images.count - fewer_images)
    shown = (
        f"{excluded.classes.count:,} classes with {excluded.images.count:,} images are said to be left out, the sets "
        f"differ by {fewer_classes:,} and {fewer_images:,}"
    )
    if lost == (0, 0):
        yield found("right", "exclusion", path, shown, related)
        return
    size = _dropped_size(lost)
    if size is None:
        text = f"{shown}: {lost[0]:+,} classes and {lost[1]:+,} images that no single rule explains"
        yield found("error", "exclusion", path, text, related)
        return
    text = (
        f"{shown}: consistent where the sets leave out classes of {_number(size)} images, "
        f"{lost[0]:,} of which were among the excluded ({lost[0]:,} × {size} = {lost[1]:,} images)"
    )
    for pair in pairs:
        gone = (pair.classes.count - whole.classes.count, pair.images.count - whole.images.count)
        if gone[0] > 0 and gone[1] > 0:
            same = _dropped_size(gone) == size
            text += (
                f"; {'also' if same else 'but not'} {pair.images.count:,} → {whole.images.count:,} images over "
                f"{pair.classes.count:,} → {whole.classes.count:,} classes "
                f"({gone[0]:,} classes with {gone[1]:,} images)"
            )
            related += [pair.images.path]
            if not same:
                yield found("error", "exclusion", path, text, related)
                return
    yield found("warning", "exclusion", path, text + "; the file does not say so", related)


def _dropped_size(lost: tuple[int, int]) -> int | None:
    """Images per class where classes of one small size account for the difference."""
    classes, images = lost
    if classes <= 0 or images <= 0 or images % classes or images // classes > 20:
        return None
    return images // classes


def _sets(document: Mapping) -> dict[Path_, Sizes]:
    """Objects with one number of classes and one of images: `{train_classes: …, train_images: …}`."""
    made: dict[Path_, Sizes] = {}
    for path, value in walk(document):
        if not isinstance(value, Mapping):
            continue
        counts: dict[str, list[Count]] = defaultdict(list)
        for key, item in value.items():
            unit = _unit_of(key)
            if unit and is_number(item) and Decimal(item) == Decimal(item).to_integral_value():
                counts[unit].append(Count(int(item), unit, path + (key,)))
        if len(counts["class"]) == len(counts["image"]) == 1:
            made[path] = Sizes(counts["class"][0], counts["image"][0])
    return made


def _class_image_pairs(document: Mapping) -> list[Sizes]:
    """Sets whose classes and images a text counts together: "87 classes containing 2529 images"."""
    made: dict[tuple[int, int], Sizes] = {}
    for path, text in texts(document):
        for sentence in clauses(text):
            counted = [_count(match, path) for match in _COUNTED.finditer(sentence)]
            for first, second in itertools.pairwise(counted):
                if first.unit == "class" and second.unit == "image":
                    made.setdefault((first.count, second.count), Sizes(first, second))
        keyed: dict[str, dict[str, Count]] = defaultdict(dict)
        for match in _KEYED.finditer(text):
            unit = _unit_of(match.group("key"))
            if unit:
                prefix = match.group("key").split("_")[0]
                keyed[prefix][unit] = Count(_whole(match.group("count")), unit, path)
        for counts in keyed.values():
            if len(counts) == 2:
                key = (counts["class"].count, counts["image"].count)
                made.setdefault(key, Sizes(counts["class"], counts["image"]))
    return list(made.values())


def _precision(document: Mapping, flagged: Mapping[str, Sequence[Count]]) -> Iterator[Finding]:
    """Precision × flagged is how many were rightly flagged: no more than there are, and as many as were found.

    There are as many as a statement "A of B images found" (a recall) says.
    """
    recalls = [
        (path, _whole(match.group("part")), _whole(match.group("whole")))
        for path, text in texts(document)
        for clause in clauses(text)
        for match in _OF.finditer(clause)
        if "recall" in str(path[-1]).lower() or _FOUND.search(match.group("after"))
    ]
    for path, value in numbers(document):
        key = str(path[-1])
        unit = _unit_of(key)
        if not key.endswith("precision") or unit is None or not flagged.get(unit) or not 0 <= value <= 1:
            continue
        counted = Counter(item.count for item in flagged[unit])
        count = max(flagged[unit], key=lambda item: counted[item.count])
        bounds = lookup(document, path[:-1]).get(f"{key}_ci95")
        interval = isinstance(bounds, list) and len(bounds) == 2 and all(map(is_number, bounds))
        low, high = map(Decimal, bounds) if interval else (value, value)
        right = value * count.count
        for place, caught, existing in recalls:
            if place[:-1] != path[:-1]:
                continue
            sum_ = f"{key} {value} × {count.count:,} flagged {PLURALS[unit]} = {right:,.0f}"
            if right > existing:
                worst = (
                    f", and {low * count.count:,.0f} at the low end of its interval"
                    if low * count.count > existing and low != value
                    else ""
                )
                text = (
                    f"{sum_}{worst}: more than the {existing:,} {PLURALS[unit]} said to exist, "
                    f"of which {caught:,} were found; some denominator is not stated"
                )
                yield found("error", "denominator", path, text, [count.path, place])
            elif not low * count.count <= caught <= high * count.count:
                text = (
                    f"{sum_}, but {caught:,} of {existing:,} are said to have been found; some denominator is not "
                    "stated"
                )
                yield found("warning", "denominator", path, text, [count.path, place])
            else:
                yield found("right", "denominator", path, f"{sum_}, {caught:,} found", [count.path, place])


def _named_sets(document: Mapping) -> Iterator[Finding]:
    """ "1,216 of X's 1,565 images" where another sentence says how many images X has."""
    told: dict[tuple[str, str], tuple[int, Path_]] = {}
    for path, text in texts(document):
        for match in _SET_HAS.finditer(text):
            key = (match.group("name"), UNITS[match.group("unit")])
            told.setdefault(key, (_whole(match.group("count")), path))
    for path, text in texts(document):
        for match in _SET_OF.finditer(text):
            for part in _PART_OF.finditer(match.group("rest")):
                known = told.get((match.group("name"), UNITS[part.group("unit")]))
                if known is None:
                    continue
                right = known[0] == _whole(part.group("count"))
                shown = f"{match.group('name')} has {known[0]:,} {part.group('unit')}"
                message = shown if right else f"{shown}, here it is said to have {part.group('count')}"
                yield found("right" if right else "error", "agreement", path, message, [known[1]])


def _samples(document: Mapping) -> Iterator[Finding]:
    """ "0.43 +/- 0.08" on a sample, beside the precision of the whole."""
    for path, value in numbers(document):
        if not str(path[-1]).endswith("precision") or not 0 <= value <= 1:
            continue
        for key, text in lookup(document, path[:-1]).items():
            match = _MARGIN.search(text) if isinstance(text, str) else None
            if match:
                middle, margin = Decimal(match.group("middle")), Decimal(match.group("margin"))
                inside = abs(middle - value) <= margin
                message = (
                    f"{match.group()} {'agrees' if inside else 'does not agree'} with {path[-1]} {value}"
                )
                yield found("right" if inside else "error", "agreement", path[:-1] + (key,), message, [path])


def _unit_of(key: str) -> str | None:
    units = {UNITS[part] for part in key.lower().split("_") if part in UNITS}
    return units.pop() if len(units) == 1 else None


def _count(match: re.Match[str], path: Path_) -> Count:
    return Count(_whole(match.group("count")), UNITS[match.group("unit")], path)


def _whole(text: str) -> int:
    digits = text.replace(",", "")
    return int(digits) if len(digits) <= 30 else 0


def _number(value: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[value] if value < len(words) else str(value)
