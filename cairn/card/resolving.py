"""Decides which rows of a document a sentence speaks of."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from cairn.card.document import Path_
from cairn.card.prose import Stated
from cairn.card.rows import Key, Row, Table
from cairn.card.words import opposite, words

Asked = tuple[str | None, str | None]
"""A cell as a sentence asks for it: benchmark and column, None for any, `#1` for the second of the table."""

# How much each hint counts, in the unit of a word's weight (the logarithm of its rarity among the rows).
_CONTRADICTION = 2.0
_OWNER = 1.5
_NEAR = 1.0
_TABLE = 1.5
_MEANS = 1.0
_AGAIN = 3.0
_OTHER_MEASURE = 3.0
# The least weight of words that singles a row out.
ENOUGH = 0.3
# Rows whose score is this close to the best one's may be meant as well.
MARGIN = 0.35
# What sums of weights in another order may differ by.
_AS_MUCH = 1e-9

_OWN = re.compile(r"\b(our|ours|we|this (?:repository|release|work|paper))\b", re.IGNORECASE)
_LARGER = re.compile(r"\bplus1m\b|\+1M\b")
_AGAIN_WORDS = re.compile(r"^(that|this|these|those|it|the same|the latter|the former)\b", re.IGNORECASE)
_PRONOUN = re.compile(r"^(it|they|this|these)\b\s*$", re.IGNORECASE)


@dataclass
class Speech:
    """What a text has spoken of so far: resolved rows, and the last subject in words."""

    path: Path_
    history: list[Row] = field(default_factory=list)
    subject: str = ""

    def remember(self, rows: Iterable[Row]) -> None:
        """Note the rows that a mention turned out to mean."""
        for row in rows:
            if row in self.history:
                self.history.remove(row)
            self.history.append(row)


@dataclass(frozen=True)
class Pair:
    """One reading of a comparison: subject, reference, and how well the words fit."""

    subject: Row
    reference: Row
    score: float


def matched(row: Row, mention: str, table: Table) -> float:
    """How much the words of `mention` speak for `row`: what both have, less what contradicts."""
    said = words(mention)
    score = sum(table.weight(word) for word in said & row.words)
    score -= _CONTRADICTION * sum(
        max(table.weight(opposite(word)), 0.5) for word in said if opposite(word) in row.words
    )
    if "plus1m" in said:
        if "¬distractor" in row.words:
            score -= _CONTRADICTION
        elif "plus1m" not in row.words:
            score -= _OWNER
    return score


def told(row: Row, mention: str, table: Table) -> bool:
    """Whether the words of `mention`, the distractors aside, speak for `row` rather than another."""
    return matched(row, " ".join(_LARGER.sub(" ", mention).split()), table) > ENOUGH


def fitting(
    table: Table,
    mention: str,
    speech: Speech,
    usable: Callable[[Row], bool],
    margin: float = MARGIN,
) -> list[Row]:
    """The rows that `mention` most likely means, best first; empty where its words single out nothing."""
    scored = [
        (_scored(row, mention, table, speech), row)
        for row in table.rows
        if usable(row) and _meant(row, mention, table, speech)
    ]
    scored.sort(key=lambda item: -item[0])
    return [row for score, row in scored if score >= scored[0][0] - margin]


def pairs(table: Table, stated: Stated, speech: Speech, keys: Sequence[Asked]) -> list[Pair]:
    """The readings of a comparison whose rows have all of `keys`, best first."""
    usable = [row for row in table.rows if all(row_has(row, key, table) for key in keys)]
    references = _likely(
        table,
        stated.reference,
        speech,
        [row for row in usable if _meant(row, stated.reference, table, speech)],
    )
    subject = speech.subject if _PRONOUN.match(stated.subject.strip()) else stated.subject
    named = [row for row in usable if _meant(row, subject, table, speech)]
    # Nobody named: the document's own rows.
    owner = 0.0 if named else _OWNER
    subjects = _likely(table, subject, speech, named or [row for row in usable if row.own])
    made = [
        Pair(row, reference, reference_score + row_score + _together(row, reference) + owner)
        for reference, reference_score in references
        for row, row_score in subjects
        if row is not reference
    ]
    made.sort(key=lambda pair: -pair.score)
    return made


def best(readings: Sequence[Pair]) -> list[Pair]:
    """The readings that are as good as the best."""
    return [pair for pair in readings if pair.score >= readings[0].score - MARGIN]


def unsure(table: Table, stated: Stated, speech: Speech, pair: Pair) -> bool:
    """Whether the words of a comparison fit rows that were not asked, for want of the cell that was looked for.

    A sentence may name its benchmark in a way that is not understood; then the rows of its systems may have
    several cells, others one alone, and nothing can be said against the sentence.
    """
    if stated.dataset is not None:
        return False
    key = (stated.dataset, stated.column)
    subject = speech.subject if _PRONOUN.match(stated.subject.strip()) else stated.subject
    asked = ((subject, pair.subject), (stated.reference, pair.reference))
    return any(fits_another(table, mention, speech, row, key) for mention, row in asked)


def fits_another(table: Table, mention: str, speech: Speech, chosen: Row, key: Asked) -> bool:
    """Whether `mention` speaks clearly more for another row than for `chosen`, or as much for one without `key`."""
    score = _scored(chosen, mention, table, speech)
    return any(
        _scored(row, mention, table, speech) > score + (MARGIN if row_has(row, key, table) else -_AS_MUCH)
        for row in table.rows
        if row is not chosen and _meant(row, mention, table, speech)
    )


def row_has(row: Row, key: Asked, table: Table) -> bool:
    """Whether `row` has the cell that `key` (with `None` and `#n`) asks for."""
    return cell_key(row, key, table) is not None


def cell_key(row: Row, key: Asked, table: Table) -> Key | None:
    """The one cell of `row` that `key` asks for; None where there is none, or more than one."""
    name = _position(key[0], table.datasets)
    kind = _position(key[1], table.columns)
    found = [
        have for have in row.cells if (name is None or have[0] == name) and (kind is None or have[1] == kind)
    ]
    return found[0] if len(found) == 1 else None


def rounded_to(actual: Decimal, stated: Decimal, decimals: int) -> bool:
    """Whether `actual` is `stated` when rounded to as many decimals (a half may go either way)."""
    return abs(actual - stated) <= Decimal(5).scaleb(-decimals - 1)


def _position(said: str | None, known: Sequence[str]) -> str | None:
    if said is None or not said.startswith("#"):
        return said
    place = int(said[1:])
    return known[place] if place < len(known) else "#"


def _scored(row: Row, mention: str, table: Table, speech: Speech) -> float:
    score = matched(row, mention, table)
    if _OWN.search(mention):
        score += {True: _OWNER, False: -_OWNER, None: 0.0}[row.own]
    if speech.path[:1] == row.path[:1]:
        score += _NEAR
    if row.means and not words(mention) & words("seed mean sd"):
        score -= _MEANS
    if row in speech.history and _AGAIN_WORDS.match(mention):
        latest = [r for r in speech.history if told(r, mention, table)] or speech.history
        score += _AGAIN if row is latest[-1] else 0.0
    return score


def _meant(row: Row, mention: str, table: Table, speech: Speech) -> bool:
    """Whether the mention says anything that speaks for this row rather than another."""
    return told(row, mention, table) or (row in speech.history and _AGAIN_WORDS.match(mention) is not None)


def _together(first: Row, second: Row) -> float:
    """Rows of one table, or near one another, are compared; rows of different measures are not."""
    if first.measures != second.measures:
        return -_OTHER_MEASURE
    if first.table == second.table:
        return _TABLE
    shared = 0
    for one, other in zip(first.path, second.path, strict=False):
        if one != other:
            break
        shared += 1
    return min(_TABLE, 0.6 * shared)


def _likely(
    table: Table, mention: str, speech: Speech, rows: Sequence[Row], limit: int = 40
) -> list[tuple[Row, float]]:
    scored = [(row, _scored(row, mention, table, speech)) for row in rows]
    scored.sort(key=lambda item: -item[1])
    return scored[:limit]


def owned(table: Table, among: Path_, keys: Iterable[Asked]) -> list[Row]:
    """The document's own rows in the table at `among` that have all of `keys`."""
    wanted = list(keys)
    return [
        row
        for row in table.rows
        if row.own and row.table == among and all(row_has(row, key, table) for key in wanted)
    ]


def value(row: Row, key: Asked, table: Table) -> Decimal:
    """The value of the cell that `key` asks for; the row must have it."""
    found = cell_key(row, key, table)
    assert found is not None
    return row.cells[found].value


def place(row: Row, key: Asked, table: Table) -> Path_:
    """The path of the cell that `key` asks for; the row must have it."""
    found = cell_key(row, key, table)
    assert found is not None
    return row.cells[found].path
