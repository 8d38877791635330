"""Recomputes every difference that a sentence states."""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from cairn.card.document import LONGEST_TEXT, Path_, texts, walk
from cairn.card.finding import Finding, found
from cairn.card.prose import Stated, differences
from cairn.card.repeats import check_quote, quotes
from cairn.card.resolving import Pair, Speech, best, owned, pairs, place, rounded_to, unsure, value
from cairn.card.rows import Table
from cairn.card.superlatives import check_best, check_level
from cairn.card.tokens import sentences

_DIGIT = re.compile(r"\d")
SENTENCES_BEFORE = 3
"""How far back a sentence may lean on those before it."""


def check_statements(
    document: Mapping, table: Table, otherwise: frozenset[Path_] = frozenset()
) -> Iterator[Finding]:
    """Findings about every sentence of `document` that compares or repeats results.

    `otherwise`: places of sentences that are checked in another way.
    """
    for path, text in walk(document):
        if isinstance(text, str) and len(text) > LONGEST_TEXT:
            message = f"a text of {len(text):,} characters; the first {LONGEST_TEXT:,} were read"
            yield found("note", "unread", path, message)
    for path, text in texts(document) if table.rows else ():
        if path in otherwise:
            continue
        speech = Speech(path)
        parsed = sentences(text)
        for number, sentence in enumerate(parsed):
            before = parsed[max(0, number - SENTENCES_BEFORE) : number]
            yield from check_best(sentence, before, table, speech)
            yield from check_level(sentence, before, table, speech)
            if not _DIGIT.search(sentence.text):
                continue
            for quote in quotes(sentence, before):
                yield from check_quote(quote, sentence, table, speech)
            stated = differences(sentence, before)
            for group in _groups(stated):
                yield from _check_group(group, table, speech)
            speech.subject = next((item.subject for item in stated if item.subject), speech.subject)


def _groups(stated: Sequence[Stated]) -> list[list[Stated]]:
    """Differences with one subject and one reference together; a range is a group of its own."""
    made: list[list[Stated]] = []
    for item in stated:
        last = made[-1][-1] if made else None
        joined = last is not None and (
            item.bound == "high" if last.bound == "low" else not (item.bound or last.bound)
        )
        same = last is not None and (last.subject, last.reference, last.direction) == (
            item.subject,
            item.reference,
            item.direction,
        )
        if joined and same:
            made[-1].append(item)
        else:
            made.append([item])
    return made


def _check_group(group: Sequence[Stated], table: Table, speech: Speech) -> Iterator[Finding]:
    readings = pairs(table, group[0], speech, [(item.dataset, item.column) for item in group])
    if not readings:
        for item in group:
            yield found("note", "unresolved", speech.path, _unresolved(item))
    elif group[0].bound == "low" and len(group) == 2:
        yield from _check_range(group, table, speech, readings)
    else:
        good = best(readings)
        # Several numbers that all fit one other reading: the sentence meant that one.
        candidates = readings if len(group) > 1 else good
        fits = (pair for pair in candidates if all(_is_right(item, pair, table) for item in group))
        chosen = next(fits, good[0])
        speech.remember([chosen.subject, chosen.reference])
        for item in group:
            checked = _check_difference(item, chosen, readings, table, speech)
            if checked.severity == "error" and unsure(table, item, speech, chosen):
                checked = found("note", "unresolved", speech.path, _unresolved(item))
            yield checked


def _check_difference(
    item: Stated, pair: Pair, readings: Sequence[Pair], table: Table, speech: Speech
) -> Finding:
    key = (item.dataset, item.column)
    actual, expected = _actual(item, pair, table), _expected(item)
    related = [place(pair.subject, key, table), place(pair.reference, key, table)]
    shown = (
        f"{value(pair.subject, key, table)} ({pair.subject.name}) − "
        f"{value(pair.reference, key, table)} ({pair.reference.name}) = {actual:+f}"
    )
    what = f"{item.token.text}{_what(item)}"
    if rounded_to(actual, expected, item.token.decimals):
        return found("right", "difference", speech.path, f"{what}: {shown}", related)
    if rounded_to(-actual, expected, item.token.decimals):
        return found("error", "difference", speech.path, f"{what} has the wrong direction: {shown}", related)
    other = next((reading for reading in readings if _is_right(item, reading, table)), None)
    if other is not None and not item.token.sign and other.score >= readings[0].score - 1:
        related += [place(other.subject, key, table), place(other.reference, key, table)]
        text = (
            f"{what} is right for {other.subject.name} against {other.reference.name}, but the words fit "
            f"others better: {shown}"
        )
        return found("warning", "difference", speech.path, text, related)
    return found("error", "difference", speech.path, f"{what} is wrong: {shown}", related)


def _check_range(
    group: Sequence[Stated], table: Table, speech: Speech, readings: Sequence[Pair]
) -> Iterator[Finding]:
    """ "3.3 to 3.4 points below L2G": the smallest and the largest difference over the subjects."""
    key = (group[0].dataset, group[0].column)
    reference = readings[0].reference
    subjects = owned(table, reference.table, [key])
    if len(subjects) < 2:
        subjects = [pair.subject for pair in best(readings) if pair.reference is reference]
    speech.remember([reference])
    direction = group[0].direction or 1
    away = sorted(
        (
            (value(row, key, table) - value(reference, key, table)) * direction,
            row.name,
            place(row, key, table),
        )
        for row in subjects
        if row is not reference
    )
    side = "above" if direction > 0 else "below"
    for item, (actual, name, where) in zip(group, (away[0], away[-1]), strict=True):
        right = rounded_to(actual, abs(item.token.value), item.token.decimals)
        text = (
            f"{item.token.text}{_what(item)}, the {item.bound} end of a range, is {'right' if right else 'wrong'}: "
            f"{name} is {actual:f} {side} {reference.name}"
        )
        related = [where, place(reference, key, table)]
        yield found("right" if right else "error", "difference", speech.path, text, related)


def _actual(item: Stated, pair: Pair, table: Table) -> Decimal:
    key = (item.dataset, item.column)
    return value(pair.subject, key, table) - value(pair.reference, key, table)


def _expected(item: Stated) -> Decimal:
    """The stated difference as subject minus reference."""
    if item.direction == 0:
        return item.token.value
    return abs(item.token.value) * item.direction


def _is_right(item: Stated, pair: Pair, table: Table) -> bool:
    return rounded_to(_actual(item, pair, table), _expected(item), item.token.decimals)


def _what(item: Stated) -> str:
    parts = [part for part in (item.dataset, item.column) if part and not part.startswith("#")]
    return f" ({', '.join(parts)})" if parts else ""


def _unresolved(item: Stated) -> str:
    return (
        f"the difference {item.token.text}{_what(item)} could not be tied to two rows of results "
        f"(subject {item.subject.strip()!r}, reference {item.reference.strip()!r}): not checked"
    )
