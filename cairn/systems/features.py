"""From an image in a manifest to its pixels and local features: the code that keys cached features."""

from dataclasses import dataclass

import numpy as np

from cairn.benchmarks.structure import Box
from cairn.encoders.protocol import FeatureExtractor
from cairn.images.decode import crop, decode_bgr, decode_gray
from cairn.images.manifest import ImageSource
from cairn.store.local import LocalFeatures


@dataclass(frozen=True)
class View:
    """An image, the part inside a query's box, or a text. `name` is the query or image id, for messages."""

    row: int
    """The image's row in the manifest; -1 for a text."""
    box: Box | None
    name: str
    text: str | None = None
    query: bool = False
    """Which side it is on: some encoders treat queries otherwise."""


def pixels(source: ImageSource, view: View, colour: bool, reduced: int = 1) -> np.ndarray:
    """Decoded and cropped: uint8 [height, width, 3] in the order blue, green, red, or grey [height, width].

    A JPEG in colour without a box may be `reduced` (see decode_bgr). ImageError or InputError, naming image or
    query, where it cannot be read or the box does not fit.
    """
    manifest = source.manifest
    image_id, size = (
        manifest.image_id[view.row],
        (int(manifest.height[view.row]), int(manifest.width[view.row])),
    )
    data = source.read(view.row)
    if colour:
        image = decode_bgr(data, image_id, reduced if view.box is None else 1, size)
    else:
        image = decode_gray(data, image_id, size)
    return image if view.box is None else crop(image, view.box, view.name)


def local_features(source: ImageSource, view: View, extractor: FeatureExtractor) -> LocalFeatures:
    """The local features of a view."""
    return extractor(pixels(source, view, extractor.colour))
