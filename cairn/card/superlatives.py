"""Checks "best published", "level with" and "no cell moves more than" against every cell they cover."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from cairn.card.document import Path_, json_path, texts
from cairn.card.finding import Finding, found
from cairn.card.resolving import Asked, Speech, fitting, owned, place, row_has, told, value
from cairn.card.rows import Key, Row, Table
from cairn.card.tokens import Sentence, sentences, subject_before
from cairn.card.words import bare, column, dataset, words

LEVEL_POINTS = Decimal("0.5")
"""Points within which "level with" passes where a document gives neither interval nor deviation."""
ABOUT = Decimal("1.1")
"""What "about N" ("~N") may reach, as a multiple of N."""

_BEST = re.compile(r"\bbest (?:published|reported|prior|known|previous)\b", re.IGNORECASE)
_EXCEEDS = re.compile(
    r"\b(?:exceeds?|beats?|outperforms?|surpass(?:es)?|above|ahead of|better than|higher than)\b",
    re.IGNORECASE,
)
_EVERY = re.compile(r"\b(?:both|all|each|every)\b", re.IGNORECASE)
_LEVEL = re.compile(r"\b(?:level|on par|comparable) (?:with|to)\s+(?P<reference>[^();:]*)", re.IGNORECASE)
_UNTIL_NUMBER = re.compile(r"\s+(?:and|but|while)?\s*[+\-−]?\d+\.\d.*$")
_BOUND = re.compile(
    r"\b(?:no|not a single|none of the) (?:single )?(?:cell|number|result|score|value|benchmark|metric)s?\s"
    r"(?:moves?|changes?|differs?|shifts?|drops?|varies|vary)\s(?:by )?(?:more than|over|above)\s"
    r"(?P<about>~|about |around |roughly |≈)?\s?(?P<limit>\d{1,3}(?:\.\d{1,4})?)",
    re.IGNORECASE,
)
_VERSUS = re.compile(r"\b([\w.]+)[ -](?:vs\.?|versus|against)[ -]([\w.]+)\b", re.IGNORECASE)


def check_best(
    sentence: Sentence, before: Sequence[Sentence], table: Table, speech: Speech
) -> Iterator[Finding]:
    """ "X exceeds the best published numbers on D": against every row of others in X's table."""
    if not _BEST.search(sentence.text):
        return
    names = _mentioned(sentence, dataset)
    kinds = [kind for kind in _mentioned(sentence, column) if kind != "map"]
    if _EXCEEDS.search(sentence.text):
        subject = subject_before(sentence)
        for subjects, others in _contests(table, words(sentence.text)):
            named = [row for row in subjects if told(row, subject, table)] or subjects
            every = _EVERY.search(sentence.text) is not None
            made = [
                finding
                for key in _keys(others, names, kinds)
                for finding in _exceeds(named, others, key, every, speech)
            ]
            # Where no benchmark is named, one on which it holds may be meant.
            open_ended = not names and any(finding.severity == "right" for finding in made)
            for finding in made:
                yield (
                    replace(finding, severity="warning")
                    if open_ended and finding.severity == "error"
                    else finding
                )
        return
    # A note beside a row: "best published numbers we are aware of".
    holder = speech.path[:-1]
    row = next((row for row in table.rows if row.place == holder), None)
    if row is None or row.own:
        return
    others = [other for other in table.rows if other.table == row.table and other.own is False]
    for key in _keys([row], names, kinds):
        above = [o for o in others if key in o.cells and o.cells[key].value > row.cells[key].value]
        shown = f"{row.name} is called best ({key[0]}, {key[1]}: {row.cells[key].value})"
        places = [row.cells[key].path, *(other.cells[key].path for other in above)]
        if above:
            text = f"{shown}, but {above[0].name} has {above[0].cells[key].value}"
            yield found("error", "best", speech.path, text, places)
        else:
            text = f"{shown}: no other published row of the table is above it"
            yield found("right", "best", speech.path, text, places)


def check_level(
    sentence: Sentence, before: Sequence[Sentence], table: Table, speech: Speech
) -> Iterator[Finding]:
    """ "level with X": within the interval of the value, its standard deviation, or LEVEL_POINTS."""
    said = _LEVEL.search(sentence.text)
    if said is None:
        return
    mention = _UNTIL_NUMBER.sub("", said.group("reference"))
    head = sentence.text[: said.start()]
    names = [name for word in re.findall(r"[\w+@-]+", head) if (name := dataset(word))]
    kinds = [kind for word in re.findall(r"[\w+@-]+", head) if (kind := column(word)) and kind != "map"]
    key = (names[0] if len(names) == 1 else None, kinds[0] if len(kinds) == 1 else None)
    plus = " plus1m" if "plus1m" in words(sentence.text) else ""
    references = fitting(table, mention + plus, speech, lambda row: row_has(row, key, table))
    if not references:
        return
    reference = references[0]
    speech.remember([reference])
    subjects = [row for row in owned(table, reference.table, [key]) if row is not reference]
    named = fitting(table, head + plus, speech, lambda row: row in subjects)
    for row in named or subjects:
        away = value(row, key, table) - value(reference, key, table)
        allowed, why = _tolerance(row, reference, key, table)
        text = (
            f'"level with" {reference.name}: {row.name} is {away:+f} away, '
            f"{'within' if abs(away) <= allowed else 'more than'} {allowed:f} ({why})"
        )
        places = [place(row, key, table), place(reference, key, table)]
        yield found("right" if abs(away) <= allowed else "warning", "level", speech.path, text, places)


