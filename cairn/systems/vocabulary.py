"""The step `vocabulary`: what an encoder learns from training images before it describes any other."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cairn.cache import Cache
from cairn.encoders import load_encoder, load_encoder_module
from cairn.encoders.protocol import Learned
from cairn.errors import ArtifactError, ImageError, InputError
from cairn.files import atomic, file_digest, write_json
from cairn.images.manifest import ImageSource, Manifest
from cairn.store.tables import first_line
from cairn.systems.disk import tells_full_disk
from cairn.systems.extraction import Missing, Work, gallery_views, one_thread, prepared
from cairn.systems.guards import checked_learned, encoder_errors

ARRAYS_FILE = "vocabulary.npz"
FACTS_FILE = "vocabulary.json"


@tells_full_disk
def learn_vocabulary(
    training: Manifest,
    root: Path,
    encoder_name: str,
    parameters: Mapping[str, Any],
    output: Path,
    *,
    cache: Cache | None,
    features_code: str,
    training_set: str = "all",
) -> None:
    """Write `vocabulary.npz` (arrays by name) and `vocabulary.json` into the directory `output`.

    `training` holds the training images, those of its rows that are marked so; `root` is what their archives'
    paths are relative to; `parameters` are the encoder's, at least those of its LEARNING_KEYS. An encoder that
    learns nothing gets a `vocabulary.json` that says so; in others `training_set` is what `training` is a part
    by, where it is not all of them. InputError where there is no training image, ImageError where one
    cannot be decoded.
    """
    # An encoder that learns nothing may need keys that are no part of what is learned: it is not even made.
    learning = getattr(load_encoder_module(encoder_name, root), "LEARNING_KEYS", None)
    encoder = None if learning == () else load_encoder(encoder_name, parameters, root)
    if encoder is None or not encoder.learns:
        write_json(
            output / FACTS_FILE,
            {"encoder": encoder_name, "learns": False, "note": f"{encoder_name} learns nothing from images"},
        )
        return
    views = gallery_views(training, training.rows(train=True))
    if not views:
        raise InputError(f"{encoder_name} learns from training images, but the training manifest has none")
    work = Work(ImageSource(training, root), encoder, cache, features_code, encoder_name=encoder_name)
    with one_thread(), encoder_errors(encoder_name, "learn"):
        found = encoder.learn(
            lambda: _decoded(prepared(views, work, "Features of training images")), len(views)
        )
    learned = checked_learned(encoder_name, found)
    with atomic(output / ARRAYS_FILE) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, **{name: learned[name] for name in sorted(learned)})
    write_json(
        output / FACTS_FILE,
        {
            "encoder": encoder_name,
            "learns": True,
            "training_images": len(views),
            **({} if training_set == "all" else {"training_set": training_set}),
            "arrays": {name: list(array.shape) for name, array in sorted(learned.items())},
        },
    )
    if cache is not None:
        cache.prune()


def _decoded(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts. ImageError at an image that cannot be decoded, whatever the encoder says of such: it learns from all
    the images that it is told of, or from none."""
    for part in parts:
        if isinstance(part, Missing):
            raise ImageError(
                f"{part.reason}; `damaged: missing` does not hold for what an encoder learns from"
            )
        yield part


def read_learned(vocabulary: Path) -> Learned:
    """The arrays that were learned, {} where nothing was. ArtifactError, naming the file, where it is damaged."""
    path = Path(vocabulary) / ARRAYS_FILE
    if not path.exists():
        if not (Path(vocabulary) / FACTS_FILE).is_file():
            raise ArtifactError(f"{vocabulary}: no {FACTS_FILE}; run the step that writes it")
        return {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except Exception as error:  # zipfile, zlib and numpy each raise their own
        raise ArtifactError(f"{path}: not a readable file of arrays ({first_line(error)})") from None


def learned_digest(vocabulary: Path) -> str:
    """SHA-256 of what was learned; "-" where nothing was."""
    path = Path(vocabulary) / ARRAYS_FILE
    return file_digest(path) if path.exists() else "-"
