"""The name of a number: seven fields that say what was measured, on what, by what."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from cairn.errors import LineageError

FIELDS = ("benchmark", "system", "head", "seed", "stage", "slice", "metric")
NONE = "-"
FIRST_STAGE = "global"
CANDIDATES_SHOWN = 20
LONGEST_NAME = 500

_FIELD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*|-")


@dataclass(frozen=True, order=True)
class NumberName:
    """`benchmark/system/head/seed/stage/slice/metric`; a field that does not apply is `-`.

    The cell of a stage may hold dots (`ames-k1600-l0.55-t0.3`). Names sort field by field.
    Raises LineageError where a field is empty or holds anything but letters, digits and `. _ @ + -`.
    """

    benchmark: str
    system: str
    head: str
    seed: str
    stage: str
    slice: str
    metric: str

    def __post_init__(self) -> None:
        for field, value in zip(FIELDS, astuple(self), strict=True):
            if not isinstance(value, str) or not _FIELD.fullmatch(value):
                raise LineageError(
                    f"{field} {printable(str(value))} cannot be part of a number's name: "
                    "letters, digits and . _ @ + - are allowed, - alone means none"
                )

    def __str__(self) -> str:
        return "/".join(self.fields)

    @property
    def fields(self) -> tuple[str, ...]:
        """The seven fields in order."""
        return astuple(self)

    @classmethod
    def parse(cls, text: str) -> "NumberName":
        """The name that `text` spells out in full. Raises LineageError unless it has seven valid fields."""
        fields = text.split("/")
        if len(fields) != len(FIELDS):
            raise LineageError(
                f"{printable(text)} has {len(fields)} fields; "
                f"a number's full name has seven: {'/'.join(FIELDS)}"
            )
        return cls(*fields)


def is_first(stage: str) -> bool:
    """Whether a stage is a system's first: `global`, or `global-…` where an option around the search is named."""
    return stage == FIRST_STAGE or stage.startswith(f"{FIRST_STAGE}-")


def later_stage(stage: str, first: str) -> str:
    """What a re-ranking of a first stage is called: `ames-k100` after `global`, else `ames-k100-on-aqe-n10`."""
    return stage if first == FIRST_STAGE else f"{stage}-on-{first.removeprefix(f'{FIRST_STAGE}-')}"


def resolve(text: str, names: Iterable[NumberName]) -> NumberName:
    """The one number that the fields of `text`, given in order, single out among `names`.

    Fields may be left out: `toytown/hard/map` stands for any name that holds these three in this order.
    Rules, each tried only where the one before found nothing or too much:
    the full name; the fields as they are; the fields as beginnings of slugs (`ames` for
    `ames-k1600-l0.55-t0.3`); and where the candidates differ in nothing but the stage, the first one,
    since a system's plain number is that of its first stage.
    Raises LineageError that lists the candidates, or the nearest names where there is none.
    """
    known = sorted(set(names))
    if not known:
        raise LineageError(
            "there are no numbers yet: artifacts/results/results.parquet is empty; `cairn run` makes them"
        )
    found = candidates(text, known)
    if len(found) == 1:
        return found[0]
    if not found:
        raise LineageError(f"no number is called {printable(text)}; {_nearest(text, known)}")
    if len({_without_stage(name) for name in found}) == 1:
        first = [name for name in found if is_first(name.stage)]
        if len(first) == 1:
            return first[0]
    shown = "".join(f"\n  {name}" for name in found[:CANDIDATES_SHOWN])
    more = f"\n  … and {len(found) - CANDIDATES_SHOWN} more" if len(found) > CANDIDATES_SHOWN else ""
    raise LineageError(f"{printable(text)} fits {len(found)} numbers; name one of them:{shown}{more}")


def candidates(text: str, names: Iterable[NumberName]) -> list[NumberName]:
    """Every name that `text` may mean, in order of the names (see `resolve`, without its last rule)."""
    if len(text) > LONGEST_NAME:
        return []
    wanted = text.strip().strip("/").split("/")
    known = sorted(set(names))
    full = [name for name in known if list(name.fields) == wanted]
    if full:
        return full
    exact = [name for name in known if _in_order(wanted, name.fields, _same)]
    return exact or [name for name in known if _in_order(wanted, name.fields, _begins)]


def printable(text: str, limit: int = 120) -> str:
    """`text` in quotes, cut to `limit` characters, with control characters spelled out."""
    short = text if len(text) <= limit else text[: limit - 1] + "…"
    return repr(short)


def plain(text: str) -> str:
    """`text` with control characters spelled out: what a file says must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _in_order(wanted: Sequence[str], fields: Sequence[str], fits) -> bool:
    position = 0
    for field in fields:
        if position < len(wanted) and fits(wanted[position], field):
            position += 1
    return position == len(wanted)


def _same(given: str, field: str) -> bool:
    return given == field


def _begins(given: str, field: str) -> bool:
    return given == field or (bool(given) and given != NONE and field.startswith(given + "-"))


def _without_stage(name: NumberName) -> tuple[str, ...]:
    return tuple(value for field, value in zip(FIELDS, name.fields, strict=True) if field != "stage")


def _nearest(text: str, known: Sequence[NumberName]) -> str:
    wanted = text[:LONGEST_NAME].strip().strip("/").split("/")
    fields = sorted({field for name in known for field in name.fields if field != NONE})
    unknown = next((field for field in wanted if not any(_begins(field, other) for other in fields)), None)
    if unknown is None:
        return f"the fields go in the order {'/'.join(FIELDS)}, e.g. {known[0]}"
    close = difflib.get_close_matches(unknown, fields, n=3, cutoff=0.5)
    if close:
        return f"no field is {printable(unknown, 40)}: did you mean {' or '.join(close)}?"
    return (
        f"no field is {printable(unknown, 40)}; benchmarks here: {_listed(name.benchmark for name in known)}"
    )


def _listed(values: Iterable[str]) -> str:
    distinct = sorted(set(values))
    return ", ".join(distinct[:CANDIDATES_SHOWN]) + (", …" if len(distinct) > CANDIDATES_SHOWN else "")
