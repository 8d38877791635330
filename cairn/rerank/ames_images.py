"""From an image to the local descriptors that AMES takes: the authors' preprocessing and selection.

Source: pavelsuma/ames, `extract/image_dataset.py` (preprocessing), `extract/extract_dino.py` (selection,
positions) and `extract/spatial_attention_2d.py` (detector). The encoder between them, DINOv2 ViT-B/14 with
registers, is not needed here: `prepare_image` makes its input, `select_descriptors` takes its patch tokens.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cairn.errors import ImageError, InputError

if TYPE_CHECKING:
    from cairn.rerank.checkpoints import Detector

PATCH = 14
LONGEST = 770
"""Longest side in pixels: 55 patches. The authors' script takes it as an argument (`--imsize`)."""
TOP = 700
MEAN_BGR = (0.406, 0.456, 0.485)
DEVIATION_BGR = (0.225, 0.224, 0.229)

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Selected:
    """The strongest local descriptors of one image, by descending weight; n <= the number asked for.

    `positions` float32 [n, 2]: row / height and column / width of the patch centres in what was encoded (the
    image, or a query's crop). `weights` float32 [n]; `descriptors` float32 [n, dim].
    """

    positions: NDArray[np.float32]
    weights: NDArray[np.float32]
    descriptors: NDArray[np.float32]


def prepare_image(
    image: NDArray[np.uint8],
    image_id: str,
    box: Box | None = None,
    longest: int = LONGEST,
    patch: int = PATCH,
) -> NDArray[np.float32]:
    """The encoder's input [3, height, width], float32, channels red, green, blue, sides multiples of `patch`.

    `image` uint8 [H, W, 3] in blue, green, red, as OpenCV decodes; `box` (x1, y1, x2, y2) in its pixels, for
    a query. The scale is `longest` / longest side of the whole image, applied after the crop; then each side
    is scaled on its own to the nearest multiple of `patch` (at least one patch; halves to the even one). Area
    interpolation where a side shrinks, linear otherwise. Raises ImageError where the box covers no pixel.
    """
    import cv2

    scale = longest / max(image.shape[:2])
    if box is not None:
        image = crop(image, image_id, box)
    factor_x, factor_y = (_quantised(side, scale, patch) for side in (image.shape[1], image.shape[0]))
    resized: Any = image
    if factor_x < 1 or factor_y < 1:
        resized = cv2.resize(image, (0, 0), fx=factor_x, fy=factor_y, interpolation=cv2.INTER_AREA)
    elif factor_x > 1 or factor_y > 1:
        resized = cv2.resize(image, (0, 0), fx=factor_x, fy=factor_y, interpolation=cv2.INTER_LINEAR)
    pixels = resized.astype(np.float32) / np.float32(255)
    pixels = (pixels - np.array(MEAN_BGR, np.float32)) / np.array(DEVIATION_BGR, np.float32)
    return np.ascontiguousarray(pixels[:, :, ::-1].transpose(2, 0, 1), dtype=np.float32)


def crop(image: NDArray[np.uint8], image_id: str, box: Box) -> NDArray[np.uint8]:
    """The pixels of `box`, its corners cut to whole numbers towards zero, as the official code does."""
    x1, y1, x2, y2 = (max(0, int(side)) for side in box)
    cut = image[y1:y2, x1:x2]
    if 0 in cut.shape:
        raise ImageError(
            f"image {image_id}: the query box {tuple(box)} covers no pixel of "
            f"{image.shape[1]} x {image.shape[0]}"
        )
    return cut


def grid_positions(height: int, width: int, patch: int = PATCH) -> NDArray[np.float32]:
    """Patch centres [rows * columns, 2] as row / height and column / width, row by row."""
    rows = (np.arange(height // patch) * patch + patch / 2) / height
    columns = (np.arange(width // patch) * patch + patch / 2) / width
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    return grid.reshape(-1, 2).astype(np.float32)


def select_descriptors(
    tokens: NDArray[np.float32],
    size: tuple[int, int],
    image_id: str,
    detector: "Detector | None" = None,
    top: int = TOP,
    patch: int = PATCH,
) -> Selected:
    """The `top` strongest descriptors of an image.

    `tokens` [rows * columns, dim]: the encoder's normalised patch tokens, row by row, without class token and
    registers; `size`: height and width of its input in pixels. With a detector, descriptors are its unit-norm
    output and weights its scores; without, they are the tokens themselves and their L2 norms. Equal weights
    are taken in row order. Raises InputError where the tokens do not fit the image or the detector.
    """
    import torch

    height, width = size
    tokens = np.asarray(tokens, np.float32)
    expected = (height // patch) * (width // patch)
    if tokens.ndim != 2 or len(tokens) != expected:
        raise InputError(
            f"image {image_id}: {tokens.shape} patch tokens for an input of {height} x {width} pixels; "
            f"expected {expected} of patch size {patch}"
        )
    if detector is None:
        descriptors, weights = tokens, np.linalg.norm(tokens, axis=1).astype(np.float32)
    else:
        dim = detector.conv1.in_channels
        if tokens.shape[1] != dim:
            raise InputError(
                f"image {image_id}: patch tokens of {tokens.shape[1]} dimensions; the detector takes {dim}"
            )
        device = next(detector.parameters()).device
        with torch.inference_mode():
            found = detector.eval()(torch.from_numpy(tokens).to(device))
        descriptors, weights = (part.float().cpu().numpy() for part in found)
    order = np.argsort(-weights, kind="stable")[:top]
    return Selected(grid_positions(height, width, patch)[order], weights[order], descriptors[order])


def positions_in_image(
    positions: NDArray[np.float32], box: Box, width: int, height: int
) -> NDArray[np.float32]:
    """Positions [n, 2] in a query's crop as row / height and column / width of the whole image."""
    x1, y1, x2, y2 = box
    start = np.array([y1 / height, x1 / width])
    extent = np.array([(y2 - y1) / height, (x2 - x1) / width])
    return (start + positions * extent).astype(np.float32)


def positions_as_published(
    positions: NDArray[np.float32], box: Box, width: int, height: int
) -> NDArray[np.float32]:
    """Positions [n, 2] of a query as the authors' files hold them (`fix_query_pos`), for comparison with
    those.

    Their script maps the row with the box's x and the image's width, and the column with y and height. AMES
    does not read positions, so no score depends on it; to draw or verify matches use `positions_in_image`.
    """
    corners = np.asarray(box, float)
    scaled = positions * (corners[2:] - corners[:2]) + corners[:2]
    return (scaled / np.array([width, height])).astype(np.float32)


def feature_rows(selected: Selected, top: int = TOP) -> NDArray[np.float32]:
    """One image's block [top, 5 + dim] of the authors' HDF5 `features`.

    Columns: two positions, scale (0: one scale), mask (1 = padding), weight, descriptor. Padding comes last
    and is zero but for the mask.
    """
    n, dim = selected.descriptors.shape
    rows = np.zeros((top, 5 + dim), np.float32)
    rows[:n, :2], rows[:n, 4], rows[:n, 5:] = selected.positions, selected.weights, selected.descriptors
    rows[n:, 3] = 1
    return rows


def _quantised(side: int, scale: float, patch: int) -> float:
    scaled = scale * side
    whole: Any = max(round(scaled / patch), 1)
    return scale / ((scaled / patch) / whole)
