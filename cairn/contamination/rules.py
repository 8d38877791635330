"""Decides which training categories name a queried landmark: rules `unique`, `ctx`, `blanket`, with reasons.

- `unique:<landmark>`: the category holds a name that is enough by itself.
- `ctx:<landmark>`: it holds an ambiguous name and names the right place as well.
- `blanket:<place>`: it names the place and no landmark in it.

Names match as whole words in order (see `words.py`). A match does not count where a phrase of the list says
that it is something else ("Louvre-Lens"), where a hyphen makes it a part of another name, where the category
names a place of a namesake, or where it is about a copy. Words such as "interior" leave a doubt: such a class
is flagged in the inclusive stance only, as is everything a blanket rule catches.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.contamination.landmarks import Landmark, LandmarkList, Place
from cairn.contamination.phrases import (
    Phrase,
    Phrases,
    beginnings,
    is_longer,
    prepare_names,
    read_vocabulary,
)
from cairn.contamination.words import BREAK, HYPHEN, SPACE, Words, category_name, quick_tokens, split
from cairn.errors import InputError

UNIQUE, CONTEXT, BLANKET = "unique", "ctx", "blanket"
KINDS = (UNIQUE, CONTEXT, BLANKET)
"""Kinds of rules; of several that catch a class, the first is the one it is reported under."""


@dataclass(frozen=True)
class Finding:
    """A rule that caught a category: which name, as the category writes it, and what makes it doubtful."""

    rule: str
    benchmark: str
    landmark: str | None  # None under a blanket rule
    matched: str
    place: str | None  # what names the place, as the category writes it
    doubts: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One of KINDS."""
        return self.rule.partition(":")[0]

    @property
    def strict(self) -> bool:
        """Whether the strict stance flags the class too."""
        return self.kind != BLANKET and not self.doubts


@dataclass(frozen=True)
class Rejection:
    """A rule that was considered and did not apply, and why."""

    rule: str
    benchmark: str
    matched: str
    reason: str


