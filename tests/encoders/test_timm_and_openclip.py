"""Models of timm and open_clip, randomly initialised: an encoder gives what the library's own forward pass gives.

Both libraries need torchvision, which exists for few versions of torch: where they cannot be imported, the tests
are skipped and say so.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.encoders import load_encoder
from cairn.errors import InputError, ParameterError

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")
F = torch.nn.functional


def library(name: str) -> Any:
    try:
        return __import__(name)
    except Exception as error:  # not installed, or its torchvision was built for another torch
        why = f"{type(error).__name__}: {str(error)[:80]}"
        extra = name.replace("_", "")
        pytest.skip(
            f"{name} cannot be imported here ({why}); it needs an environment of its own, in which torch and "
            f"torchvision match: pip install torch torchvision 'cairn-retrieval[{extra}]'"
        )


def images(count: int) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (90, 120, 3), np.uint8) for _ in range(count)]


def pixels(encoder: Any, pictures: list[np.ndarray]) -> Any:
    [normalised] = encoder._pixels(
        encoder.stack([encoder.prepare(image) for image in pictures]), torch.device("cpu")
    )
    return normalised


def described(encoder: Any, pictures: list[np.ndarray]) -> np.ndarray:
    return encoder.describe([encoder.prepare(image) for image in pictures], {})


def unit(rows: Any) -> np.ndarray:
    return F.normalize(rows.float(), dim=-1).numpy()


HALF = {"mean": [0.5] * 3, "std": [0.5] * 3}
PLAIN = {"resize": "square", "size": 64}


@pytest.mark.parametrize(
    ("architecture", "preprocessing", "tokens"),
    [
        ("vit_tiny_patch16_224", HALF, True),
        ("vit_pe_core_tiny_patch16_384", HALF, True),
        ("resnet10t", {}, False),
        ("swin_tiny_patch4_window7_224", {"size": 224}, False),
    ],
)
def test_timm(tmp_path: Path, architecture: str, preprocessing: dict, tokens: bool):
    timm = library("timm")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    options = {"dynamic_img_size": True} if tokens else {}
    model = timm.create_model(architecture, pretrained=False, num_classes=0, **options).eval()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    keys = {
        "architecture": architecture,
        "model": str(tmp_path / "model.safetensors"),
        "preprocessing": PLAIN | preprocessing,
        "as_timm": architecture != "resnet10t",
    }
    pictures = images(2)
    head = load_encoder("timm", keys)
    given = pixels(head, pictures)
    with torch.inference_mode():
        wanted, features = model(given), model.forward_features(given)
    assert np.allclose(described(head, pictures), unit(wanted), atol=1e-5)
    if tokens:
        patches = features[:, model.num_prefix_tokens :]
    elif architecture.startswith("swin"):
        patches = features.reshape(2, -1, features.shape[-1])
    else:
        patches = features.flatten(2).transpose(1, 2)
    gem = load_encoder("timm", keys | {"pooling": {"kind": "gem", "p": 3}})
    assert np.allclose(
        described(gem, pictures), unit(patches.clamp(min=1e-6).pow(3).mean(dim=1).pow(1 / 3)), atol=1e-5
    )
    if not tokens:
        with pytest.raises(InputError, match="the model has no class token"):
            described(load_encoder("timm", keys | {"pooling": {"kind": "cls"}}), pictures)


def test_what_is_wrong_with_a_timm_model_is_told(tmp_path: Path):
    timm = library("timm")
    from safetensors.torch import save_file

    weights = tmp_path / "model.safetensors"
    save_file(timm.create_model("resnet10t", num_classes=0).state_dict(), weights)
    for keys, told in (
        ({"architecture": "resnet10x"}, "architecture = 'resnet10x'"),
        ({"architecture": "resnet18"}, "do not fit the network|lacks the parameter"),
        ({"architecture": "vit_tiny_patch16_224"}, r"preprocessing\.mean = .*but timm says \[0\.5"),
    ):
        encoder = load_encoder("timm", {"model": str(weights), "preprocessing": PLAIN} | keys)
        with pytest.raises((InputError, ParameterError), match=told):
            described(encoder, images(1))


def test_openclip(tmp_path: Path):
    open_clip = library("open_clip")
    from safetensors.torch import save_file

    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt", pretrained=None, output_dict=False).eval()
    state = {name: value.contiguous() for name, value in model.state_dict().items()}
    save_file(state, tmp_path / "open_clip_model.safetensors")
    keys = {"architecture": "ViT-S-32-alt", "model": str(tmp_path / "open_clip_model.safetensors")}
    encoder: Any = load_encoder("openclip", keys)
    pictures, texts = images(2), ["a red door", "the tower of the blue house"]
    with torch.inference_mode():
        image_rows = model.encode_image(pixels(encoder, pictures))
        text_rows = model.encode_text(open_clip.get_tokenizer("ViT-S-32-alt")(texts))
    assert np.allclose(described(encoder, pictures), unit(image_rows), atol=1e-5)
    assert np.allclose(encoder.describe_texts(texts), unit(text_rows), atol=1e-5)
    with pytest.raises(ParameterError, match="architecture = 'ViT-S-33': open_clip has no such model"):
        described(load_encoder("openclip", keys | {"architecture": "ViT-S-33"}), pictures)
