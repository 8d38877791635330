"""Compares what is written twice: values quoted in sentences, and rows that stand in two tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.card.finding import Finding, found
from cairn.card.resolving import MARGIN, Asked, Speech, fitting, owned, place, rounded_to, row_has, value
from cairn.card.rows import Key, Row, Table
from cairn.card.tokens import Sentence, Token, context_of, is_verb, plain_text
from cairn.card.words import dataset, words

WIDE_MARGIN = 3.0


@dataclass(frozen=True)
class Quote:
    """Values that a sentence repeats: "L2G (92.1 / 83.4)", "ROxford 91.00 / 80.49"."""

    mention: str
    tokens: tuple[Token, ...]
    dataset: str | None
    column: str | None


def quotes(sentence: Sentence, before: Sequence[Sentence] = ()) -> list[Quote]:
    """The values that `sentence` repeats: slash pairs, and numbers in parentheses after a mention."""
    found: list[Quote] = []
    context = context_of(sentence, before)
    for position, inside in sentence.groups:
        values = [token for token in inside if token.kind == "number"]
        if not values or any(token.sign or not token.decimals for token in values):
            continue
        # Words would make it something else: "(the same 92.1 images)". A few may tie values together.
        allowed = {"and", "against", "vs", "versus", "m", "h", "e", "medium", "hard", "easy", "map", "to"}
        if any(token.kind == "word" and token.low not in allowed for token in inside):
            continue
        sides: list[list[Token]] = [[]]
        for token in inside:
            if token.low in ("against", "vs", "versus"):
                sides.append([])
            elif token.kind == "number":
                sides[-1].append(token)
        mention = _mention_before(tokens=sentence.tokens[:position])
        kind = context.columns[0] if len(context.columns) == 1 else None
        name = context.datasets[0] if len(context.datasets) == 1 else None
        if len(sides) == 2 and all(sides):
            found.append(Quote(mention, tuple(sides[1]), name, kind))
            found.append(Quote("", tuple(sides[0]), name, kind))
        elif len(sides) == 1:
            found.append(Quote(mention, tuple(sides[0]), name, None if len(values) > 1 else kind))
    found += _slash_pairs(sentence)
    return found


def check_quote(quote: Quote, sentence: Sentence, table: Table, speech: Speech) -> Iterator[Finding]:
    """Whether the values that a sentence repeats are those of the row that it mentions."""
    key: Asked = (quote.dataset, quote.column)
    one_column = len(quote.tokens) == 1 or quote.column is not None

    def usable(row: Row) -> bool:
        return row_has(row, key, table) if one_column else len(_ordered(row, quote)) >= len(quote.tokens)

    if not quote.mention:
        # "(87.21 and 87.11 against 87.1)": the first ones are those of the document's own rows.
        rows = [row for last in speech.history[-1:] for row in owned(table, last.table, [key])]
    else:
        plus = " plus1m" if "plus1m" in words(sentence.text) else ""
        # Two values or more say by themselves which of the likely rows is meant.
        margin = MARGIN if len(quote.tokens) == 1 else WIDE_MARGIN
        rows = fitting(table, quote.mention + plus, speech, usable, margin)
    if not rows:
        return
    if one_column:
        for token in quote.tokens:
            yield _check_value(token, rows, key, table, speech)
        if quote.mention:
            speech.remember(rows[:1])
        return
    row = max(rows, key=lambda row: _equal(quote, row))  # the first of the best
    speech.remember([row])
    cells = _ordered(row, quote)[: len(quote.tokens)]
    said = " / ".join(token.text for token in quote.tokens)
    have = " / ".join(str(row.cells[cell].value) for cell in cells)
    places = [row.cells[cell].path for cell in cells]
    if _equal(quote, row) == len(quote.tokens):
        yield found("right", "quote", speech.path, f"{said}: the values of {row.name}", places)
    else:
        yield found("error", "quote", speech.path, f"{said} is said of {row.name}, which has {have}", places)


def check_rows(table: Table) -> Iterator[Finding]:
    """Whether the document's own rows among those of others are the rows that it reports elsewhere.

    Two rows are taken for the same measurement where at least half of three or more shared cells are equal and
    no word contradicts; then all must be.
    """
    mixed = {row.table for row in table.rows if not row.own}
    own = [row for row in table.rows if row.own and not row.means and len(row.cells) >= 2]
    for first in own:
        for second in own if first.table not in mixed else ():
            if second.table not in mixed or _contradict(first, second):
                continue
            shared = [key for key in first.cells if key in second.cells]
            differing = [key for key in shared if first.cells[key].value != second.cells[key].value]
            if len(shared) < 2 or len(shared) - len(differing) < max(2, len(shared) / 2):
                continue
            related = [second.place]
            if not differing:
                text = f"{first.name} and {second.name}: {len(shared)} values, the same in both places"
                yield found("right", "repeated-row", first.place, text, related)
            for key in differing:
                text = (
                    f"{first.name} has {first.cells[key].value} ({key[0]}, {key[1]}), {second.name} "
                    f"{second.cells[key].value}; the {len(shared) - len(differing)} others are the same in both "
                    "places"
                )
                related = [second.cells[key].path]
                yield found("error", "repeated-row", first.cells[key].path, text, related)


def _contradict(first: Row, second: Row) -> bool:
    told = {"plus1m", "¬distractor"}
    ones, others = first.words & told, second.words & told
    return bool(ones and others and ones != others)


def _check_value(token: Token, rows: Sequence[Row], key: Asked, table: Table, speech: Speech) -> Finding:
    right = [row for row in rows if rounded_to(value(row, key, table), token.value, token.decimals)]
    row = right[0] if right else rows[0]
    where = [place(row, key, table)]
    if right:
        return found("right", "quote", speech.path, f"{token.text}: the value of {row.name}", where)
    names = ", ".join(f"{row.name} has {value(row, key, table)}" for row in rows[:3])
    return found("error", "quote", speech.path, f"{token.text} is repeated wrongly: {names}", where)


def _ordered(row: Row, quote: Quote) -> list[Key]:
    """The cells of the quoted benchmark in the order of the document."""
    if quote.dataset is None and len({key[0] for key in row.cells}) > 1:
        return []
    return [key for key in row.cells if quote.dataset is None or key[0] == quote.dataset]


def _equal(quote: Quote, row: Row) -> int:
    """How many of the quoted values are the row's."""
    return sum(
        rounded_to(row.cells[key].value, token.value, token.decimals)
        for key, token in zip(_ordered(row, quote), quote.tokens, strict=False)
    )


def _mention_before(tokens: Sequence[Token]) -> str:
    """The words that a parenthesis follows, back to a clause, verb or number."""
    words: list[Token] = []
    for token in reversed(tokens):
        if token.kind == "number" or token.text in (",", ";", ":", ".") or is_verb(token):
            break
        words.append(token)
    return plain_text(list(reversed(words)))


def _slash_pairs(sentence: Sentence) -> Iterator[Quote]:
    """ "ROxford 91.00 / 80.49": a benchmark followed at once by a pair."""
    tokens = sentence.tokens
    for index in range(1, len(tokens) - 2):
        pair = tokens[index : index + 3]
        if pair[0].kind == pair[2].kind == "number" and pair[1].text == "/":
            name = dataset(tokens[index - 1].text)
            if name and pair[0].decimals and not pair[0].sign:
                mention = plain_text([t for t in tokens[:index] if not dataset(t.text)])
                yield Quote(mention, (pair[0], pair[2]), name, None)
