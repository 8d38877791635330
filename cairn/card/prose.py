"""Reads the differences that sentences state: how much, of what, against what, on which benchmark."""

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.card.tokens import (
    ABOVE,
    BELOW,
    GAINS,
    LOSSES,
    OPENERS,
    THAN,
    UNITS,
    Context,
    Sentence,
    Token,
    column_word,
    context_of,
    is_cue,
    is_verb,
    named,
    plain_text,
    tokens_of,
)
from cairn.card.words import column, dataset, vocabulary


@dataclass(frozen=True)
class Stated:
    """A number in a sentence with what the sentence says it is about.

    `subject`, `reference`: the words for the row that is above or below, and for the one it is compared with.
    `direction`: 1 where the sentence says the subject is above, -1 below, 0 where only the sign tells.
    `bound`: "low" or "high" end of a range over several subjects, "" for one difference. `dataset` and
    `column` may be `#0`, `#1`…: the first, second… of the table.
    """

    token: Token
    subject: str
    reference: str
    direction: int
    dataset: str | None
    column: str | None
    bound: str = ""


def differences(sentence: Sentence, before: Sequence[Sentence] = ()) -> list[Stated]:
    """The differences that `sentence` states; `before` are the sentences ahead of it, nearest last."""
    tokens = sentence.tokens
    numbers = [index for index, token in enumerate(tokens) if token.kind == "number"]
    context = context_of(sentence, before)
    found: list[Stated] = []
    if numbers:
        opener = _opener(tokens)
        if opener is not None:
            start, reference = opener
            group = [index for index in numbers if index >= start and tokens[index].sign]
            found += _group(tokens, group, start, "", reference, 0, context)
        else:
            found += _compared(tokens, numbers, context)
    for position, inside in sentence.groups:  # "beats X on RParis Hard (+2.63)"
        signed = [index for index, token in enumerate(inside) if token.kind == "number"]
        if signed and all(inside[index].sign for index in signed):
            found += _in_parentheses(tokens, position, inside, signed, context)
    return found


def _opener(tokens: Sequence[Token]) -> tuple[int, str] | None:
    """Where "Against X:" ends, and X."""
    if not tokens or tokens[0].low not in OPENERS:
        return None
    for index, token in enumerate(tokens):
        if token.text in (":", ",") and index > 1:
            return index + 1, plain_text(tokens[1:index])
        if token.kind == "number":
            return None
    return None


def _compared(tokens: Sequence[Token], numbers: Sequence[int], context: Context) -> list[Stated]:
    verb = next((i for i, t in enumerate(tokens) if is_verb(t)), None)
    if verb is not None:
        # "Of 3 systems, X is 2.1 points above Y": a number ahead of the verb is no result.
        subject = plain_text(tokens[:verb])
        numbers = [index for index in numbers if index > verb or tokens[index].sign]
    else:
        subject = plain_text(tokens[: numbers[0]]) if any(tokens[index].sign for index in numbers) else ""
    found: list[Stated] = []
    used = 0
    while used < len(numbers):
        start = numbers[used]
        group = [start]
        # Numbers belong together while no cue stands between them.
        while used + len(group) < len(numbers):
            following = numbers[used + len(group)]
            if any(is_cue(token) for token in tokens[group[-1] + 1 : following]):
                break
            group.append(following)
        used += len(group)
        relation = _relation(tokens, group)
        if relation is not None:
            direction, reference = relation
            usable = [index for index in group if _is_difference(tokens, index)]
            found += _group(tokens, usable, start, subject, reference, direction, context)
    return found


