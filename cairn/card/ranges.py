"""Checks values against what they can be: percent, fractions, intervals, deviations, harder parts, distractors."""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal

from cairn.card.document import Path_, clauses, is_number, lookup, numbers, texts, walk
from cairn.card.finding import Finding, found
from cairn.card.rows import Row, Table
from cairn.card.words import vocabulary

_FRACTION = re.compile(r"(?:^|_)(precision|recall|accuracy|f1|kappa|cosine|auc|fraction|ratio)(?:$|_)")
_INTERVAL = re.compile(r"^(?P<what>.+?)_?(?:ci|ci_?\d{2}|interval|conf(?:idence)?(?:_interval)?)$")
_SMALLEST = re.compile(r"(?:^|_)(weakest|worst|min|minimum|lowest)(?:$|_)")
_LARGEST = re.compile(r"(?:^|_)(strongest|best|max|maximum|highest)(?:$|_)")
_DELTAS = re.compile(
    r"(?P<below>\d+) of (?P<all>\d+) [^.;]*?\bdeltas? fall below [^.;]*?"
    r"(?:(?:and )?the [\w ]{1,20} (?:is|are) (?P<rest>\d+(?:\.\d+)?) pooled sd)",
    re.IGNORECASE,
)
# The unit in which nearly all cells are tells which one slipped: 0.87 among 87s.
_SLIP = Decimal(1)


def check_ranges(document: Mapping, table: Table) -> Iterator[Finding]:
    """Findings about single values, and about values that bound one another."""
    yield from _cells(table)
    yield from _fractions(document)
    yield from _intervals(document)
    yield from _harder(table)
    yield from _distractors(table)
    yield from _extremes(table)
    yield from _deltas(document, table)


def _cells(table: Table) -> Iterator[Finding]:
    cells = [(row, key, cell) for row in table.rows for key, cell in row.cells.items()]
    percent = sum(cell.value > _SLIP for _, _, cell in cells) > len(cells) / 2
    top = Decimal(100) if percent else Decimal(1)
    for row, key, cell in cells:
        what = f"{row.name} ({', '.join(part for part in key if part)}): {cell.value}"
        if not 0 <= cell.value <= Decimal(100):
            yield found("error", "range", cell.path, f"{what} is outside 0 to {top}")
        elif cell.value > top:
            yield found("warning", "range", cell.path, f"{what} is in percent, most others are fractions")
        elif percent and 0 < cell.value < _SLIP:
            yield found("warning", "range", cell.path, f"{what} is below 1, most others are in percent")
        if cell.spread is not None and cell.spread < 0:
            yield found("error", "range", cell.path, f"{what} has the negative deviation {cell.spread}")
        if cell.low is not None and cell.high is not None and not cell.low <= cell.value <= cell.high:
            interval = f"[{cell.low}, {cell.high}]"
            yield found("error", "interval", cell.path, f"{what} is outside its interval {interval}")


def _fractions(document: Mapping) -> Iterator[Finding]:
    for path, value in numbers(document):
        # `precision: 0.4`, and `by_rule_precision: {a: 0.4, b: 0.2}`.
        key = next((str(step).lower() for step in path[:-3:-1] if _FRACTION.search(str(step).lower())), "")
        if not key:
            continue
        low = Decimal(-1) if "kappa" in key or "cosine" in key else Decimal(0)
        parent = lookup(document, path[:-1])
        siblings = list(parent.values()) if isinstance(parent, Mapping) else parent
        small = [item for item in siblings if is_number(item) and item <= 1]
        if not low <= value <= 100:
            yield found(
                "error", "range", path, f"{key} is {value}; it lies between {low} and 1 (100 in percent)"
            )
        elif value > 1 and small and str(path[-1]).lower() != key:
            yield found("error", "range", path, f"{key} is {value} here and {small[0]} beside it: above 1")


def _intervals(document: Mapping) -> Iterator[Finding]:
    """A value beside its interval: `x` and `x_ci95`, or `value` beside `interval`."""
    for path, value in walk(document):
        if not isinstance(value, Mapping):
            continue
        for key, bounds in value.items():
            match = _INTERVAL.match(key)
            named = match.group("what") if match else ("value" if key in ("interval", "ci", "ci95") else "")
            if not named or not isinstance(bounds, list) or len(bounds) != 2:
                continue
            if not all(is_number(bound) for bound in bounds):
                continue
            low, high = bounds
            if low > high:
                yield found(
                    "error", "interval", path + (key,), f"the interval [{low}, {high}] ends below its start"
                )
            elif is_number(value.get(named)):
                inside = low <= value[named] <= high
                text = f"{named} {value[named]} lies {'in' if inside else 'outside'} its interval [{low}, {high}]"
                where = [path + (named,)]
                yield found("right" if inside else "error", "interval", path + (key,), text, where)
        yield from _parts(path, value)


