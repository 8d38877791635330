"""The picture of a verified pair: a query and an image side by side, with a line per inlier of the homography."""

import colorsys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.errors import ArtifactError, InputError, ParameterError
from cairn.files import atomic
from cairn.images.decode import crop, decode_bgr
from cairn.images.manifest import ImageSource, Manifest
from cairn.report.canvas import Canvas, Picture, fit, png_bytes
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, Geometry

if TYPE_CHECKING:
    from cairn.store.local import LocalFeatures

SIDE = 620
"""Each image is fitted into a square of so many pixels."""
MARGIN, GAP, HEAD, FOOT = 24, 16, 64, 44
INK, PALE = (40, 36, 32), (120, 114, 108)


def draw_matches(
    local: Path,
    manifest: Manifest,
    truth: GroundTruth,
    root: Path,
    query_id: str,
    image_id: str,
    parameters: Geometry,
    longest: int | None,
    output: Path,
    title: str = "",
) -> int:
    """Write the picture (PNG) to `output`; the number of inliers.

    `local` is a run's local features, found in pixels of a reduced image; `parameters` are those of the
    verification; `longest` is the longer side, in pixels, to which larger images were reduced before features were
    found (None: never). A query is shown as the crop of its box. InputError where the run has no such query, or did not
    look at the image; ParameterError where its features lie on no pixels.
    """
    from cairn.rerank.geometry import verified
    from cairn.store.local import open_local

    if not (local / QUERIES_FILE).is_file():
        raise ArtifactError(
            f"{local}: this run has no local features: its second stage looks at none (rerank.method)"
        )
    queries, images = open_local(local / QUERIES_FILE), open_local(local / IMAGES_FILE)
    query = next((each for each in truth.queries if each.query_id == query_id), None)
    if query is None or query_id not in queries or query.image_id is None:
        known = ", ".join(each.query_id for each in truth.queries[:3])
        raise InputError(f"no query {query_id!r}; there are {len(truth.queries)}: {known}, …")
    if image_id not in images:
        raise InputError(
            f"image {image_id!r} has no local features in this run: it is no gallery image, or in no query's "
            "shortlist"
        )
    if "pixels" not in queries.metadata.get("unit", ""):
        raise ParameterError(f"{local}: its local features lie on patches, not on pixels: nothing to verify")
    source = ImageSource(manifest, root)
    shown = _pixels(source, query.image_id)
    shown = shown if query.box is None else crop(shown, query.box, query_id)
    found = _pixels(source, image_id)
    one, other = queries.read(query_id), images.read(image_id)
    from_query, to_image, _ = verified(one, other, parameters)
    left, right = fit(shown, SIDE, SIDE), fit(found, SIDE, SIDE)
    starts = _places(one, from_query, shown, left, longest)
    ends = _places(other, to_image, found, right, longest)
    words = f"{title}{' · ' if title else ''}{query_id} → {image_id}"
    what = f"{len(from_query)} inliers of {len(one)} and {len(other)} local features"
    canvas = _sheet(left, right, starts, ends, words, what)
    with atomic(output) as temporary:
        temporary.write_bytes(png_bytes(canvas.pixels))
    return len(from_query)


def _sheet(
    left: Picture, right: Picture, starts: np.ndarray, ends: np.ndarray, words: str, what: str
) -> Canvas:
    import cv2

    sizes = [picture.pixels.shape[:2] for picture in (left, right)]
    height = max(rows for rows, _ in sizes)
    width = sum(columns for _, columns in sizes) + GAP
    canvas = Canvas(width + 2 * MARGIN, height + HEAD + FOOT)
    canvas.text(words, MARGIN, 30, INK, 18, 600)
    canvas.text(what, MARGIN, 52, PALE, 14)
    corners = []
    x = MARGIN
    for picture, (rows, columns) in zip((left, right), sizes, strict=True):
        y = HEAD + (height - rows) // 2
        canvas.paste(picture, x, y)
        corners.append((x, y))
        x += columns + GAP
    pixels: Any = canvas.pixels
    for number in np.argsort(starts[:, 1], kind="stable"):
        # Colours from red at the top of the query to violet at its foot, so that crossing lines show.
        share = float(starts[number, 1]) / max(1, left.pixels.shape[0])
        red, green, blue = colorsys.hsv_to_rgb(0.8 * min(max(share, 0), 1), 0.85, 0.95)
        color = tuple(round(255 * part) for part in (blue, green, red))
        ends_at = [
            (round(corner[0] + float(point[0])), round(corner[1] + float(point[1])))
            for corner, point in zip(corners, (starts[number], ends[number]), strict=True)
        ]
        cv2.line(pixels, ends_at[0], ends_at[1], color, 1, cv2.LINE_AA)
        for point in ends_at:
            cv2.circle(pixels, point, 4, color, -1, cv2.LINE_AA)
            cv2.circle(pixels, point, 4, (255, 255, 255), 1, cv2.LINE_AA)
    canvas.pixels = pixels
    canvas.text("query", corners[0][0], HEAD + height + 26, PALE, 14)
    canvas.text("image", corners[1][0], HEAD + height + 26, PALE, 14)
    return canvas


def _places(
    features: "LocalFeatures", rows: np.ndarray, image: np.ndarray, picture: Picture, longest: int | None
) -> np.ndarray:
    """x, y of features in the picture: they were found in the image reduced to `longest`."""
    side = max(image.shape[:2])
    reduction = 1.0 if longest is None or side <= longest else longest / side
    return features.positions[rows] * (picture.scale / reduction)


def _pixels(source: ImageSource, image_id: str) -> np.ndarray:
    row = source.manifest.row_of[image_id]
    return decode_bgr(source.read(row), image_id)