@dataclass(frozen=True)
class Examination:
    """What came of one category; findings in the order of KINDS, those without doubts first."""

    findings: tuple[Finding, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    unused_places: tuple[str, ...] = ()  # places it names whose blanket rule is off


@dataclass(frozen=True)
class _Place:
    place: Place
    names: Phrases  # longest first, as everywhere
    elsewhere: Phrases
    sounds_like: Phrases


@dataclass(frozen=True)
class _Landmark:
    landmark: Landmark
    benchmark: str
    place: _Place
    names: Phrases
    context: Phrases
    elsewhere: Phrases
    sounds_like: Phrases


@dataclass(frozen=True)
class _Mention:
    """A place that a category names, or seems to: `reason` says why it does not count."""

    start: int
    stop: int
    reason: str | None = None
    other_place: bool = False


class Matcher:
    """Holds the names of landmark lists, found by one word of each: categories that share none cost little.

    Raises InputError where two lists are of the same benchmark.
    """

    def __init__(self, lists: Sequence[LandmarkList]) -> None:
        benchmarks = [each.benchmark for each in lists]
        twice = next((name for name in benchmarks if benchmarks.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two landmark lists are of the benchmark {twice}; give one of each")
        self._vocabulary = read_vocabulary()
        self._linking = self._vocabulary.particles - {"and", "et"}
        self._landmarks: list[_Landmark] = []
        self._places: list[tuple[str, _Place]] = []
        self._anchors: dict[str, set[int]] = {}  # word → landmarks, or places as -1 - number
        self._joined: dict[str, set[int]] = {}
        for each in lists:
            self._add(each)
        self._lookup = functools.lru_cache(maxsize=1 << 20)(self._owners)

    def examine(self, address: str) -> Examination:
        """What the rules say of a category, given its address or its name."""
        name = category_name(address)
        owners: set[int] = set()
        for token in quick_tokens(name):
            found = self._lookup(token)
            if found:
                owners.update(found)
        if not owners:
            return _NOTHING
        words = split(name)
        findings: list[Finding] = []
        rejections: list[Rejection] = []
        unused: list[str] = []
        for number in sorted(owner for owner in owners if owner >= 0):
            outcome = self._judge(words, self._landmarks[number])
            if isinstance(outcome, Finding):
                findings.append(outcome)
            elif outcome is not None:
                rejections.append(outcome)
        for number in sorted(-1 - owner for owner in owners if owner < 0):
            benchmark, place = self._places[number]
            if any(one.landmark is not None and one.benchmark == benchmark for one in findings):
                continue  # blanket rules are for what no landmark's rule caught
            outcome = self._judge_blanket(words, benchmark, place)
            if not place.place.blanket:
                unused += [place.place.slug] if isinstance(outcome, Finding) else []
            elif isinstance(outcome, Finding):
                findings.append(outcome)
            elif outcome is not None:
                rejections.append(outcome)
        findings.sort(key=lambda one: (KINDS.index(one.kind), len(one.doubts)))
        return Examination(tuple(findings), tuple(rejections), tuple(unused))

    def _add(self, landmarks: LandmarkList) -> None:
        places = {}
        for place in landmarks.places:
            prepared = _Place(
                place,
                prepare_names((name, False) for name in place.names()),
                prepare_names((name, False) for name in place.elsewhere),
                Phrases(Phrase(split(text), reason) for text, reason in place.sounds_like.items()),
            )
            places[place.name] = prepared
            self._index(prepared.names, -1 - len(self._places))
            self._places.append((landmarks.benchmark, prepared))
        for landmark in landmarks.landmarks:
            one = _Landmark(
                landmark,
                landmarks.benchmark,
                places[landmark.place],
                prepare_names(landmark.names()),
                prepare_names((name, False) for name in landmark.context),
                prepare_names((name, False) for name in landmark.elsewhere),
                Phrases(Phrase(split(text), reason) for text, reason in landmark.sounds_like.items()),
            )
            self._index(one.names, len(self._landmarks))
            self._landmarks.append(one)

    def _index(self, names: Phrases, owner: int) -> None:
        poor = self._vocabulary.common | self._vocabulary.particles
        for name in names.all:
            tokens = name.words.tokens
            anchor = max(tokens, key=lambda token: (token not in poor, len(token)))
            self._anchors.setdefault(anchor, set()).add(owner)
            if len(tokens) > 1:
                self._joined.setdefault("".join(tokens), set()).add(owner)

    def _owners(self, token: str) -> frozenset[int]:
        """Landmarks and places one of whose names may be written with `token`, or nearly."""
        found = self._anchors.get(token, set()) | self._joined.get(token, set())
        for shorter in beginnings(token):
            found = found | self._anchors.get(shorter, set())
        return frozenset(found)

    def _judge(self, words: Words, one: _Landmark) -> Finding | Rejection | None:
        mention = _mention(words, one.place, self._vocabulary.other_place)
        if mention is None or mention.reason is not None:
            for _, start, stop in one.context.in_words(words):
                mention = _Mention(start, stop)
                break
        best: Finding | None = None
        refused: Rejection | None = None
        covered: list[tuple[int, int]] = []
        for name, start, stop in one.names.in_words(words):
            if any(first <= start and stop <= last for first, last in covered):
                continue
            covered.append((start, stop))
            outcome = self._weigh(words, start, stop, name.needs_place, one, mention)
            if isinstance(outcome, Rejection):
                refused = refused or outcome
            elif best is None or _order(outcome) < _order(best):
                best = outcome
        if best is not None or refused is not None:
            return best or refused
        return _near(words, one.names, one.landmark.id, one.benchmark)

    def _weigh(
        self, words: Words, start: int, stop: int, needs_place: bool, one: _Landmark, mention: _Mention | None
    ) -> Finding | Rejection:
        """Whether the name at the words `start` to `stop` - 1 means the landmark."""
        kind = CONTEXT if needs_place else UNIQUE
        landmark, place = one.landmark, one.place.place
        matched = words.shown(start, stop)
        named = mention if mention is not None and mention.reason is None else None
        if needs_place and named is not None and start <= named.start and named.stop <= stop:
            kind = UNIQUE  # the name holds the place already

        def reject(reason: str) -> Rejection:
            return Rejection(f"{kind}:{landmark.id}", one.benchmark, matched, reason)

        for phrase, first, last in one.sounds_like.in_words(words):
            if first < stop and start < last:
                return reject(f"“{words.shown(first, last)}” is {phrase.reason}")
        for _, first, last in _outside(words, self._vocabulary.copies, start, stop):
            return reject(f"“{words.shown(first, last)}”: a copy is not the landmark")
        if (other := self._hyphenated(words, start, stop, named)) is not None:
            return reject(f"a hyphen makes it a part of “{other}”")
        doubts: list[str] = []
        for phrases in (one.elsewhere, one.place.elsewhere):
            for _, first, last in _outside(words, phrases, start, stop):
                if named is None:
                    return reject(f"the category names {words.shown(first, last)}, not {place.name}")
                doubts.append(f"it names {words.shown(first, last)} as well")
        if mention is not None and named is None and (needs_place or mention.other_place):
            return reject(str(mention.reason))
        if needs_place and named is None:
            return reject(f"the name alone is ambiguous, and the category does not name {place.name}")
        if named is None:
            doubts += [f"“{part}” is not {place.name}" for part in _qualifiers(words, stop)]
            if (rest := self._goes_on(words, stop)) is not None:
                doubts.append(f"“{rest}” is not {place.name}")
        for phrase, first, last in _outside(words, self._vocabulary.doubts, start, stop):
            doubts.append(f"{phrase.reason}: “{words.shown(first, last)}”")
        return Finding(
            f"{kind}:{landmark.id}",
            one.benchmark,
            landmark.id,
            matched,
            words.shown(named.start, named.stop) if named else None,
            tuple(doubts),
        )

    def _hyphenated(self, words: Words, start: int, stop: int, named: _Mention | None) -> str | None:
        """The longer name that a hyphen before or behind makes of the match, unless place or number follow."""
        last = stop
        while last < len(words.tokens) and words.joins[last] == HYPHEN:
            last += 1
        behind = list(range(stop, last))
        while behind and words.tokens[behind[0]] in self._vocabulary.particles:
            behind.pop(0)
        in_place = named is not None and bool(behind) and named.start <= behind[0] < named.stop
        if behind and not words.tokens[behind[0]].isdigit() and not in_place:
            return words.shown(start, last)
        if start and words.joins[start] == HYPHEN:
            before = words.tokens[start - 1]
            if before not in self._vocabulary.particles and not before.isdigit():
                return words.shown(start - 1, stop)
        return None

    def _goes_on(self, words: Words, stop: int) -> str | None:
        """What makes a longer name of the match: "of Tijuana" behind it. Small letters ("de nuit") name nothing."""
        last = stop
        while last < len(words.tokens) and words.joins[last] == SPACE and words.tokens[last] in self._linking:
            last += 1
        if last == stop or last == len(words.tokens) or words.joins[last] == BREAK:
            return None
        return words.shown(stop, last + 1) if words.text[words.spans[last][0]].isupper() else None

    def _judge_blanket(self, words: Words, benchmark: str, place: _Place) -> Finding | Rejection | None:
        rule = f"{BLANKET}:{place.place.slug}"
        mention = _mention(words, place, self._vocabulary.other_place)
        if mention is None:
            return _near(words, place.names, place.place.slug, benchmark, BLANKET)
        shown = words.shown(mention.start, mention.stop)
        if mention.reason is not None:
            return Rejection(rule, benchmark, shown, mention.reason)
        return Finding(rule, benchmark, None, shown, shown)


_NOTHING = Examination()


def _order(finding: Finding) -> tuple[int, int]:
    return KINDS.index(finding.kind), len(finding.doubts)


def _outside(words: Words, phrases: Phrases, start: int, stop: int) -> Iterator[tuple[Phrase, int, int]]:
    """The phrases that stand in `words` without touching the words `start` to `stop` - 1, and where."""
    for phrase, first, last in phrases.in_words(words):
        if last <= start or first >= stop:
            yield phrase, first, last


def _mention(words: Words, place: _Place, other_place: frozenset[str]) -> _Mention | None:
    """Where the category names the place; one that does not count only if there is none that does."""
    refused: _Mention | None = None
    covered: list[tuple[int, int]] = []
    for _, start, stop in place.names.in_words(words):
        if any(first <= start and stop <= last for first, last in covered):
            continue
        covered.append((start, stop))
        mention = _weigh_mention(words, start, stop, place, other_place)
        if mention.reason is None:
            return mention
        refused = refused or mention
    return refused


def _weigh_mention(
    words: Words, start: int, stop: int, place: _Place, other_place: frozenset[str]
) -> _Mention:
    for phrase, first, last in place.sounds_like.in_words(words):
        if first < stop and start < last:
            return _Mention(start, stop, f"“{words.shown(first, last)}” is {phrase.reason}")
    for _, first, last in _outside(words, place.elsewhere, start, stop):
        reason = f"it is the {place.place.name} of {words.shown(first, last)}"
        return _Mention(start, stop, reason, other_place=True)
    if start and words.joins[start] != BREAK and words.tokens[start - 1] in other_place:
        return _Mention(start, stop, f"“{words.shown(start - 1, stop)}” is another place", other_place=True)
    if stop < len(words.tokens) and words.joins[stop] == HYPHEN and not words.tokens[stop].isdigit():
        return _Mention(start, stop, f"a hyphen makes it a part of “{words.shown(start, stop + 1)}”")
    return _Mention(start, stop)


def _qualifiers(words: Words, stop: int) -> list[str]:
    """The parts behind the part in which a match ends, as written, numbers left out."""
    parts, start = [], words.part_ends(stop - 1)
    while start < len(words.tokens):
        end = words.part_ends(start)
        if not all(token.isdigit() for token in words.tokens[start:end]):
            parts.append(words.shown(start, end))
        start = end
    return parts


def _near(
    words: Words, names: Phrases, subject: str, benchmark: str, kind: str | None = None
) -> Rejection | None:
    """A name written in one word, or with a longer word, is not that name."""

    def reject(name: Phrase, start: int, stop: int, what: str) -> Rejection:
        rule = f"{kind or (CONTEXT if name.needs_place else UNIQUE)}:{subject}"
        return Rejection(rule, benchmark, words.shown(start, stop), f"{what}, and not “{name.words.text}”")

    for name, number in names.joined_in(words):
        return reject(name, number, number + 1, "one word")
    for name in names.nearly_in(words):
        wanted, length = name.words.tokens, len(name.words.tokens)
        for start in range(len(words.tokens) - length + 1):
            pairs = zip(words.tokens[start : start + length], wanted, strict=True)
            differ = [(token, word) for token, word in pairs if token != word]
            if len(differ) == 1 and is_longer(*differ[0]):
                return reject(name, start, start + length, "another word")
    return None