def _relation(tokens: Sequence[Token], group: Sequence[int]) -> tuple[int, str] | None:
    """Direction and reference of a group of numbers, from the cues around it; None where there is no cue."""
    before, last = tokens[: group[0]], group[-1]
    introduced = bool(before) and before[-1].low in ("by", ":", "of")
    after = _cue_after(tokens, last)
    gain = next((t for t in reversed(before) if t.low in GAINS | LOSSES), None)
    # What stands nearest before the group decides: a cue of an earlier group does not reach over numbers.
    reach = next((i for i in range(group[0] - 1, -1, -1) if tokens[i].kind == "number"), -1)
    near = [i for i in range(reach + 1, group[0]) if is_cue(tokens[i])]
    if near and (introduced or tokens[near[-1]].low in GAINS | LOSSES):
        cue = tokens[near[0]]
        if cue.low in GAINS | LOSSES:
            reference = _reference_after(tokens, after) if after is not None else ""
            return (1 if cue.low in GAINS else -1), reference
        stop = group[0] - 1 if introduced else group[0]
        return (1 if cue.low in ABOVE else -1), plain_text(tokens[near[0] + 1 : stop])
    if after is not None and tokens[after].low in ABOVE | BELOW:
        return (1 if tokens[after].low in ABOVE else -1), _reference_after(tokens, after)
    if any(tokens[index].sign for index in group):
        if after is not None:
            return 0, _reference_after(tokens, after)
        if near:
            return 0, plain_text(tokens[near[0] + 1 : group[0]])
    if gain is not None and after is not None and reach < 0:
        return (1 if gain.low in GAINS else -1), _reference_after(tokens, after)
    return None


def _cue_after(tokens: Sequence[Token], index: int) -> int | None:
    """The cue that follows the number at `index` with nothing but units, columns and benchmarks between."""
    for position in range(index + 1, min(index + 10, len(tokens))):
        token = tokens[position]
        if token.kind == "number":
            return None
        if token.low in THAN or token.low in ABOVE | BELOW:
            return position
        if token.text in (";", ".", ":") or (token.text == "," and position > index + 1):
            return None
        harmless = token.low in UNITS or token.low in (
            "on",
            "in",
            "for",
            "mean",
            "the",
            "and",
            "a",
            "further",
        )
        if not harmless and token.kind == "word" and not (dataset(token.text) or column(token.text)):
            return None
    return None


def _reference_after(tokens: Sequence[Token], cue: int) -> str:
    """The words after a cue up to the next number, clause or sentence."""
    words: list[Token] = []
    for token in tokens[cue + 1 :]:
        if token.kind == "number" or token.text in (";", ".", ":") or token.text == ",":
            break
        words.append(token)
    while words and words[-1].low in ("and", "by", "but"):
        words.pop()
    return plain_text(words)


def _is_difference(tokens: Sequence[Token], index: int) -> bool:
    """Whether the number can be a difference in points: not "300 images", not "12%"."""
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if following is None or following.kind == "mark":
        return following is None or following.text != "%"
    if tokens[index].sign or tokens[index].decimals or following.low in UNITS:
        return True
    return following.low == "to"


def _group(
    tokens: Sequence[Token],
    group: Sequence[int],
    start: int,
    subject: str,
    reference: str,
    direction: int,
    context: Context,
) -> list[Stated]:
    """The differences of one list of numbers, each with benchmark, column and subject."""
    placed = _placed(tokens, group, start, context)
    # "by 3.3 points over CosPlace on MSLS": what stands behind the reference holds for all.
    behind = named(tokens_of(reference))
    plus = " plus1m" if context.plus else ""
    made = []
    for index, (name, kind, own, bound) in zip(group, placed, strict=True):
        who = own or subject
        made.append(
            Stated(
                tokens[index],
                f"{who} {context.qualifiers}{plus}".strip(),
                f"{reference} {context.qualifiers}{plus}".strip() if reference else "",
                direction,
                name or (behind[0][0] if len(behind[0]) == 1 else None),
                kind or (behind[1][0] if len(behind[1]) == 1 else None),
                bound,
            )
        )
    return made


