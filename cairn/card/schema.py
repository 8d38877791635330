"""The card's JSON Schema, and the check against it."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.card.document import json_path
from cairn.errors import ArtifactError

SCHEMA = Path(__file__).with_name("card.schema.json")


@functools.cache
def card_schema() -> Mapping[str, Any]:
    """The schema that is shipped (JSON Schema, draft 2020-12)."""
    return json.loads(SCHEMA.read_text("utf-8"))


def validate(card: Mapping[str, Any]) -> None:
    """Raise ArtifactError that names the first place where `card` breaks its schema."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(card_schema()).iter_errors(card))
    if error is not None:
        place = json_path(tuple(error.absolute_path))
        raise ArtifactError(f"card: {place}: {' '.join(error.message.split())[:300]}")
