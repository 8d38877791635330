"""Computes claims: a query for the numbers, a template for the sentence, signs and rounding by construction."""

import math
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import LineageError, ParameterError
from cairn.results.database import check_read_only
from cairn.results.names import FIRST_STAGE, is_first, plain, printable
from cairn.results.show import METRIC_TITLES, SLICE_TITLES

if TYPE_CHECKING:
    import duckdb

SHIPPED = Path(__file__).with_name("claims.yaml")
PROJECT_CLAIMS = "claims.yaml"
KEYS = ("name", "about", "query", "sentence", "required")
TWO_DECIMALS = Decimal("0.01")
_INTERVAL = re.compile(r" ?\[(\d+\.\d+), (\d+\.\d+)\]")


@dataclass(frozen=True)
class Claim:
    """A claim before it is computed. `required`: a query without an answer is an error. `file`: where it stands."""

    name: str
    about: str
    query: str
    sentence: str
    required: bool
    file: str


@dataclass(frozen=True)
class Statement:
    """One sentence of a claim and the numbers in it.

    `stated`: the numbers that the sentence takes from its query, as it writes them, in its order, unsigned.
    `difference`, `of`, `minus`: where the query gives them, difference = of − minus, names of numbers.
    `against`: the published row that stands in the place of `minus`, by the name of its system.
    """

    claim: str
    sentence: str
    values: Mapping[str, Any]
    stated: tuple[str, ...]
    difference: Decimal | None
    of: str | None
    minus: str | None
    against: str | None


def read_claims(root: Path) -> list[Claim]:
    """The shipped claims, then those of the project's `claims.yaml`. Raises ParameterError naming the claim."""
    made = _read(SHIPPED, required=False)
    own = Path(root) / PROJECT_CLAIMS
    if own.is_file():
        made += _read(own, required=True)
    seen: dict[str, Claim] = {}
    for claim in made:
        if claim.name in seen:
            raise ParameterError(
                f"{claim.file}: claim {claim.name!r} stands already in {seen[claim.name].file}"
            )
        seen[claim.name] = claim
    return made


def compute(
    claim: Claim, connection: "duckdb.DuckDBPyConnection", percents: Mapping[str, Decimal]
) -> Iterator[Statement]:
    """The sentences of `claim`. `percents`: number's name → percent as the card prints it.

    Raises LineageError where the query fails, a required claim has no answer, a row does not hold any more, or
    a difference is not that of its two numbers; ParameterError where the sentence asks for what is not there.
    """
    rows = _answer(claim, connection)
    if not rows and claim.required:
        raise LineageError(f"{claim.file}: claim {claim.name!r} has no answer: its query returns no row")
    for row in rows:
        sentence, stated = _sentence(claim, row)
        if "holds" in row and row["holds"] is not True:
            raise LineageError(f"{claim.file}: claim {claim.name!r} is no longer true: {plain(sentence)}")
        difference = row.get("difference")
        of, minus = row.get("of"), row.get("minus")
        exact = difference if isinstance(difference, Decimal) else None
        if of is not None and minus is not None:
            unknown = next((name for name in (of, minus) if name not in percents), None)
            if unknown is not None:
                raise LineageError(
                    f"{claim.file}: claim {claim.name!r} names {printable(str(unknown))}, no number"
                )
            if exact != percents[of] - percents[minus]:
                raise LineageError(
                    f"{claim.file}: claim {claim.name!r} says {difference}, but {of} − {minus} is "
                    f"{percents[of] - percents[minus]}: take differences of `percent`"
                )
        yield Statement(claim.name, sentence, row, stated, exact, of, minus, row.get("against"))