def _parts(path: Path_, value: Mapping) -> Iterator[Finding]:
    """ "x" beside "by_…_x": a whole's fraction lies between the smallest and the largest of its parts."""
    for key, parts in value.items():
        if not key.startswith("by_") or not isinstance(parts, Mapping):
            continue
        shares = [Decimal(item) for item in parts.values() if is_number(item)]
        for named, whole in value.items():
            if is_number(whole) and key.endswith(f"_{named}") and shares and _FRACTION.search(named):
                inside = min(shares) <= whole <= max(shares)
                text = (
                    f"{named} {whole} lies {'between' if inside else 'outside'} the smallest and largest of its parts "
                    f"({min(shares)}, {max(shares)})"
                )
                where = [path + (named,)]
                yield found("right" if inside else "error", "parts", path + (key,), text, where)


def _harder(table: Table) -> Iterator[Finding]:
    order = vocabulary()["harder"]
    for row in table.rows:
        # More positives raise precision: only average precision falls from slice to slice.
        if row.measures not in ((), ("map",)):
            continue
        for name in dict.fromkeys(key[0] for key in row.cells):
            chain = [row.cells[(name, kind)] for kind in order if (name, kind) in row.cells]
            kinds = [kind for kind in order if (name, kind) in row.cells]
            for number in range(1, len(chain)):
                if chain[number].value > chain[number - 1].value:
                    text = (
                        f"{row.name}: {kinds[number]} {chain[number].value} is above {kinds[number - 1]} "
                        f"{chain[number - 1].value} ({name}); swapped?"
                    )
                    yield found("warning", "order", chain[number].path, text, [chain[number - 1].path])


def _distractors(table: Table) -> Iterator[Finding]:
    """The same ranking among more images: average precision cannot rise (Radenović et al., CVPR 2018, +1M)."""
    for larger in table.rows:
        if "plus1m" not in larger.words or not larger.own:
            continue
        for smaller in table.rows:
            if not smaller.own or not _twins(larger, smaller):
                continue
            exact = "¬rerank" in larger.words
            for key, cell in larger.cells.items():
                other = smaller.cells.get(key)
                if other is not None and cell.value > other.value:
                    text = (
                        f"{larger.name}: {cell.value} with distractors is above {other.value} without "
                        f"({key[0]}, {key[1]}); more images cannot raise {'it' if exact else 'a ranking much'}"
                    )
                    yield found("error" if exact else "warning", "distractors", cell.path, text, [other.path])


def _twins(larger: Row, smaller: Row) -> bool:
    """Whether two rows are one system with and without distractors: their paths differ in that one key."""
    if len(larger.path) != len(smaller.path) or "¬distractor" not in smaller.words:
        return False
    differing = [pair for pair in zip(larger.path, smaller.path, strict=True) if pair[0] != pair[1]]
    return len(differing) == 1


def _extremes(table: Table) -> Iterator[Finding]:
    """What a table calls weakest is below what it calls strongest."""
    highs = [row for row in table.rows if _named(row, _LARGEST)]
    for low in (row for row in table.rows if _named(row, _SMALLEST)):
        for high in highs:
            if low.table != high.table:
                continue
            for key, cell in low.cells.items():
                if key in high.cells and cell.value > high.cells[key].value:
                    text = f"{low.name} {cell.value} is above {high.name} {high.cells[key].value} ({key[1]})"
                    yield found("error", "order", cell.path, text, [high.cells[key].path])


def _named(row: Row, pattern: re.Pattern[str]) -> bool:
    return bool(row.path) and isinstance(row.path[-1], str) and pattern.search(row.path[-1]) is not None


def _deltas(document: Mapping, table: Table) -> Iterator[Finding]:
    """ "3 of 4 deltas fall below the seed spread and the fourth is 1.1 pooled sd": recomputed from means and sd.

    Pooled sd of two groups of one size: the root of the mean of their variances.
    """
    for path, text in texts(document):
        said = next((match for clause in clauses(text) if (match := _DELTAS.search(clause))), None)
        if said is None:
            continue
        rows = [row for row in table.rows if row.means and row.path[: len(path) - 1] == path[:-1]]
        if len(rows) != 2:
            continue
        first, second = rows
        ratios: dict[str, Decimal] = {}
        places: list[Path_] = []
        for key, one in first.cells.items():
            other = second.cells.get(key)
            if other is None or one.spread is None or other.spread is None:
                continue
            pooled = ((one.spread**2 + other.spread**2) / 2).sqrt()
            if pooled:
                ratios[f"{key[0]} {key[1]}"] = abs(one.value - other.value) / pooled
                places += [one.path, other.path]
        below = sum(ratio < 1 for ratio in ratios.values())
        above = [ratio for ratio in ratios.values() if ratio >= 1]
        decimals = len(said.group("rest").partition(".")[2])
        rest = Decimal(said.group("rest"))
        right = (
            below == int(said.group("below"))
            and len(ratios) == int(said.group("all"))
            and all(abs(ratio - rest) <= Decimal(5).scaleb(-decimals - 1) for ratio in above)
        )
        shown = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
        yield found(
            "right" if right else "error",
            "spread",
            path,
            f"{said.group()!r}: in pooled sd the differences are {shown}",
            places,
        )
