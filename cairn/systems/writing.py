"""What a step hands to an encoder's own writer of descriptors (`writer` in the registry of encoders)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.cache import Cache


@dataclass(frozen=True)
class Writing:
    """`root` is what archives' and users' paths are relative to; `vocabulary` what `learn_vocabulary` wrote;
    `settings` the encoder's parameters; `output` the folder to write into; the rest as for
    `cairn.systems.descriptors.extract_descriptors`.
    """

    root: Path
    benchmark: str
    vocabulary: Path
    settings: Mapping[str, Any]
    output: Path
    cache: Cache | None = None
    features_code: str = ""
