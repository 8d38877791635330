"""Cuts texts into sentences, words and numbers, and says which words compare."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from cairn.card.words import column, dataset, millions, vocabulary

LONGEST_SENTENCE = 600
"""Words, numbers and marks that are read of one sentence."""

# A word may hold dots, slashes and signs inside (`ViT-L/14`, `mAP-M`, `v0.1`); a number stands alone.
_TOKEN = re.compile(
    r"(?P<word>[^\W\d]\w*(?:[.+@'’/_-]+\w+)*|[+]?\d+(?:\.\d+)?[^\W\d_]\w*)"
    r"|(?P<number>[+\-−]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)"
    r"|(?P<mark>[()\[\],;:/%~±=]|[–—-]+|\.(?=\s|$))"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“(\[0-9])")
_NO_END = re.compile(r"(?:\b(?:al|etc|vs|cf|e\.g|i\.e|Fig|Tab|Sec|Eq|No|approx|resp)|\b[A-Z])\.$")


def _cues(name: str) -> frozenset[str]:
    return frozenset(vocabulary()["cues"][name].split())


# A number after one of these is a label, not a quantity.
_LABELS = _cues("labels")
BELOW, ABOVE, GAINS, LOSSES = _cues("below"), _cues("above"), _cues("gains"), _cues("losses")
COPULAS, OPENERS, UNITS, THAN = _cues("copulas"), _cues("openers"), _cues("units"), _cues("than")


@dataclass(frozen=True)
class Token:
    """A word, a mark, or a number: `sign` is "+", "-" or "", `decimals` how many were written."""

    kind: str
    text: str
    value: Decimal = Decimal(0)
    sign: str = ""
    decimals: int = 0

    @property
    def low(self) -> str:
        return self.text.lower()


@dataclass(frozen=True)
class Sentence:
    """One sentence: its text, its tokens outside parentheses, and the groups in parentheses by position."""

    text: str
    tokens: tuple[Token, ...]
    groups: tuple[tuple[int, tuple[Token, ...]], ...]


@dataclass(frozen=True)
class Context:
    """What a sentence is about by the time of its first number: benchmarks, columns, +1M, words in parentheses."""

    datasets: tuple[str, ...]
    columns: tuple[str, ...]
    plus: bool
    qualifiers: str


def sentences(text: str) -> list[Sentence]:
    """The sentences of `text`."""
    pieces: list[str] = []
    for piece in _SENTENCE.split(text):
        if pieces and _NO_END.search(pieces[-1]):
            pieces[-1] += " " + piece
        else:
            pieces.append(piece)
    return [_parsed(piece) for piece in pieces if piece.strip()]


def tokens_of(text: str) -> list[Token]:
    """Words, numbers and marks in order."""
    made: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        raw = match.group()
        if kind != "number":
            made.append(Token(kind, raw))
            continue
        start, end = match.span()
        before, after = text[start - 1 : start], text[end : end + 1]
        follows = made[-1].low if made and made[-1].kind == "word" else ""
        # "2.4.6" is a version, "1.5e-8" is read as a word.
        glued = after == "." and text[end + 1 : end + 2].isdigit()
        glued = glued or before.isalnum() or before in ("_", ".", "$", "#") or after == "_" or after.isalpha()
        # `ViT/14`: a slash after a letter; `2017-11`: a hyphen between digits is no sign.
        sign = raw[0] if raw[0] in "+-−" else ""
        if glued or follows in _LABELS or (before == "-" and not sign) or (before.isdigit() and sign):
            made.append(Token("word", raw))
            continue
        digits = raw.lstrip("+-−").replace(",", "")
        decimals = len(digits.partition(".")[2])
        value = Decimal(digits) * (-1 if sign in ("-", "−") else 1)
        made.append(Token("number", raw, value, "-" if sign in ("-", "−") else sign, decimals))
    return made


def plain_text(tokens: Sequence[Token]) -> str:
    """The words of `tokens` with spaces between."""
    return " ".join(token.text for token in tokens if token.kind == "word")


def context_of(sentence: Sentence, before: Sequence[Sentence]) -> Context:
    """Benchmarks and columns that the sentence speaks of before its first result, else those before it."""
    first = next(
        (i for i, t in enumerate(sentence.tokens) if t.kind == "number" and (t.decimals or t.sign)),
        len(sentence.tokens),
    )
    datasets, columns = named(sentence.tokens[:first])
    plus = any(millions(token.text) for token in sentence.tokens)
    for earlier in reversed(before):
        names, kinds = named(earlier.tokens)
        datasets = datasets or names
        columns = columns or kinds
        plus = plus or any(millions(token.text) for token in earlier.tokens)
        if datasets and columns:
            break
    qualifiers = " ".join(
        plain_text(inside)
        for _, inside in sentence.groups
        if not any(token.kind == "number" for token in inside)
    )
    return Context(datasets, columns, plus, qualifiers)


def named(tokens: Sequence[Token]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The benchmarks and the columns that words name, each once, in order."""
    words = [token for token in tokens if token.kind == "word"]
    datasets = dict.fromkeys(name for token in words if (name := dataset(token.text)))
    columns = dict.fromkeys(kind for token in words if (kind := column_word(token)))
    return tuple(datasets), tuple(columns)


def column_word(token: Token) -> str | None:
    """The column that a word names, where it says more than "points"."""
    kind = column(token.text)
    return None if kind == "map" else kind


def subject_before(sentence: Sentence) -> str:
    """The words of a sentence ahead of its first verb."""
    verb = next((i for i, token in enumerate(sentence.tokens) if is_verb(token)), 0)
    return plain_text(sentence.tokens[:verb])


def is_verb(token: Token) -> bool:
    """Whether a word ends the subject of its sentence."""
    return token.low in COPULAS | GAINS | LOSSES or (token.low in ABOVE | BELOW and token.low != "over")


def is_cue(token: Token) -> bool:
    """Whether a word compares."""
    return token.low in ABOVE | BELOW | GAINS | LOSSES


def _parsed(text: str) -> Sentence:
    outside: list[Token] = []
    groups: list[tuple[int, tuple[Token, ...]]] = []
    depth = 0
    inside: list[Token] = []
    for token in tokens_of(text)[:LONGEST_SENTENCE]:
        if token.text in ("(", "["):
            depth += 1
        elif token.text in (")", "]"):
            depth = max(0, depth - 1)
            if depth == 0 and inside:
                groups.append((len(outside), tuple(inside)))
                inside = []
        elif depth:
            inside.append(token)
        else:
            outside.append(token)
    if inside:
        groups.append((len(outside), tuple(inside)))
    return Sentence(text, tuple(outside), tuple(groups))
