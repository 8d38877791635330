"""Recomputes differences that a card states as data: `{difference, of, minus}`, the two by their names."""

from collections.abc import Iterator, Mapping
from decimal import Decimal

from cairn.card.document import Path_, is_number, walk
from cairn.card.finding import Finding, found


def check_structured(document: Mapping) -> Iterator[Finding]:
    """Whether each stated difference is that of the two numbers it names, and stands in its sentence."""
    values: dict[str, tuple[Decimal, Path_]] = {}
    for path, value in walk(document):
        if (
            isinstance(value, Mapping)
            and isinstance(value.get("number"), str)
            and is_number(value.get("value"))
        ):
            name = value["number"]
            before = values.setdefault(name, (Decimal(value["value"]), path))
            if before[0] != value["value"]:
                text = f"{name} is {value['value']} here and {before[0]} elsewhere"
                yield found("error", "structured", path, text, [before[1]])
    for path, value in walk(document):
        if not isinstance(value, Mapping) or not {"difference", "of", "minus"} <= value.keys():
            continue
        stated, of, minus = value["difference"], value["of"], value["minus"]
        unknown = [name for name in (of, minus) if not isinstance(name, str) or name not in values]
        if unknown or not is_number(stated):
            text = (
                f"names {unknown[0]!r}, and no number is called so" if unknown else f"{stated!r} is no number"
            )
            yield found("error", "structured", path, text)
            continue
        actual = values[of][0] - values[minus][0]
        related = [values[of][1], values[minus][1]]
        right = actual == stated
        text = f"{values[of][0]} ({of}) − {values[minus][0]} ({minus}) = {actual:+f}, stated {stated}"
        yield found("right" if right else "error", "structured", path, text, related)
        sentence = value.get("sentence")
        if isinstance(sentence, str) and f"{abs(Decimal(stated)):.2f}" not in sentence:
            text = f"the sentence does not give the difference {stated} that stands beside it"
            yield found("error", "structured", path + ("sentence",), text)
