"""Landmark lists: what the queried landmarks of a benchmark are called, and what only sounds like them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from cairn.errors import InputError

DATA = Path(__file__).parent / "data"
"""Lists that come with Cairn, one `<benchmark>.yaml` each; `words.yaml` beside them is none."""

Names = dict[str, str | list[str]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_empty_names(cls, value: Any) -> Any:
        texts = value if isinstance(value, list) else [value] if isinstance(value, str) else []
        if any(isinstance(text, str) and not any(map(str.isalnum, text)) for text in texts):
            raise ValueError("a name without a letter or digit matches nothing")
        return value


class Place(_Strict):
    """Where landmarks stand.

    `within` are names of its parts, which name the place too. `elsewhere` are places of the same name
    ("Mississippi" for Oxford): next to one of them the name means another place. `sounds_like` maps phrases
    that hold the name and mean something else ("Oxford Street") to a reason. `blanket` says whether every
    category that names the place is flagged, and `blanket_note` why it is or is not.
    """

    name: str
    aliases: list[str] = Field(default_factory=list)
    languages: Names = Field(default_factory=dict)
    within: list[str] = Field(default_factory=list)
    elsewhere: list[str] = Field(default_factory=list)
    sounds_like: dict[str, str] = Field(default_factory=dict)
    blanket: bool = True
    blanket_note: str = ""

    @property
    def slug(self) -> str:
        """The place in rule names: `blanket:oxford`."""
        return slug(self.name)

    def names(self) -> list[str]:
        """Every name of the place and its parts."""
        return [self.name, *self.aliases, *flat(self.languages), *self.within]


class Landmark(_Strict):
    """A queried landmark.

    `name`, `aliases` and `languages` are enough by themselves, unless `ambiguous`: then they count only
    where the category names the place as well. `only_with_place` are further names that need the place,
    `unmistakable` further names that do not. `context` are words that tell the place as well as its own
    names do. `elsewhere` are places of namesakes. `sounds_like` maps phrases that hold a name and mean
    something else to a reason. `queries` are query ids, `prefixes` beginnings of the names of gallery
    images that show it.
    """

    id: str
    name: str
    place: str
    ambiguous: bool = False
    aliases: list[str] = Field(default_factory=list)
    languages: Names = Field(default_factory=dict)
    only_with_place: list[str] = Field(default_factory=list)
    unmistakable: list[str] = Field(default_factory=list)
    context: list[str] = Field(default_factory=list)
    elsewhere: list[str] = Field(default_factory=list)
    sounds_like: dict[str, str] = Field(default_factory=dict)
    queries: list[str] = Field(default_factory=list)
    prefixes: list[str] = Field(default_factory=list)

    def names(self) -> list[tuple[str, bool]]:
        """Every name, and whether it needs the place beside it."""
        common = [self.name, *self.aliases, *flat(self.languages)]
        return [
            *[(name, self.ambiguous) for name in common],
            *[(name, True) for name in self.only_with_place],
            *[(name, False) for name in self.unmistakable],
        ]


class LandmarkList(_Strict):
    """The landmarks of one benchmark."""

    benchmark: str
    note: str = ""
    places: list[Place]
    landmarks: list[Landmark]

    @model_validator(mode="after")
    def _fits(self) -> "LandmarkList":
        places = [place.name for place in self.places]
        if not self.landmarks:
            raise ValueError("it has no landmark")
        for what, values in (("place", places), ("landmark", [one.id for one in self.landmarks])):
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ValueError(f"{what} {twice!r} is given twice")
        for landmark in self.landmarks:
            if landmark.place not in places:
                raise ValueError(f"landmark {landmark.id}: its place {landmark.place!r} is not among places")
        return self

    def place_of(self, landmark: Landmark) -> Place:
        """The place a landmark stands in."""
        return next(place for place in self.places if place.name == landmark.place)


def shipped_lists() -> list[str]:
    """Benchmarks whose landmark list comes with Cairn."""
    return sorted(path.stem for path in DATA.glob("*.yaml") if path.stem != "words")


def load_landmarks(name_or_path: str) -> LandmarkList:
    """The list of a benchmark that comes with Cairn, or the one in a `.yaml` or `.json` file.

    InputError where there is neither, or where the file does not follow the form of `LandmarkList`.
    """
    if name_or_path in shipped_lists():
        return read_landmarks(DATA / f"{name_or_path}.yaml")
    path = Path(name_or_path)
    if not path.is_file():
        raise InputError(
            f"{name_or_path}: no such landmark list; give a .yaml or .json file, or one of: "
            + ", ".join(shipped_lists())
        )
    return read_landmarks(path)


def read_landmarks(path: Path) -> LandmarkList:
    """The landmark list in a `.yaml` or `.json` file (toytown's `landmarks.json` has the form too)."""
    value = _parse(Path(path))
    if not isinstance(value, dict):
        raise InputError(f"{path}: a mapping with benchmark, places and landmarks was expected")
    try:
        return LandmarkList.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from None


def landmarks_of_queries(
    landmarks: LandmarkList, positives: Mapping[str, list[str]]
) -> dict[str, str | None]:
    """Query id → landmark id, None where no landmark fits.

    A query that a landmark names is its own; for others the gallery images that are `positives` of the query
    vote with the beginnings of their names (`prefixes`), as ROxford's and RParis's images are named after
    what they show. More than half of the votes win.
    """
    named = {query: one.id for one in landmarks.landmarks for query in one.queries}
    prefixes = sorted(
        ((prefix, one.id) for one in landmarks.landmarks for prefix in one.prefixes),
        key=lambda pair: -len(pair[0]),
    )
    result: dict[str, str | None] = {}
    for query, images in positives.items():
        if query in named:
            result[query] = named[query]
            continue
        votes: dict[str, int] = {}
        for image in images:
            base = image.rsplit("/", 1)[-1]
            winner = next((landmark for prefix, landmark in prefixes if base.startswith(prefix)), None)
            if winner is not None:
                votes[winner] = votes.get(winner, 0) + 1
        best = max(votes, key=lambda landmark: (votes[landmark], landmark), default=None)
        result[query] = best if best is not None and 2 * votes[best] > len(images) else None
    return result


def slug(text: str) -> str:
    """`text` as it stands in a rule's name: `blanket:oxford`."""
    from cairn.contamination.words import split

    return "-".join(split(text).tokens)


def flat(names: Names) -> list[str]:
    """The names of all languages, in their order."""
    return [name for value in names.values() for name in ([value] if isinstance(value, str) else value)]


def _parse(path: Path) -> Any:
    if path.suffix == ".json":
        from cairn.scoring.files import read_json

        return read_json(path)
    import yaml

    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise InputError(
            f"{path}{line}: not YAML ({getattr(error, 'problem', None) or error!s:.80})"
        ) from None
