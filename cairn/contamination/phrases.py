"""Finds phrases in a category's words, by their first words, and phrases it nearly holds; shared vocabulary."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cairn.contamination.landmarks import DATA
from cairn.contamination.words import BREAK, Words, split

SHORTEST_NEAR = 5
"""Letters of a word that longer ones are compared with."""
LONGEST_REST = 5
"""Letters more that such a longer word may have: "Oxford" and "Oxfordshire"."""


@dataclass(frozen=True)
class Phrase:
    words: Words
    reason: str = ""
    needs_place: bool = False


class Phrases:
    """Phrases in an order that matters, found by their first words; names also by words they nearly have."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self.all = list(phrases)
        self._first: dict[str, dict[str, list[int]]] = {}  # first word, second ("" for none) → phrases
        self._joined: dict[str, list[int]] = {}
        self._words: dict[str, list[int]] = {}
        for number, phrase in enumerate(self.all):
            tokens = phrase.words.tokens
            second = "".join(tokens[1:2])
            self._first.setdefault(tokens[0], {}).setdefault(second, []).append(number)
            if len(tokens) > 1:
                self._joined.setdefault("".join(tokens), []).append(number)
            for token in set(tokens):
                if len(token) >= SHORTEST_NEAR and token not in common_words():
                    self._words.setdefault(token, []).append(number)

    def in_words(self, words: Words) -> Iterator[tuple[Phrase, int, int]]:
        """Each phrase that stands in `words`, with its first word there and the word behind."""
        tokens, found = words.tokens, []
        for start, token in enumerate(tokens):
            followers = self._first.get(token)
            if followers is None:
                continue
            numbers = list(followers.get("", ()))
            if start + 1 < len(tokens):
                numbers += followers.get(tokens[start + 1], ())
            found += [
                (number, start) for number in numbers if stands_at(words, self.all[number].words, start)
            ]
        for number, start in sorted(found):
            yield self.all[number], start, start + len(self.all[number].words.tokens)

    def joined_in(self, words: Words) -> Iterator[tuple[Phrase, int]]:
        """Each phrase that stands in `words` as one word, with that word's number."""
        for place, token in enumerate(words.tokens):
            for number in self._joined.get(token, ()):
                yield self.all[number], place

    def nearly_in(self, words: Words) -> Iterator[Phrase]:
        """Each phrase one word of which stands in `words` with more letters at its end."""
        numbers = {
            number
            for token in words.tokens
            for shorter in beginnings(token)
            for number in self._words.get(shorter, ())
        }
        for number in sorted(numbers):
            yield self.all[number]


@dataclass(frozen=True)
class Vocabulary:
    """The content of `words.yaml`: words that change what a category is about."""

    common: frozenset[str]
    other_place: frozenset[str]
    particles: frozenset[str]
    copies: Phrases
    doubts: Phrases


def prepare_names(names: Iterable[tuple[str, bool]]) -> Phrases:
    """Longest first, so that "Musée du Louvre" is met before "Louvre"; names that are enough before others."""
    prepared = {}
    for text, needs_place in names:
        words = split(text)
        prepared.setdefault((words.tokens, needs_place), Phrase(words, needs_place=needs_place))
    return Phrases(sorted(prepared.values(), key=lambda one: (-len(one.words.tokens), one.needs_place)))


def beginnings(token: str) -> Iterator[str]:
    """`token` without its last letter, without its last two, ..."""
    for length in range(len(token) - 1, max(SHORTEST_NEAR, len(token) - LONGEST_REST) - 1, -1):
        yield token[:length]


def stands_at(words: Words, name: Words, start: int) -> bool:
    """Whether `name` stands in `words` from word `start` on. No comma or bracket may cut it."""
    stop = start + len(name.tokens)
    return words.tokens[start:stop] == name.tokens and all(
        join != BREAK or own == BREAK
        for join, own in zip(words.joins[start + 1 : stop], name.joins[1:], strict=True)
    )


def is_longer(token: str, word: str) -> bool:
    return (
        len(word) >= SHORTEST_NEAR
        and token.startswith(word)
        and len(token) - len(word) <= LONGEST_REST
        and word not in common_words()
    )


@functools.cache
def common_words() -> frozenset[str]:
    """Words that stand in many names of buildings: no name is looked up by one, or nearly read from one."""
    return frozenset(split(" ".join(_load()["common"])).tokens)


@functools.cache
def read_vocabulary() -> Vocabulary:
    """The shared vocabulary."""
    value = _load()
    return Vocabulary(
        common=common_words(),
        other_place=frozenset(value["other_place"]),
        particles=frozenset(str(word) for word in value["particles"]),
        copies=Phrases(Phrase(split(text)) for text in value["copies"]),
        doubts=Phrases(
            Phrase(split(text), about) for about, texts in value["doubts"].items() for text in texts
        ),
    )


@functools.cache
def _load() -> dict[str, Any]:
    import yaml

    return yaml.safe_load((DATA / "words.yaml").read_text("utf-8"))
