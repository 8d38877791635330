"""Names and categories as comparable words: percent-encoding, accents, punctuation and apostrophes undone."""

import functools
import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

# A word, with the s of a possessive ("Saint John's" is one name with "Saint Johns", "d'Orsay" is two words).
# Chinese and Japanese are written without blanks: a Han character is a word, and so is a run of katakana or hiragana.
_HAN, _KANA = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
    ("\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f", "\u3041-\u309f"),
)
_WORD = re.compile(
    rf"[{_HAN}]|[{_KANA[0]}]+|[{_KANA[1]}]+|[^\W_{_HAN}{''.join(_KANA)}]+(?:['’ʼ`´′]s(?![^\W_]))?",
    re.IGNORECASE,
)
_NOT_WORD = re.compile(r"[\W_]+")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
# "Category:" in the languages of the addresses people copy; the site is Wikimedia Commons, which uses the first.
_NAMESPACE = re.compile(r"^(?:category|kategorie|cat[ée]gorie|categor[íi]a|categoria)\s*:\s*", re.IGNORECASE)
_USUAL = "http://commons.wikimedia.org/wiki/Category:"  # how GLDv2's file begins every address
# Letters that Unicode does not take apart into a plain letter and a mark.
_LETTERS = str.maketrans(
    {"ł": "l", "ø": "o", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)
_HYPHENS = "-\u2010\u2011\u2013\u2014"
_ABBREVIATIONS = {"st": "saint", "ste": "sainte", "mt": "mount"}

SPACE, HYPHEN, BREAK = " ", "-", ","
"""What stands between two words: blanks or an apostrophe; a hyphen; anything that ends a part of the name."""


@dataclass(frozen=True)
class Words:
    """A text as words: `tokens` are what is compared, `joins[i]` is what stands before word i ("" at first).

    `spans[i]` says where word i stands in `text`. A word in brackets begins a part of its own: BREAK.
    """

    text: str
    tokens: tuple[str, ...]
    joins: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]

    def shown(self, start: int, stop: int) -> str:
        """The text of the words `start` to `stop` - 1, as written."""
        return self.text[self.spans[start][0] : self.spans[stop - 1][1]]

    def part_ends(self, position: int) -> int:
        """Number of the first word behind the part of the text that word `position` belongs to."""
        for number in range(position + 1, len(self.tokens)):
            if self.joins[number] == BREAK:
                return number
        return len(self.tokens)


def category_name(address: str) -> str:
    """The name in a category's address, or a name as it is: decoded, blanks for underscores, no namespace.

    Bytes that are not UTF-8 are read as Latin-1, and an address that was encoded twice is decoded twice.
    """
    usual = address.startswith(_USUAL)
    name = address[len(_USUAL) :] if usual else address
    if not usual and ("://" in name or name.startswith("//")):
        name = name.split("://", 1)[-1].lstrip("/")
        name = name.split("/wiki/", 1)[1] if "/wiki/" in name else name.partition("/")[2]
    for _ in range(2):
        if "%" not in name or not _ENCODED.search(name):
            break
        name = _decode(name)
    if "_" in name:
        name = name.replace("_", " ")
    if not name.isascii():
        # Soft hyphens, zero-width spaces and marks of direction are not seen, and are copied along.
        name = "".join(letter for letter in name if unicodedata.category(letter) != "Cf")
        name = unicodedata.normalize("NFC", name)
    return name.strip() if usual else _NAMESPACE.sub("", name.strip(), count=1)


def fold(word: str) -> str:
    """One word without case, accents, compatibility forms and apostrophes."""
    if not word.isascii():
        folded = unicodedata.normalize("NFKD", word.casefold()).translate(_LETTERS)
        word = "".join(letter for letter in folded if not unicodedata.combining(letter)).casefold()
    else:
        word = word.lower()
    return word if word.isalnum() else _NOT_WORD.sub("", word)


def split(text: str) -> Words:
    """`text` (a name, or what `category_name` made of an address) as words."""
    tokens, joins, spans, end = [], [], [], 0
    for match in _WORD.finditer(text):
        token = _folded(match.group())
        if not token:
            continue
        joins.append(_join(text[end : match.start()]) if tokens else "")
        tokens.append(token)
        spans.append(match.span())
        end = match.end()
    for number, token in enumerate(tokens[:-1]):
        # "St" at the end of a part is a street.
        if token in _ABBREVIATIONS and joins[number + 1] != BREAK:
            tokens[number] = _ABBREVIATIONS[token]
    return Words(text, tuple(tokens), tuple(joins), tuple(spans))


def quick_tokens(text: str) -> list[str]:
    """The words of `text` folded, in order, abbreviations as they are: cheap, for a first sieve."""
    if text.isascii() and "'" not in text and "`" not in text:
        return _WORD.findall(text.lower())
    return [_folded(word) for word in _WORD.findall(text)]


_folded = functools.lru_cache(maxsize=1 << 17)(fold)


def _join(between: str) -> str:
    if len(between) == 1 and between in _HYPHENS:
        return HYPHEN
    if all(character in " .'’ʼ`´′&+\u00a0" for character in between):
        return SPACE
    return BREAK


def _decode(text: str) -> str:
    data = unquote_to_bytes(text)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")