def _read(file: Path, required: bool) -> list[Claim]:
    import yaml

    try:
        content = yaml.safe_load(file.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise ParameterError(f"{file}: not readable as YAML ({str(error).splitlines()[0]})") from None
    entries = content.get("claims") if isinstance(content, dict) else None
    if not isinstance(entries, list):
        raise ParameterError(f"{file}: a list under the key `claims` is expected")
    return [_claim(entry, number, file, required) for number, entry in enumerate(entries)]


def _claim(entry: Any, number: int, file: Path, required: bool) -> Claim:
    name = entry.get("name") if isinstance(entry, dict) else None
    where = f"{file.name}: claim {name!r}" if isinstance(name, str) else f"{file.name}: claims[{number}]"
    if not isinstance(entry, dict) or not isinstance(name, str):
        raise ParameterError(f"{where}: a mapping with name, query and sentence is expected")
    unknown = sorted(set(map(str, entry)) - set(KEYS))
    if unknown:
        raise ParameterError(f"{where} has the unknown key {unknown[0]!r}; known are {', '.join(KEYS)}")
    for key in ("query", "sentence"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ParameterError(f"{where} has no {key}")
    needed = entry.get("required", required)
    if not isinstance(needed, bool):
        raise ParameterError(f"{where}: required is true or false, not {needed!r}")
    return Claim(
        name,
        str(entry.get("about", "")),
        entry["query"].strip(),
        entry["sentence"].strip(),
        needed,
        file.name,
    )


def _answer(claim: Claim, connection: "duckdb.DuckDBPyConnection") -> list[dict[str, Any]]:
    import duckdb

    try:
        check_read_only(connection, claim.query)
        cursor = connection.execute(claim.query)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    except LineageError as error:
        raise LineageError(f"{claim.file}: claim {claim.name!r}: {error}") from None
    except duckdb.Error as error:
        problem = " ".join(str(error).split())
        raise LineageError(f"{claim.file}: claim {claim.name!r}: SQL: {problem}") from None


def _sentence(claim: Claim, row: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """The sentence, and the numbers in it as it writes them."""
    made, stated = [], []
    try:
        parts = list(string.Formatter().parse(claim.sentence))
    except ValueError as error:
        raise ParameterError(f"{claim.file}: claim {claim.name!r}: {error} in its sentence") from None
    for text, field, form, conversion in parts:
        made.append(text)
        if field is None:
            continue
        if field not in row or conversion:
            raise ParameterError(
                f"{claim.file}: claim {claim.name!r}: its sentence asks for {{{field}}}, its query gives "
                f"{', '.join(row)}"
            )
        value = row[field]
        made.append(_formatted(claim, field, value, form or ""))
        if (
            isinstance(value, int | float | Decimal)
            and not isinstance(value, bool)
            and form not in _UNWRITTEN
        ):
            stated += re.findall(r"\d+(?:\.\d+)?", made[-1])
        elif isinstance(value, str) and (interval := _INTERVAL.fullmatch(value)):
            stated += interval.groups()
    return "".join(made), tuple(stated)


def _formatted(claim: Claim, field: str, value: Any, form: str) -> str:
    where = f"{claim.file}: claim {claim.name!r}: {{{field}:{form}}}"
    if form and form not in (*_FORMS, *_WORDS):
        raise ParameterError(f"{where}: the format is one of {', '.join((*_FORMS, *_WORDS))}")
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        raise LineageError(f"{where} is {value}: a claim cannot state it")
    if isinstance(value, float):
        value = Decimal(repr(value)).quantize(TWO_DECIMALS)
    if not form:
        return str(value)
    if form in _WORDS:
        if not isinstance(value, str):
            raise ParameterError(f"{where} is {printable(str(value))}: a text is expected")
        return _WORDS[form](value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise ParameterError(f"{where} is {printable(str(value))}: a number is expected")
    return _FORMS[form](Decimal(value))


def _signed(value: Decimal) -> str:
    return f"{value:+f}" if value else f"{abs(value):f}"


def _by_sign(above: str, level: str, below: str):
    return lambda value: above if value > 0 else below if value < 0 else level


def _apart(value: Decimal) -> str:
    return f"{abs(value):f} points {'above' if value > 0 else 'below' if value < 0 else 'away from'}"


def _place(slice_name: str) -> str:
    """What follows the benchmark's name: nothing where there is one slice alone."""
    return (
        ""
        if slice_name == "all"
        else f" {slice_name.capitalize() if slice_name in SLICE_TITLES else slice_name}"
    )


def _staged(stage: str) -> str:
    """What follows a system's name: its second stage, or that it has none, with the options around its search."""
    if not is_first(stage):
        return f"re-ranked with {stage}"
    options = stage.removeprefix(FIRST_STAGE).removeprefix("-")
    return f"with {options} and without re-ranking" if options else "without re-ranking"


def _metric(metric: str) -> str:
    family, at, depth = metric.partition("@")
    return METRIC_TITLES.get(family, family) + at + depth


_FORMS = {
    "signed": _signed,
    "size": lambda value: f"{abs(value):f}",
    "direction": _by_sign("above", "away from", "below"),
    "apart": _apart,
    "adds": _by_sign("adds", "adds", "loses"),
    "than": _by_sign("over", "over", "against"),
    "best": lambda value: "better" if value == 2 else "best",
}
# Forms of numbers that write none.
_UNWRITTEN = ("direction", "adds", "than", "best")
_WORDS = {"metric": _metric, "slice": _place, "stage": _staged}
