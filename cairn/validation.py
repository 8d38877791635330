"""Parameters checked against a pydantic model, with errors that name the key and what is allowed."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.errors import ParameterError

if TYPE_CHECKING:
    from pydantic import BaseModel

    M = TypeVar("M", bound="BaseModel")


def validated(model: "type[M]", values: Mapping[str, Any], where: str) -> "M":
    """An instance of `model` from plain `values`, defaults filled in.

    Raises `ParameterError` that names the dotted key below `where` and what is allowed there.
    """
    from pydantic import ValidationError

    if not isinstance(values, Mapping):
        raise ParameterError(f"{where} = {shown(values)}: a mapping is expected")
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key = ".".join((where, *(str(part) for part in first["loc"])))
    if first["type"] == "extra_forbidden":
        allowed = _fields_at(model, first["loc"][:-1])
        raise ParameterError(
            f"{key} is not a known key{hint(str(first['loc'][-1]), allowed)}; allowed: {', '.join(allowed)}"
        )
    if first["type"] == "missing":
        raise ParameterError(f"{key} is missing; it has no default")
    raise ParameterError(f"{key} = {shown(first['input'])}: {first['msg']}")


def hint(word: str, allowed: Iterable[str]) -> str:
    """` (did you mean …?)` where one of `allowed` is close to `word`, else an empty string."""
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: Any) -> str:
    """A value as Python writes it, cut to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _fields_at(model: "type[BaseModel]", location: tuple[Any, ...]) -> list[str]:
    from pydantic import BaseModel

    for part in location:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if not nested:
            return []
        model = nested[0]
    return list(model.model_fields)
