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
    """An image, or the part inside a query's box. `name` is the query or image id, for messages."""

    row: int
    box: Box | None
    name: str


def pixels(source: ImageSource, view: View, colour: bool) -> np.ndarray:
    """Decoded and cropped: uint8 [height, width, 3] in the order blue, green, red, or grey [height, width].

    ImageError or InputError, naming image or query, where it cannot be read or the box does not fit.
    """
    image_id = source.manifest.image_id[view.row]
    data = source.read(view.row)
    image = decode_bgr(data, image_id) if colour else decode_gray(data, image_id)
    return image if view.box is None else crop(image, view.box, view.name)


def local_features(source: ImageSource, view: View, extractor: FeatureExtractor) -> LocalFeatures:
    """The local features of a view."""
    return extractor(pixels(source, view, extractor.colour))
