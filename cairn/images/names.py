"""Names and paths from outside as they stand in messages: on one line, without control characters, not too long."""

import unicodedata

LONGEST = 120
"""Characters of a name that a message shows."""


def shown(name: object) -> str:
    """`name` as Python writes it, which escapes what cannot be printed, cut to LONGEST characters."""
    text = str(name)
    return repr(text if len(text) <= LONGEST else text[: LONGEST - 1] + "…")


def one_line(message: object) -> str:
    """`message` with control characters, line ends and what is not UTF-8 escaped as Python writes them."""
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        else character
        for character in str(message)
    )
