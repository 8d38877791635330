"""The options around the ranking's exact search: what is searched instead, and what becomes of the scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import InputError
from cairn.search.exact import Found
from cairn.search.expanding import augmented, expanded, normalised
from cairn.search.options import Options
from cairn.store.descriptors import DescriptorStore
from cairn.systems.readout import read_readout, readout_facts, training_store

STAGE = "global"
SCRATCH = "scratch"
"""Folder inside the output for an augmented gallery; it is removed before the step ends."""


def first_stage_slug(options: Options, readout: Path | None, uncropped: bool = False) -> str:
    """`global`, followed by what a reader must know.

    That is: queries that were not cropped, a read-out learned on the gallery, options of the search.
    """
    mark = readout_facts(readout)["mark"] if readout is not None else ""
    return "-".join(part for part in (STAGE, "uncropped" if uncropped else "", mark, options.slug) if part)


def prepared(
    options: Options,
    folder: Path,
    gallery: DescriptorStore,
    queries: np.ndarray,
    manifest_rows: np.ndarray,
    scratch: Path,
    **search: Any,
) -> tuple[DescriptorStore, np.ndarray]:
    """The gallery and the queries that are searched: augmented, then expanded, as the options say.

    `folder` is that of `gallery`, whose shards are read again; an augmented gallery is written to `scratch`.
    """
    if options.augmentation is not None:
        scratch.mkdir()
        gallery = augmented(gallery, manifest_rows, options.augmentation, folder, scratch, **search)
    if options.expansion is not None:
        missing = gallery.missing_rows()
        queries = expanded(queries, gallery, manifest_rows, options.expansion, missing, **search)
    return gallery, queries


def finished(
    options: Options,
    found: Sequence[Found],
    queries: np.ndarray,
    training: Path | None,
    readout: Path | None,
) -> list[Found]:
    """`found` with normalised scores, where that is asked for. InputError where there are no training descriptors."""
    if options.normalisation is None:
        return list(found)
    background = training_store(training)
    if background is None:
        raise InputError("search.normalisation needs descriptors of training images, but there are none")
    transform = read_readout(readout) if readout is not None else np.asarray
    return normalised(list(found), queries, background, transform, options.normalisation)
