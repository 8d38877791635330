"""Reads a results file that nobody vouches for, and names the places in it."""

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from cairn.errors import InputError
from cairn.results.names import printable

MAX_BYTES = 32 << 20
MAX_DEPTH = 60
MAX_VALUES = 200_000
MAX_DIGITS = 30
MAX_DECIMALS = 400
LONGEST_TEXT = 20_000
LONGEST_CLAUSE = 1_000

Path_ = tuple[str | int, ...]
"""Where a value stands: the keys and list positions on the way from the top."""

_CLAUSE = re.compile(r"(?<=[.;])\s")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in `path`, its numbers as `Decimal` (as written) or `int`.

    Raises InputError, naming the file and the place, where it is missing, larger than MAX_BYTES, not UTF-8,
    not JSON, no object, nested deeper than MAX_DEPTH, or holds more than MAX_VALUES values, a key twice in
    one object, NaN or an infinity, or a number of more digits than MAX_DIGITS.
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise InputError(f"{path}: not a file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise InputError(f"{path}: {size:,} bytes; a results file of at most {MAX_BYTES:,} is read")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; JSON is written in UTF-8") from None
    return parse_document(text, str(path))


def parse_document(text: str, where: str = "document") -> dict[str, Any]:
    """`read_document` for a text at hand."""
    _check_nesting(text, where)
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique,
            parse_float=Decimal,
            parse_int=_integer,
            parse_constant=_no_constant,
        )
    except _Refused as refusal:
        raise InputError(f"{where}: {refusal}") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where} line {error.lineno}, column {error.colno}: not JSON ({error.msg})"
        ) from None
    except (RecursionError, ValueError, ArithmeticError) as error:
        raise InputError(f"{where}: not readable as JSON ({type(error).__name__})") from None
    return checked(value, where)


def checked(document: Any, where: str = "document") -> dict[str, Any]:
    """A copy of `document` with every float as the `Decimal` it is printed as. Raises InputError as above."""
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: a results file is a JSON object, this is a {_kind(document)}")
    return _copied(document, (), [MAX_VALUES], where)


def walk(document: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    """Every value with its path, outer before inner, in the order of the file."""
    stack: list[tuple[Path_, Any]] = [(path, document)]
    while stack:
        here, value = stack.pop()
        yield here, value
        if isinstance(value, Mapping):
            stack.extend((here + (key,), item) for key, item in reversed(list(value.items())))
        elif isinstance(value, list):
            stack.extend((here + (index,), value[index]) for index in range(len(value) - 1, -1, -1))


def numbers(document: Any) -> Iterator[tuple[Path_, Decimal]]:
    """Every number (not true or false) with its path."""
    for path, value in walk(document):
        if is_number(value):
            yield path, Decimal(value)


def texts(document: Any) -> Iterator[tuple[Path_, str]]:
    """Every text with its path, cut to LONGEST_TEXT characters (the audit notes where it cuts)."""
    for path, value in walk(document):
        if isinstance(value, str):
            yield path, value[:LONGEST_TEXT]


def clauses(text: str) -> list[str]:
    """The parts of `text` between full stops and semicolons, each cut to LONGEST_CLAUSE characters.

    No sentence is longer; searching endless ones would take the square of their length.
    """
    return [part[:LONGEST_CLAUSE] for part in _CLAUSE.split(text)]


def lookup(document: Any, path: Path_) -> Any:
    """The value at `path`; None where there is none."""
    value = document
    for step in path:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return None
    return value


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def json_path(path: Path_) -> str:
    """`$.rows[3].roxford5k.M`: how a place is written (JSONPath, RFC 9535)."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}"
        else:
            text += f"[{json.dumps(step, ensure_ascii=False)}]"
    return text


class _Refused(ValueError):
    """Why a text is not read."""


def _check_nesting(text: str, where: str) -> None:
    # Before the parser runs: its own recursion would end in a RecursionError that names no place.
    depth = 0
    inside = escaped = False
    for position, character in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                inside = False
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, position) + 1
                raise InputError(
                    f"{where} line {line}: nested deeper than {MAX_DEPTH} levels; no results file is"
                )
        elif character in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Refused(f"the key {printable(key, 60)} stands twice in one object; keep one of them")
        made[key] = value
    return made


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS + 2:
        raise _Refused(f"a number of {len(text)} digits ({text[:12]}…); at most {MAX_DIGITS} are read")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise _Refused(f"{text} is not JSON; a number that does not exist is written null")


def _copied(value: Any, path: Path_, budget: list[int], where: str) -> Any:
    budget[0] -= 1
    if budget[0] < 0:
        raise InputError(f"{where}: more than {MAX_VALUES:,} values; no results file has so many")
    if len(path) > MAX_DEPTH:
        raise InputError(f"{where}: nested deeper than {MAX_DEPTH} levels; no results file is")
    if isinstance(value, Mapping):
        wrong = next((key for key in value if not isinstance(key, str)), None)
        if wrong is not None:
            raise InputError(f"{where}: {json_path(path)} has the key {wrong!r}; keys are texts")
        return {key: _copied(item, path + (key,), budget, where) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_copied(item, path + (index,), budget, where) for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        value = Decimal(repr(value))
    if isinstance(value, int | Decimal):
        number = Decimal(value)
        exponent = number.as_tuple().exponent
        if not isinstance(exponent, int):
            raise InputError(f"{where}: {json_path(path)} is {value}; a number must be finite")
        if number and (number.adjusted() > MAX_DIGITS or exponent < -MAX_DECIMALS):
            raise InputError(
                f"{where}: {json_path(path)} is beyond 10^{MAX_DIGITS} or has more than {MAX_DECIMALS} decimals"
            )
        return value
    raise InputError(f"{where}: {json_path(path)} is a {_kind(value)}, which JSON does not have")


def _kind(value: Any) -> str:
    names = {list: "list", str: "text", bool: "truth value", int: "number", Decimal: "number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
