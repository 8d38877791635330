"""Exclusion lists: reads ids that anyone published, and says which of two lists contains what of the other."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.contamination.classes import INCLUSIVE, STANCES
from cairn.contamination.proportions import Share
from cairn.contamination.training_classes import MAX_ID
from cairn.errors import InputError, UsageError

ID_KEYS = ("id", "landmark_id", "class_id", "gid", "label")
LIST_KEYS = ("classes", "leak_classes", "class_ids", "ids", "landmark_ids", "leak_class_ids")
_EXPECTED = "expected ids one a line, a CSV with landmark_id, or JSON with a list of ids or of objects"


@dataclass(frozen=True)
class Comparison:
    """Two exclusion lists A and B; images are None where no training set was given.

    `classes_of_a` is the share of A's classes that B has too, and so on. `missing_a` and `missing_b` count
    the ids that are no class of the training set, which have no images.
    """

    only_a: tuple[int, ...]
    both: tuple[int, ...]
    only_b: tuple[int, ...]
    classes_of_a: Share
    classes_of_b: Share
    images_of_a: Share | None
    images_of_b: Share | None
    missing_a: tuple[int, ...]
    missing_b: tuple[int, ...]

    @property
    def relation(self) -> str:
        """Who contains whom, in words."""
        if not self.only_a and not self.only_b:
            return "A and B are equal"
        if not self.both:
            return "A and B have no class in common"
        if not self.only_a:
            return "B contains A"
        if not self.only_b:
            return "A contains B"
        return "neither contains the other"


def read_exclusion_list(path: Path, stance: str = INCLUSIVE) -> frozenset[int]:
    """Class ids in a file: text with one id a line (# comments), CSV, or JSON of the usual forms.

    Of a file that Cairn wrote the classes of `stance` are taken. InputError, naming file and line, where
    there is no id, an id is no whole number of at least 0, or one stands twice.
    """
    if stance not in STANCES:
        raise UsageError(f"stance {stance!r}: expected one of {', '.join(STANCES)}")
    path = Path(path)
    if path.suffix == ".json":
        from cairn.scoring.files import read_json

        entries = [(f"{path}", value) for value in _json_entries(path, read_json(path), stance)]
    else:
        entries = _text_entries(path)
    ids: set[int] = set()
    for where, value in entries:
        class_id = _class_id(where, value)
        if class_id in ids:
            raise InputError(f"{where}: class {class_id} is listed twice")
        ids.add(class_id)
    if not ids:
        raise InputError(f"{path}: no class id; {_EXPECTED}")
    return frozenset(ids)


def compare(a: Iterable[int], b: Iterable[int], images: Mapping[int, int] | None = None) -> Comparison:
    """Overlap of two lists; `images` is the number of images of each class of the training set."""
    first, second = frozenset(a), frozenset(b)
    both = first & second

    def share(whole: frozenset[int]) -> Share | None:
        if images is None:
            return None
        return Share(sum(images.get(one, 0) for one in both), sum(images.get(one, 0) for one in whole))

    def missing(whole: frozenset[int]) -> tuple[int, ...]:
        return tuple(sorted(one for one in whole if images is not None and one not in images))

    return Comparison(
        only_a=tuple(sorted(first - second)),
        both=tuple(sorted(both)),
        only_b=tuple(sorted(second - first)),
        classes_of_a=Share(len(both), len(first)),
        classes_of_b=Share(len(both), len(second)),
        images_of_a=share(first),
        images_of_b=share(second),
        missing_a=missing(first),
        missing_b=missing(second),
    )


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison for programs: every ratio with its numerator and denominator."""

    def share(one: Share | None) -> dict[str, Any] | None:
        return None if one is None else {"part": one.part, "whole": one.whole, "ratio": one.value}

    return {
        "relation": comparison.relation,
        "classes": {
            "a": comparison.classes_of_a.whole,
            "b": comparison.classes_of_b.whole,
            "both": len(comparison.both),
        },
        "of_a_also_in_b": {
            "classes": share(comparison.classes_of_a),
            "images": share(comparison.images_of_a),
        },
        "of_b_also_in_a": {
            "classes": share(comparison.classes_of_b),
            "images": share(comparison.images_of_b),
        },
        "both": list(comparison.both),
        "only_a": list(comparison.only_a),
        "only_b": list(comparison.only_b),
        "not_in_training_set": {"a": list(comparison.missing_a), "b": list(comparison.missing_b)},
    }


def _json_entries(path: Path, value: Any, stance: str) -> list[Any]:
    if isinstance(value, dict):
        key = next((key for key in LIST_KEYS if isinstance(value.get(key), list | dict)), None)
        if key is not None:
            value = value[key]
        if isinstance(value, dict):
            if not all(isinstance(one, str) and one.isdigit() for one in value):
                raise InputError(f"{path}: no list of classes in it; {_EXPECTED}")
            return list(value)
    if not isinstance(value, list):
        raise InputError(f"{path}: no list of classes in it; {_EXPECTED}")
    entries = []
    for number, one in enumerate(value):
        if isinstance(one, dict):
            key = next((key for key in ID_KEYS if key in one), None)
            if key is None:
                raise InputError(f"{path}: entry {number} has no {', '.join(ID_KEYS[:3])}; {_EXPECTED}")
            stances = one.get("stances")
            if isinstance(stances, list) and stance not in stances:
                continue
            one = one[key]
        entries.append(one)
    return entries


def _text_entries(path: Path) -> list[tuple[str, Any]]:
    from cairn.scoring.files import read_lines, read_table

    lines = list(read_lines(path))
    if lines and "landmark_id" in lines[0][1].split(","):
        table = read_table(path, ("landmark_id",), more_columns=True)
        return [
            (f"{path}:{line}", text)
            for line, text in zip(table.lines, table.columns["landmark_id"], strict=True)
        ]
    found = []
    for number, line in lines:
        text = line.partition("#")[0].strip()
        found += [(f"{path}:{number}", part) for part in text.replace(",", " ").split()]
    return found


def _class_id(where: str, value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 17:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ID:
        raise InputError(f"{where}: {value!r:.60} is not a class id; {_EXPECTED}")
    return value
