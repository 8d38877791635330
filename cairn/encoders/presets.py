"""Preprocessing that published evaluations use, by name: base size, scales and interpolation, each with its source.

A preset gives defaults for `preprocessing` and `multiscale`; what a system states itself goes before it. What is
in force in the end is written out in full in the system's parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORB_QUERY = (1.414, 1.0, 0.707)
FORB_GALLERY = (2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25)


@dataclass(frozen=True)
class Preset:
    """`preprocessing` and `multiscale` are keys of those models; `source` says where they come from."""

    preprocessing: Mapping[str, Any]
    multiscale: Mapping[str, Any]
    source: str


PRESETS: Mapping[str, Preset] = {
    # imresize(img, imsize * max(img.size) / imfullsize) is Pillow's thumbnail (Lanczos, never larger); scales are
    # taken on the tensor by bilinear F.interpolate.
    "revisited-oxford": Preset(
        {
            "resize": "longest",
            "size": 1024,
            "enlarge": False,
            "rounding": "nearest",
            "interpolation": "lanczos",
            "relative_to": "whole",
        },
        {"scales": (1.0, 2**0.5, 2.0), "of": "tensor", "interpolation": "bilinear"},
        "base 1024 (longest side, of the whole image for a cropped query) as cirtorch/datasets/datahelpers.py and "
        "genericdataset.py of filipradenovic/cnnimageretrieval-pytorch resize; the scales 1, √2, 2, averaged and "
        "normalised again, as in Radenović et al., CVPR 2018, section 4 and extract_ms in cirtorch/networks/"
        "imageretrievalnet.py (whose own default, 1, 1/√2, 1/2, makes images smaller instead)",
    ),
    # image_dataset.py: scale = imsize / max(whole image), sides to the nearest multiple of the patch.
    "ames": Preset(
        {
            "resize": "longest",
            "size": 770,
            "multiple": 14,
            "interpolation": "area-linear",
            "relative_to": "whole",
        },
        {"scales": (1.0,)},
        "base 770 (longest side of the whole image), sides to the nearest multiple of 14, one scale: "
        "extract/image_dataset.py and extract_descriptors.py of pavelsuma/ames (DINOv2); 770 is what "
        "users of that code pass as --imsize, which has no default",
    ),
    # Every scale is made from the original, as in the DELG and FIRe baselines' image pyramids.
    "forb": Preset(
        {
            "resize": "longest",
            "size": 480,
            "enlarge": False,
            "rounding": "nearest",
            "interpolation": "lanczos",
        },
        {"scales": FORB_GALLERY, "query_scales": FORB_QUERY, "of": "tensor", "interpolation": "bilinear"},
        "base: longest side at most 480 (MAX_IMAGE_SIZE, Pillow's thumbnail), baselines/delg/extract_features.py of "
        "pxiangwu/FORB; 3 query and 7 database scales: QUERY_SCALES and DB_SCALES of its other baselines",
    ),
    # Resize(int(224 * scale)), CenterCrop(224): small scales are padded with black.
    "forb-224": Preset(
        {"resize": "shorter", "size": 224, "interpolation": "bicubic", "crop": 224},
        {"scales": FORB_GALLERY, "query_scales": FORB_QUERY, "of": "image"},
        "base 224 (shorter side × scale, then a centre crop of 224, padded with black): "
        "baselines/dinov2/extract_features.py of pxiangwu/FORB, and likewise for CLIP, DINO, SLIP, DiHT, BLIP",
    ),
    "ilias": Preset(
        {"resize": "longest", "size": 512, "interpolation": "bicubic"},
        {"scales": (1.0,)},
        "base 512 (longest side, smaller images enlarged, Pillow's default filter): RESIZE_LARGE in "
        "feature_extraction/src/datasets/transforms.py and the default of extract.py in ilias-vrg/ilias; its "
        "scripts/models.sh gives another resolution for some models",
    ),
    "inquire": Preset(
        {"resize": "shorter", "size": 224, "interpolation": "bicubic", "crop": 224},
        {"scales": (1.0,)},
        "base 224 (shorter side, centre crop): the model's own OpenCLIP transform, which src/utils.py of "
        "inquire-benchmark/INQUIRE uses; set size and crop to 336, 378 or 384 for models of that input",
    ),
    "disc21": Preset(
        {"resize": "square", "size": 288, "interpolation": "bilinear"},
        {"scales": (1.0,)},
        "base 288 × 288, aspect ratio not kept: make_validation_dataset in sscd/train.py of "
        "facebookresearch/sscd-copy-detection (Pizzi et al., CVPR 2022), the default of sscd/disc_eval.py",
    ),
}


def with_preset(values: Any, defaults: Mapping[str, Mapping[str, Any]]) -> Any:
    """`values` (as in params.yaml) with what its `preset` and, behind that, `defaults` say where it says nothing.

    `defaults` and presets hold the sections `preprocessing` and `multiscale`. Left as it is where its form is
    wrong, for the model to say so. ValueError for an unknown preset.
    """
    if not isinstance(values, Mapping):
        return values
    name = values.get("preset")
    chosen: Mapping[str, Mapping[str, Any]] = {}
    if name is not None:
        if name not in PRESETS:
            raise ValueError(f"preset {name!r} is unknown; there are: {', '.join(sorted(PRESETS))}")
        chosen = {"preprocessing": PRESETS[name].preprocessing, "multiscale": PRESETS[name].multiscale}
    filled = dict(values)
    for section in ("preprocessing", "multiscale"):
        own = values.get(section, {})
        if isinstance(own, Mapping):
            # A preset replaces the encoder's own resizing as a whole, not key by key.
            base = defaults.get(section, {})
            if section in chosen:
                base = {key: base[key] for key in ("mean", "std") if key in base}
            merged = {**base, **chosen.get(section, {}), **own}
            if merged or section in values:
                filled[section] = merged
    return filled
