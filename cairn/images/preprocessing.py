"""From a decoded image to the pixels a network sees: resize, crop, normalisation, each stated, none implied.

Sizes follow the code that each rule is taken from to the pixel, since a descriptor depends on them; Pillow's
filters are those of nearly all published evaluation code (they are antialiased, OpenCV's are not).
"""

import math
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_validator

if TYPE_CHECKING:
    import numpy as np

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5)
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

MOST_PIXELS = 1 << 28
"""Of what an image is resized to, as of what is decoded: a narrow strip whose shorter side grows fills a memory."""

Size = tuple[int, int]
"""Height and width in pixels."""


class Preprocessing(BaseModel):
    """What happens to a decoded (and, for a query, cropped) image; all of it is part of a descriptor's key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    resize: Literal["longest", "shorter", "square", "pixels", "patches", "none"] = "shorter"
    """`longest`, `shorter`: that side becomes `size`, the aspect ratio stays. `square`: both sides become `size`,
    the aspect ratio goes. `pixels`: sides become multiples of `multiple`, between `least` and `size` pixels in
    all (Qwen-VL's smart_resize). `patches`: at most `size` patches of `multiple` pixels (SigLIP 2 NaFlex)."""
    size: Annotated[int, Field(ge=1, le=100_000_000)] = 224
    least: Annotated[int, Field(ge=1)] = 1
    """`pixels` only: smaller images are enlarged to so many pixels."""
    enlarge: bool = True
    """`longest` and `shorter`: whether a smaller image is enlarged (`false`: longest side ≤ size)."""
    rounding: Literal["floor", "nearest"] = "floor"
    """Of the other side: `floor` as torchvision's Resize, `nearest` as Pillow's thumbnail."""
    multiple: Annotated[int, Field(ge=1, le=512)] = 1
    """Each side is brought to the nearest multiple of it, at least one (a patch of the network)."""
    interpolation: Literal["bicubic", "bilinear", "lanczos", "nearest", "area-linear"] = "bicubic"
    """Pillow's filter of that name; `area-linear`: OpenCV's INTER_AREA where a side shrinks, INTER_LINEAR where
    one grows and none shrinks."""
    crop: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Side of the square cut from the centre, smaller images padded with black (torchvision's CenterCrop)."""
    relative_to: Literal["part", "whole"] = "part"
    """What `longest` and `shorter` measure for a query with a box: the part inside it, or the whole image, so
    that the object keeps its size (the revisited-Oxford code: `imsize * max(img.size) / imfullsize`)."""
    mean: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = IMAGENET_MEAN
    std: tuple[FiniteFloat, FiniteFloat, FiniteFloat] = IMAGENET_STD
    """Of red, green and blue in 0–1: what the network gets is (value / 255 - mean) / std."""
    reduced: bool = False
    """JPEGs decoded at 1/2, 1/4 or 1/8 where that is still twice the size needed: faster, other pixels."""

    @model_validator(mode="after")
    def _consistent(self) -> "Preprocessing":
        if min(self.std) <= 0:
            raise ValueError("std must be positive")
        if self.resize in ("pixels", "patches") and (self.crop is not None or self.multiple == 1):
            raise ValueError(f"resize: {self.resize} needs multiple (the patch) and takes no crop")
        if self.resize == "pixels" and self.least > self.size:
            raise ValueError(f"least = {self.least} is more than size = {self.size}")
        return self


def target_size(
    height: int, width: int, rules: Preprocessing, scale: float = 1.0, whole: Size | None = None
) -> Size:
    """Height and width that an image of `height` × `width` is resized to, before any crop.

    `scale` multiplies the base size. `whole` is the size of the image that a part was cut from, which counts
    where `relative_to` is `whole`.
    """
    size = int(rules.size * scale)
    if rules.resize == "pixels":
        return _pixel_budget(height, width, rules.multiple, rules.least, size)
    if rules.resize == "patches":
        return _patch_budget(height, width, rules.multiple, size)
    if rules.resize == "square":
        return _quantised(size, size, rules.multiple)
    if rules.resize == "none":
        return _quantised(max(1, int(height * scale)), max(1, int(width * scale)), rules.multiple)
    pick = max if rules.resize == "longest" else min
    measured = whole if whole is not None and rules.relative_to == "whole" else (height, width)
    # Without enlarging, the base image is never larger than the image itself; a scale then applies to that.
    base = rules.size if rules.enlarge else min(rules.size, pick(measured))
    side = base * scale * pick(height, width) / pick(measured)
    if rules.multiple > 1:
        factor = side / pick(height, width)
        return _quantised(height * factor, width * factor, rules.multiple)
    return _sides(height, width, max(1, int(side)), rules)


def output_size(
    height: int, width: int, rules: Preprocessing, scale: float = 1.0, whole: Size | None = None
) -> Size:
    """Height and width of what `prepare` returns for an image of that size: that of the crop where there is one."""
    if rules.crop is not None:
        return rules.crop, rules.crop
    return target_size(height, width, rules, scale, whole)


def prepare(
    image: "np.ndarray",
    rules: Preprocessing,
    scale: float = 1.0,
    whole: Size | None = None,
    stored: Size | None = None,
) -> "np.ndarray":
    """uint8 [height, width, 3] red, green, blue from an image uint8 [h, w, 3] blue, green, red (see target_size).

    `stored` is the size before the image was reduced while decoding: what it becomes follows from that.
    """
    import cv2
    import numpy as np

    height, width = stored or image.shape[:2]
    wanted = target_size(height, width, rules, scale, whole)
    if wanted[0] * wanted[1] > MOST_PIXELS:
        raise ValueError(
            f"{height} × {width} pixels would become {wanted[0]} × {wanted[1]}, more than {MOST_PIXELS:,}"
        )
    # Channels are resampled one by one, so they may change places last, when few pixels are left: swapping them in
    # 4 megapixels takes numpy longer than decoding does.
    if wanted != image.shape[:2]:
        image = _resized(image, wanted, rules.interpolation)
    if rules.crop is not None:
        image = _centre(image, rules.crop)
    return cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2RGB)


def reduction(height: int, width: int, rules: Preprocessing, scale: float = 1.0) -> int:
    """1, 2, 4 or 8: how far a JPEG may be reduced while decoding so that it stays twice the size needed."""
    if not rules.reduced:
        return 1
    wanted = target_size(height, width, rules, scale)
    least = min(height / wanted[0], width / wanted[1])
    return max(factor for factor in (1, 2, 4, 8) if factor == 1 or factor * 2 <= least)


def _sides(height: int, width: int, size: int, rules: Preprocessing) -> Size:
    """The measured side becomes `size` exactly, the other follows (torchvision, Pillow)."""
    aspect = height / width
    height_measured = (height > width) == (rules.resize == "longest")
    if rules.resize == "shorter":
        other = size * max(height, width) / min(height, width)
    else:
        other = size / aspect if height_measured else size * aspect
    if rules.rounding == "floor":
        rounded = int(other)
    else:  # Pillow's thumbnail: what keeps the aspect ratio best
        candidates = (math.floor(other), math.ceil(other))

        def error(side: int) -> float:
            wide, high = (side, size) if height_measured else (size, side)
            return abs(1 / aspect - wide / high) if high else math.inf

        rounded = min(candidates, key=error)
    rounded = max(1, rounded)
    return (size, rounded) if height_measured else (rounded, size)


def _quantised(height: float, width: float, multiple: int) -> Size:
    if multiple == 1:
        return int(height), int(width)
    return max(1, round(height / multiple)) * multiple, max(1, round(width / multiple)) * multiple


def _pixel_budget(height: int, width: int, multiple: int, least: int, most: int) -> Size:
    """`smart_resize` of qwen_vl_utils (that of transformers rounds a side below half a multiple to nothing first)."""
    high = max(multiple, round(height / multiple) * multiple)
    wide = max(multiple, round(width / multiple) * multiple)
    if high * wide > most:
        shrink = math.sqrt(height * width / most)
        high = max(multiple, math.floor(height / shrink / multiple) * multiple)
        wide = max(multiple, math.floor(width / shrink / multiple) * multiple)
    elif high * wide < least:
        grow = math.sqrt(least / (height * width))
        high, wide = (math.ceil(side * grow / multiple) * multiple for side in (height, width))
    return high, wide


def _patch_budget(height: int, width: int, patch: int, most: int) -> Size:
    """SigLIP 2's `get_image_size_for_max_num_patches` (transformers, models/siglip2): a binary search."""

    def scaled(scale: float) -> Size:
        high, wide = (max(patch, math.ceil(side * scale / patch) * patch) for side in (height, width))
        return high, wide

    tolerance = 1e-5
    low, high = tolerance / 10, 100.0
    while high - low >= tolerance:
        middle = (low + high) / 2
        sides = scaled(middle)
        if (sides[0] // patch) * (sides[1] // patch) <= most:
            low = middle
        else:
            high = middle
    return scaled(low)


def _resized(image: "np.ndarray", wanted: Size, interpolation: str) -> "np.ndarray":
    import numpy as np

    height, width = wanted
    if interpolation == "area-linear":
        import cv2

        shrinks = height < image.shape[0] or width < image.shape[1]
        return cv2.resize(
            image, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
        )
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling[interpolation.upper()]))


def _centre(rgb: "np.ndarray", side: int) -> "np.ndarray":
    """As torchvision's CenterCrop: pads with zeros first, then rounds the corner to the nearest pixel."""
    import numpy as np

    height, width = rgb.shape[:2]
    if height < side or width < side:
        top, left = max(0, side - height) // 2, max(0, side - width) // 2
        bottom, right = (max(0, side - height) + 1) // 2, (max(0, side - width) + 1) // 2
        rgb = np.pad(rgb, ((top, bottom), (left, right), (0, 0)))
        height, width = rgb.shape[:2]
    top, left = round((height - side) / 2.0), round((width - side) / 2.0)
    return rgb[top : top + side, left : left + side]