def _placed(
    tokens: Sequence[Token], group: Sequence[int], start: int, context: Context
) -> list[tuple[str | None, str | None, str, str]]:
    """Benchmark, column, subject and bound of each number of a group."""
    count = len(group)
    names: list[str | None] = [None] * count
    kinds: list[str | None] = [None] * count
    owners = [""] * count
    bounds = [""] * count
    slash = [False] * count
    owner, opened = "", 0
    for order, index in enumerate(group):
        stop = group[order + 1] if order + 1 < count else len(tokens)
        left = group[order - 1] + 1 if order else start
        # Words before the number that are neither benchmark, column nor glue name its subject.
        ahead = [t for t in tokens[left:index] if t.kind == "word" and not _is_glue(t)]
        ahead = [t for t in ahead if not dataset(t.text) and not column(t.text)]
        if ahead and (order or start == left) and (tokens[index].sign or order):
            owner = plain_text(ahead)
        owners[order] = owner
        between = tokens[index + 1 : stop]
        if between and between[0].low == "to" and order + 1 < count and len(between) == 1:
            bounds[order], bounds[order + 1] = "low", "high"
        if len(between) == 1 and between[0].text == "/":
            slash[order] = True
        for token in between:
            if token.text in (",", ";") or is_cue(token):
                break
            if kinds[order] is None and column_word(token):
                kinds[order] = column_word(token)
            if dataset(token.text):
                # "28.99 and 39.40 on ROxford": the name holds for every number since the last one.
                for earlier in range(opened, order + 1):
                    names[earlier] = dataset(token.text)
                opened = order + 1
    _fill_columns(kinds, slash, bounds, context)
    _fill_datasets(names, slash, context)
    return list(zip(names, kinds, owners, bounds, strict=True))


def _fill_columns(
    kinds: list[str | None], slash: Sequence[bool], bounds: Sequence[str], context: Context
) -> None:
    for order in range(1, len(kinds)):
        if bounds[order] == "high" and kinds[order - 1] is None:
            kinds[order - 1] = kinds[order]
    known = [kind for kind in kinds if kind is not None]
    if known:
        # "28.99 mAP-M and 39.40 mAP-H on ROxford, 14.43 and 27.82 on RParis": the second list as the first.
        if kinds[: len(known)] == known and len(kinds) % len(known) == 0:
            kinds[:] = known * (len(kinds) // len(known))
    elif any(slash):
        # "25.42 / 35.06": the columns in their order.
        place = 0
        for order in range(len(kinds)):
            place = place + 1 if order and slash[order - 1] else 0
            kinds[order] = _nth(context.columns, place)
    elif len(context.columns) == 1 or len(context.columns) == len(kinds):
        kinds[:] = [
            _nth(context.columns, min(order, len(context.columns) - 1)) for order in range(len(kinds))
        ]


def _fill_datasets(names: list[str | None], slash: Sequence[bool], context: Context) -> None:
    if any(name is not None for name in names):
        return
    if len(context.datasets) == 1:
        names[:] = [context.datasets[0]] * len(names)
    elif any(slash):
        # "25.42 / 35.06 and 14.16 / 26.96": the benchmarks in their order, one for each run of slashes.
        run = 0
        for order in range(len(names)):
            run += bool(order) and not slash[order - 1]
            names[order] = _nth(context.datasets, run)


def _nth(known: Sequence[str], place: int) -> str:
    """The name at `place`, or a mark (`#1`) for what stands there in the table's own order."""
    return known[place] if len(known) > place else f"#{place}"


def _is_glue(token: Token) -> bool:
    return (
        token.low in vocabulary()["stopwords"].split()
        or token.low in UNITS
        or token.low
        in (
            "while",
            "but",
            "mean",
            "about",
        )
    )


def _in_parentheses(
    tokens: Sequence[Token],
    position: int,
    inside: Sequence[Token],
    signed: Sequence[int],
    context: Context,
) -> list[Stated]:
    """ "A exceeds B on RParis Hard (+2.63)": the sentence around gives subject and reference."""
    outer = tokens[:position]
    cue = next((i for i in range(len(outer) - 1, -1, -1) if outer[i].low in ABOVE | BELOW), None)
    if cue is None:
        return []
    verb = next((i for i, t in enumerate(outer) if is_verb(t)), cue)
    names, kinds = named(outer[cue:])
    nearer = Context(names[-1:] or context.datasets, kinds[-1:] or context.columns, context.plus, "")
    return _group(
        list(inside), list(signed), 0, plain_text(outer[:verb]), plain_text(outer[cue + 1 :]), 0, nearer
    )
