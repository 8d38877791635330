"""Random numbers that depend on a key alone: no global state, the same in every process and order of work."""

import hashlib

import numpy as np


def generator_for(*key: object) -> np.random.Generator:
    """A generator seeded by the text of `key`: each building, view and style draws numbers of its own."""
    text = "/".join(map(str, key))
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little"))