def check_bounds(document: Mapping, table: Table) -> Iterator[Finding]:
    """ "no cell moves more than N": against each pair of rows that differ in what the text compares.

    The pairs are those of sibling keys that the text names ("standard-vs-decon"), else of a section's only
    two. Beyond N in the text's own section is an error; beyond it elsewhere in the document is a warning, since
    the sentence does not say how far it reaches.
    """
    for path, text in texts(document):
        for sentence in sentences(text):
            said = _BOUND.search(sentence.text)
            if said is None:
                continue
            conditions = _conditions(text, path, table)
            if conditions is None:
                yield found(
                    "note",
                    "bound",
                    path,
                    f"{said.group()!r}: the two things compared are not named; not checked",
                )
                continue
            limit = Decimal(said.group("limit"))
            reach = limit * ABOUT if said.group("about") else limit
            yield from _bounded(path, said.group(), conditions, reach, table)


def _bounded(
    path: Path_, said: str, conditions: tuple[str, str], reach: Decimal, table: Table
) -> Iterator[Finding]:
    moves: dict[Path_, list[tuple[Decimal, Key, Row, Row]]] = defaultdict(list)
    for first in table.rows:
        if not first.path or first.path[-1] != conditions[0]:
            continue
        second = next((row for row in table.rows if row.path == first.path[:-1] + (conditions[1],)), None)
        if second is not None:
            for key in first.cells:
                if key in second.cells:
                    change = second.cells[key].value - first.cells[key].value
                    moves[first.path[:-1]].append((abs(change), key, first, second))
    for section, cells in moves.items():
        largest = max(cells, key=lambda item: item[0])
        beyond = sorted((item for item in cells if item[0] > reach), key=lambda item: -item[0])
        inside = section[: len(path) - 1] == path[:-1]
        where = json_path(section)
        if beyond:
            listed = ", ".join(f"{key[0]} {key[1]} {change:f}" for change, key, _, _ in beyond)
            text = (
                f"{said!r} does not hold for {where}, {conditions[0]} against {conditions[1]}: {listed}"
                + ("" if inside else "; the sentence does not say that it is about other numbers only")
            )
            places = [row.cells[key].path for _, key, first, second in beyond for row in (first, second)]
            yield found("error" if inside else "warning", "bound", path, text, places)
        else:
            change, key, first, second = largest
            text = f"{said!r} holds for {where}: the largest change is {change:f} ({key[0]} {key[1]})"
            yield found("right", "bound", path, text, [first.cells[key].path, second.cells[key].path])


def _conditions(text: str, path: Path_, table: Table) -> tuple[str, str] | None:
    last = {str(row.path[-1]) for row in table.rows if row.path}
    by_name = {bare(name): name for name in sorted(last)}
    for first, second in _VERSUS.findall(text):
        if bare(first) in by_name and bare(second) in by_name:
            return by_name[bare(first)], by_name[bare(second)]
    near = list(
        dict.fromkeys(
            str(row.path[-1]) for row in table.rows if row.path and row.path[: len(path) - 1] == path[:-1]
        )
    )
    return (near[0], near[1]) if len(near) == 2 else None


def _contests(table: Table, said: frozenset[str]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Own rows and others' rows of each table that has both."""
    for among in dict.fromkeys(row.table for row in table.rows):
        rows = [row for row in table.rows if row.table == among]
        subjects = [row for row in rows if row.own]
        others = [row for row in rows if row.own is False]
        if subjects and others and ("plus1m" not in said or any("plus1m" in row.words for row in rows)):
            yield subjects, others


def _exceeds(
    subjects: Sequence[Row], others: Sequence[Row], key: Key, every: bool, speech: Speech
) -> Iterator[Finding]:
    """Findings for one cell: "both exceed" is about every subject, "X exceeds" about the best row of X."""
    best = max((row for row in others if key in row.cells), key=lambda row: row.cells[key].value)
    top = best.cells[key].value
    rows = [row for row in subjects if key in row.cells]
    if rows and not every:
        rows = [max(rows, key=lambda row: row.cells[key].value)]
    for row in rows:
        mine = row.cells[key].value
        text = (
            f"{row.name} {mine} ({key[0]}, {key[1]}) is {'above' if mine > top else 'not above'} the best published "
            f"of the table, {best.name} {top}"
        )
        places = [row.cells[key].path, best.cells[key].path]
        yield found("right" if mine > top else "error", "best", speech.path, text, places)


def _keys(rows: Sequence[Row], names: Sequence[str], kinds: Sequence[str]) -> list[Key]:
    keys = dict.fromkeys(key for row in rows for key in row.cells)
    return [key for key in keys if (not names or key[0] in names) and (not kinds or key[1] in kinds)]


def _mentioned(sentence: Sentence, meaning) -> list[str]:
    found_ = (meaning(token.text) for token in sentence.tokens if token.kind == "word")
    return list(dict.fromkeys(name for name in found_ if name))


def _tolerance(row: Row, reference: Row, key: Asked, table: Table) -> tuple[Decimal, str]:
    mine = row.cells[next(k for k in row.cells if row.cells[k].path == place(row, key, table))]
    if mine.low is not None and mine.high is not None:
        side = mine.high - mine.value if value(reference, key, table) >= mine.value else mine.value - mine.low
        return side, "its interval"
    spreads = [
        cell.spread
        for other in table.rows
        for have, cell in other.cells.items()
        if cell.spread is not None and key[0] in (None, have[0]) and key[1] in (None, have[1])
    ]
    if spreads:
        return max(spreads), "the largest standard deviation over seeds in the document"
    return LEVEL_POINTS, "no interval or deviation is given"
