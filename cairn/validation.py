"""Parameters checked against a pydantic model, with errors that name the key and what is allowed."""

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.errors import ParameterError

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound="BaseModel")


def validated(model: "type[M]", values: Mapping[str, Any], where: str) -> "M":
    """An instance of `model` from plain `values`; ParameterError, one line starting with `where`, otherwise.

    Only the first fault is told: a key that does not exist (with what is allowed and the closest name), one
    that is missing, or a value of the wrong type or out of its range.
    """
    from pydantic import ValidationError

    if not isinstance(values, Mapping):
        raise ParameterError(f"{where}: {values!r} is not a mapping of parameters")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    path = tuple(first["loc"])
    key = ".".join(map(str, path))
    if first["type"] == "extra_forbidden":
        allowed = sorted(_fields(model, path[:-1]))
        prefix = "".join(f"{part}." for part in path[:-1])
        raise ParameterError(
            f"{where}: {key} is not a parameter{close_match(str(path[-1]), allowed, prefix)}; "
            f"allowed: {', '.join(allowed)}"
        )
    if first["type"] == "missing":
        raise ParameterError(f"{where}: {key} is missing")
    reason = first["msg"][:1].lower() + first["msg"][1:]
    raise ParameterError(f"{where}: {key} is {first['input']!r}: {reason}")


def close_match(name: str, allowed: Sequence[str], prefix: str = "") -> str:
    """` (did you mean …?)` where one of `allowed` is close to `name`, else an empty string."""
    close = difflib.get_close_matches(name, allowed, n=1)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def _fields(model: "type[BaseModel]", path: Sequence[Any]) -> list[str]:
    """Names of the fields of the model that lies at `path` inside `model`."""
    from pydantic import BaseModel

    for name in path:
        inner = model.model_fields.get(str(name))
        if inner is None or not (
            isinstance(inner.annotation, type) and issubclass(inner.annotation, BaseModel)
        ):
            return []
        model = inner.annotation
    return list(model.model_fields)
