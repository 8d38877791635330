"""What words of a results file mean: benchmarks, columns, and the words that tell two rows apart."""

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NOT = "¬"

_WORD = re.compile(r"[a-z0-9µ]+(?:@[a-z0-9]+)?")
_TOP = re.compile(r"\btop[ _-]?k?[ _-]?(\d+)\b")
_MILLION = re.compile(r"(?:\+|plus[ _-]?|[-_])1m(?![a-z0-9])")


@functools.cache
def vocabulary() -> Mapping[str, Any]:
    """The content of `vocabulary.yaml`."""
    import yaml

    return yaml.safe_load(Path(__file__).with_name("vocabulary.yaml").read_text("utf-8"))


@functools.cache
def dataset(text: str) -> str | None:
    """The benchmark that a key or a word names (`ROxford+1M` → `roxford`), None where it is no known one."""
    return _aliases("datasets").get(bare(_MILLION.sub("", text.lower())))


@functools.cache
def column(text: str) -> str | None:
    """The column that a key or a word names (`M`, `mAP-M` → `medium`), None where it is no known one."""
    return _aliases("columns").get(bare(text))


def bare(text: str) -> str:
    """Lower case, with nothing but letters, digits and @."""
    return "".join(c for c in text.lower() if c.isalnum() or c == "@")


def millions(text: str) -> bool:
    """Whether a key or a word says that a million distractors were added."""
    return _MILLION.search(text.lower()) is not None


@functools.lru_cache(maxsize=20_000)
def words(text: str) -> frozenset[str]:
    """The telling words of `text`, without endings; `no reranking` gives `¬rerank`."""
    text = unicodedata.normalize("NFKC", text[:2000]).lower()
    text = _MILLION.sub(" plus1m ", text)
    text = _TOP.sub(r" top\1 ", text)
    for said, meant in vocabulary()["synonyms"].items():
        if said in text:
            text = text.replace(said, f" {meant} ")
    stop = _stopwords()
    found: set[str] = set()
    negated = False
    for word in _WORD.findall(text):
        if word in _negations():
            negated = True
        elif word not in stop:
            found.add((NOT if negated else "") + stem(word))
            negated = False
    return frozenset(found)


def all_words(texts: Iterable[str]) -> frozenset[str]:
    """The telling words of several texts."""
    return frozenset().union(*(words(text) for text in texts))


@functools.lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """`word` without a plural or verbal ending: good enough to tell that two words are one."""
    for ending in ("ing", "ed", "es", "s"):
        if len(word) - len(ending) >= 4 and word.endswith(ending):
            short = word[: -len(ending)]
            return short[:-1] if len(short) > 4 and short[-1] == short[-2] else short
    return word


def opposite(word: str) -> str:
    """`¬rerank` for `rerank`, and back."""
    return word[1:] if word.startswith(NOT) else NOT + word


@functools.cache
def _aliases(section: str) -> Mapping[str, str]:
    return {bare(alias): name for name, aliases in vocabulary()[section].items() for alias in aliases}


@functools.cache
def _stopwords() -> frozenset[str]:
    return frozenset(vocabulary()["stopwords"].split())


@functools.cache
def _negations() -> frozenset[str]:
    return frozenset(vocabulary()["negations"])
