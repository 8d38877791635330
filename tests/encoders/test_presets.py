"""The pixels that each preset feeds to a network, computed a second time from the code that it cites."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cairn.encoders.network import NetworkEncoder, NetworkParameters
from cairn.encoders.presets import PRESETS
from cairn.encoders.weights import Weights

Image = pytest.importorskip("PIL.Image")
torch = pytest.importorskip("torch")
MEAN, STD = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))


class Recorder:
    """A network that keeps what it is fed."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.fed: list[torch.Tensor] = []

    def images(self, pixels: torch.Tensor) -> torch.Tensor:
        self.fed.append(pixels.clone())
        return pixels.mean(dim=(2, 3))


def fed(image: np.ndarray, *, query: bool = False, whole: tuple[int, int] | None = None, **keys: Any) -> list:
    """The pixels, [3, height, width] each, that a network gets for an image in blue, green, red."""
    network = Recorder()
    encoder = NetworkEncoder(
        "recorder", NetworkParameters(**keys), lambda: Weights(None, "", None, {}), lambda *_: network, ()
    )
    side = encoder.for_queries() if query else encoder
    prepared = side.prepare(image, whole)
    assert side.shape(*image.shape[:2], whole) == tuple(part.shape[:2] for part in prepared)
    rows = side.describe([prepared], {})
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    return [pixels[0] for pixels in network.fed]


def tensor(image: Any) -> torch.Tensor:
    """torchvision's ToTensor and Normalize."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
    return (pixels - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1)


def picture(height: int, width: int) -> np.ndarray:
    small = np.random.default_rng(height).integers(0, 256, (height // 8, width // 8, 3), np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def pillow(image: np.ndarray) -> Any:
    return Image.fromarray(image[:, :, ::-1].copy())


def equal(found: list, expected: list) -> None:
    assert [tuple(f.shape) for f in found] == [tuple(e.shape) for e in expected]
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, atol=2e-6)


def test_revisited_oxford_crops_first_and_takes_three_scales():
    image = picture(768, 1200)
    base = pillow(image)
    base.thumbnail((1024, 1024), Image.Resampling.LANCZOS)
    assert base.size == (1024, 655)
    one = tensor(base)[None]
    scaled = [torch.nn.functional.interpolate(one, scale_factor=s, mode="bilinear", align_corners=False)[0] for s in
              (2**0.5, 2.0)]  # fmt: skip
    equal(fed(image, preset="revisited-oxford"), [one[0], *scaled])
    part = image[100:500, 200:500]
    base = pillow(part)
    base.thumbnail((1024 * max(base.size) / 1200,) * 2, Image.Resampling.LANCZOS)
    found = fed(part, query=True, whole=(768, 1200), preset="revisited-oxford")
    equal(found[:1], [tensor(base)])
    assert len(found) == 3 and found[2].shape[1] == 2 * found[0].shape[1]


def test_ames_quantises_to_the_patch():
    import cv2

    image = picture(600, 904)
    scale = 770 / 904

    def factor(side: int) -> float:  # quantization_factor in extract/image_dataset.py
        return scale / ((scale * side / 14) / max(round(scale * side / 14), 1.0))

    expected = cv2.resize(image, dsize=(0, 0), fx=factor(904), fy=factor(600), interpolation=cv2.INTER_AREA)[
        :, :, ::-1
    ]
    assert expected.shape == (518, 770, 3)
    equal(fed(image, preset="ames"), [tensor(expected)])
    part = image[40:440, 0:300]
    expected = cv2.resize(part, dsize=(0, 0), fx=factor(300), fy=factor(400), interpolation=cv2.INTER_AREA)
    equal(fed(part, query=True, whole=(600, 904), preset="ames"), [tensor(expected[:, :, ::-1])])


@pytest.mark.parametrize("query", [False, True])
def test_forb_has_its_scales_within_480(query: bool):
    image = picture(800, 600)
    base = pillow(image)
    base.thumbnail((480, 480), Image.Resampling.LANCZOS)
    assert base.size == (360, 480)
    scales = [1.414, 1.0, 0.707] if query else [2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25]
    one = tensor(base)[None]
    expected = [
        one[0] if s == 1 else torch.nn.functional.interpolate(one, scale_factor=s, mode="bilinear")[0]
        for s in scales
    ]
    equal(fed(image, query=query, preset="forb"), expected)
    small = picture(80, 120)
    assert fed(small, query=True, preset="forb")[1].shape == (3, 80, 120)


@pytest.mark.parametrize("query", [False, True])
def test_forb_224_crops_each_scale(query: bool):
    image = picture(304, 400)
    scales = [1.414, 1.0, 0.707] if query else [2.0, 1.414, 1.0, 0.707, 0.5, 0.353, 0.25]
    expected = []
    for scale in scales:
        size = int(224 * scale)
        resized = pillow(image).resize((int(size * 400 / 304), size), Image.Resampling.BICUBIC)
        canvas = np.zeros((max(224, resized.height), max(224, resized.width), 3), np.uint8)
        top, left = (canvas.shape[0] - resized.height) // 2, (canvas.shape[1] - resized.width) // 2
        canvas[top : top + resized.height, left : left + resized.width] = np.asarray(resized)
        y, x = round((canvas.shape[0] - 224) / 2), round((canvas.shape[1] - 224) / 2)
        expected.append(tensor(canvas[y : y + 224, x : x + 224]))
    equal(fed(image, query=query, preset="forb-224"), expected)


def test_ilias_enlarges_to_512():
    for height, width in ((304, 400), (1200, 808)):
        image = picture(height, width)
        ar = float(height) / float(width)  # LargeSideResize
        high = int(512 * ar) if ar <= 1 else 512
        wide = int(512 / ar) if ar > 1 else 512
        equal(fed(image, preset="ilias"), [tensor(pillow(image).resize((wide, high)))])


def test_inquire_is_the_transform_of_the_model():
    from cairn.encoders.clip import Parameters

    image = picture(480, 640)
    resized = pillow(image).resize((298, 224), Image.Resampling.BICUBIC)
    cropped = np.asarray(resized)[:, 37 : 37 + 224]
    equal(fed(image, preset="inquire"), [tensor(cropped)])
    clip = Parameters(model="./x", preset="inquire").preprocessing
    assert (clip.size, clip.crop, clip.mean[0]) == (224, 224, 0.48145466)


def test_disc21_does_not_keep_the_aspect_ratio():
    image = picture(480, 640)
    equal(fed(image, preset="disc21"), [tensor(pillow(image).resize((288, 288), Image.Resampling.BILINEAR))])


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_states_base_size_and_source(name: str):
    preset = PRESETS[name]
    assert str(preset.preprocessing["size"]) in preset.source and "/" in preset.source
    parameters = NetworkParameters(preset=name)
    for key, value in preset.preprocessing.items():
        assert getattr(parameters.preprocessing, key) == value
    assert parameters.preprocessing.reduced is False
    # What a system states itself goes before it, and what is in force is written out in full.
    own = NetworkParameters(preset=name, preprocessing={"size": 333})  # type: ignore[arg-type]
    assert own.preprocessing.size == 333
    assert NetworkParameters(**own.model_dump(mode="json")) == own


def test_an_unknown_preset_lists_those_there_are(refused: Callable):
    refused({"preset": "roxford"}, r"preset 'roxford' is unknown; there are: .*revisited-oxford")


@pytest.fixture
def refused() -> Callable:
    def check(values: dict, told: str) -> None:
        from cairn.errors import ParameterError
        from cairn.validation import validated

        with pytest.raises(ParameterError, match=told):
            validated(NetworkParameters, values, "systems.x")

    return check
