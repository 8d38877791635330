"""Tiny random models of the real classes: what an encoder gives is what the library's own forward pass gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.encoders import load_encoder
from cairn.errors import InputError, ParameterError
from cairn.images.preprocessing import Preprocessing, target_size

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")
F = torch.nn.functional
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
WORDS = ["<pad>", "<unk>", "</s>", "a", "red", "blue", "door", "tower", "of", "the"]


def images(count: int, height: int = 90, width: int = 120) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (height, width, 3), np.uint8) for _ in range(count)]


def described(encoder: Any, pictures: list[np.ndarray]) -> np.ndarray:
    return encoder.describe([encoder.prepare(image) for image in pictures], {})


def tensors(encoder: Any, pictures: list[np.ndarray]) -> "torch.Tensor":
    """Normalised pixels, by Pillow and torch alone, of a square resize."""
    rules = encoder.parameters.preprocessing
    resized = [
        np.asarray(
            Image.fromarray(image[:, :, ::-1].copy()).resize(
                (rules.size, rules.size), Image.Resampling[rules.interpolation.upper()]
            )
        )
        for image in pictures
    ]
    pixels = torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).float() / 255
    mean, std = (torch.tensor(value).view(1, 3, 1, 1) for value in (rules.mean, rules.std))
    return (pixels - mean) / std


def saved(folder: Path, model: Any) -> Any:
    model.eval().save_pretrained(folder)
    return model


def tokenizer(folder: Path, extra: tuple[str, ...] = ()) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate([*WORDS, *(chr(c) for c in range(33, 127)), *extra])}
    made = Tokenizer(models.WordLevel({**words}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )
    fast.add_special_tokens({"additional_special_tokens": list(extra)})
    fast.save_pretrained(folder)
    return fast


def unit(rows: "torch.Tensor") -> np.ndarray:
    return F.normalize(rows.float(), dim=-1).numpy()


SQUARE = {"preprocessing": {"resize": "square", "size": 56, "crop": None}}


def dino_models() -> dict[str, tuple[str, Any, int]]:
    """Name → encoder, model, tokens before the patches."""
    t = transformers
    return {
        "dinov2": ("dinov2", t.Dinov2Model(t.Dinov2Config(**SMALL, image_size=56, patch_size=14)), 1),
        "registers": (
            "dinov2",
            t.Dinov2WithRegistersModel(
                t.Dinov2WithRegistersConfig(**SMALL, image_size=56, patch_size=14, num_register_tokens=4)
            ),
            5,
        ),
        "dinov3": (
            "dinov3",
            t.DINOv3ViTModel(t.DINOv3ViTConfig(**SMALL, image_size=56, patch_size=14, num_register_tokens=2)),
            3,
        ),
        "convnext": (
            "dinov3",
            t.DINOv3ConvNextModel(
                t.DINOv3ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], image_size=64)
            ),
            1,
        ),
    }


@pytest.mark.parametrize("name", ["dinov2", "registers", "dinov3", "convnext"])
def test_dino(tmp_path: Path, name: str):
    torch.manual_seed(0)
    encoder_name, model, prefix = dino_models()[name]
    saved(tmp_path, model)
    pictures = images(3)
    for kind in ("cls", "mean", "gem"):
        encoder = load_encoder(
            encoder_name, {"model": str(tmp_path), "pooling": {"kind": kind, "p": 4}, **SQUARE}
        )
        with torch.inference_mode():
            tokens = model(pixel_values=tensors(encoder, pictures)).last_hidden_state
        patches = tokens[:, prefix:]
        wanted = {
            "cls": tokens[:, 0],
            "mean": patches.mean(dim=1),
            "gem": patches.clamp(min=1e-6).pow(4).mean(dim=1).pow(1 / 4),
        }
        found = described(encoder, pictures)
        assert found.dtype == np.float32
        assert np.allclose(found, unit(wanted[kind]), atol=1e-5)
    # Other sizes and aspect ratios than the model was made for, at several scales.
    several = load_encoder(
        encoder_name,
        {
            "model": str(tmp_path),
            "preprocessing": {"resize": "longest", "size": 168, "multiple": 14, "crop": None},
            "multiscale": {"scales": [0.5, 1, 2]},
        },
    )
    assert several.shape(90, 120) == ((126, 168),)
    rows = described(several, pictures)
    assert rows.shape == (3, 32) and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


def test_default_preprocessing_of_dinov2_is_that_of_its_processor(tmp_path: Path):
    torch.manual_seed(0)
    saved(
        tmp_path, transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, image_size=56, patch_size=14))
    )
    encoder = load_encoder("dinov2", {"model": str(tmp_path)})
    processor = transformers.BitImageProcessorPil(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
    )
    # A width at which torchvision, which the authors use, and the library round the crop's corner alike.
    [image] = images(1, 300, 420)
    wanted = processor(Image.fromarray(image[:, :, ::-1].copy()), return_tensors="pt")["pixel_values"]
    [found] = encoder._pixels(encoder.stack([encoder.prepare(image)]), torch.device("cpu"))
    assert torch.allclose(found, wanted, atol=1e-5)


def test_the_budgets_are_those_of_the_libraries():
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize
    from transformers.models.siglip2.image_processing_pil_siglip2 import get_image_size_for_max_num_patches

    pixels = Preprocessing(resize="pixels", size=1_843_200, least=4096, multiple=32)
    patches = Preprocessing(resize="patches", size=256, multiple=16)
    for height, width in (
        (1, 1),
        (40, 30),
        (1024, 768),
        (768, 1024),
        (3000, 2000),
        (5000, 100),
        (33, 33),
        (16, 900),
    ):
        if max(height, width) / min(height, width) <= 200:
            given_height = max(height, 17)  # that of transformers rounds smaller sides to no pixel at all
            given_width = max(width, 17)
            assert target_size(given_height, given_width, pixels) == smart_resize(
                given_height, given_width, 32, 4096, 1_843_200
            )
        assert target_size(height, width, patches) == get_image_size_for_max_num_patches(
            height, width, 16, 256
        )


def test_clip(tmp_path: Path):
    torch.manual_seed(0)
    words = tokenizer(tmp_path)
    config = transformers.CLIPConfig(
        text_config={
            **SMALL,
            "vocab_size": 120,
            "max_position_embeddings": 12,
            "eos_token_id": 2,
            "pad_token_id": 0,
        },
        vision_config={**SMALL, "image_size": 32, "patch_size": 8},
        projection_dim=24,
    )
    model = saved(tmp_path, transformers.CLIPModel(config))
    pictures, texts = images(3), ["a red door </s>", "the tower </s>", "blue " * 40]
    encoder = load_encoder(
        "clip", {"model": str(tmp_path), "preprocessing": {"resize": "square", "size": 32}}
    )
    square = load_encoder(
        "clip", {"model": str(tmp_path), "preprocessing": {"resize": "square", "size": 32, "crop": None}}
    )
    assert encoder.shape(90, 120) == ((224, 224),)  # the crop stays unless it is taken out
    inputs = words(texts, padding=True, truncation=True, max_length=12, return_tensors="pt")
    with torch.inference_mode():
        out = model(
            pixel_values=tensors(square, pictures), input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
        )  # fmt: skip
    assert np.allclose(described(square, pictures), out.image_embeds.numpy(), atol=1e-5)
    assert np.allclose(square.describe_texts(texts), out.text_embeds.numpy(), atol=1e-5)
    cls = load_encoder(
        "clip",
        {
            "model": str(tmp_path),
            "pooling": {"kind": "cls"},
            "preprocessing": {"resize": "square", "size": 48, "crop": None},
        },
    )
    assert described(cls, pictures).shape == (3, 32)  # positions are interpolated for 48 pixels
    assert not cls.has_text
    with pytest.raises(ParameterError, match="clip has no text tower"):
        cls.describe_texts(texts)


def test_siglip(tmp_path: Path):
    torch.manual_seed(0)
    words = tokenizer(tmp_path)
    config = transformers.SiglipConfig(
        text_config={**SMALL, "vocab_size": 120, "max_position_embeddings": 10, "projection_size": 32},
        vision_config={**SMALL, "image_size": 32, "patch_size": 8},
    )
    model = saved(tmp_path, transformers.SiglipModel(config))
    pictures, texts = images(3), ["a red door", "the tower of the blue door"]
    encoder = load_encoder(
        "siglip", {"model": str(tmp_path), "preprocessing": {"resize": "square", "size": 32}}
    )
    inputs = words(texts, padding="max_length", truncation=True, max_length=10, return_tensors="pt")
    with torch.inference_mode():
        out = model(pixel_values=tensors(encoder, pictures), input_ids=inputs["input_ids"])
    assert np.allclose(described(encoder, pictures), out.image_embeds.numpy(), atol=1e-5)
    assert np.allclose(encoder.describe_texts(texts), out.text_embeds.numpy(), atol=1e-5)
    with pytest.raises(ParameterError, match="SigLIP has no class token"):
        load_encoder("siglip", {"model": str(tmp_path), "pooling": {"kind": "cls"}})


def test_siglip2_naflex(tmp_path: Path):
    torch.manual_seed(0)
    tokenizer(tmp_path)
    config = transformers.Siglip2Config(
        text_config={**SMALL, "vocab_size": 120, "max_position_embeddings": 10, "projection_size": 32},
        vision_config={**SMALL, "patch_size": 8, "num_patches": 16},
    )
    model = saved(tmp_path, transformers.Siglip2Model(config))
    encoder = load_encoder(
        "siglip2", {"model": str(tmp_path), "preprocessing": {"size": 24, "multiple": 8}, "batch": 2}
    )
    pictures = images(2) + images(1, 200, 60)
    processor = transformers.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=24)
    inputs = processor([Image.fromarray(image[:, :, ::-1].copy()) for image in pictures], return_tensors="pt")
    with torch.inference_mode():
        wanted = model.get_image_features(**inputs).pooler_output
    # The library pads to 24 patches and masks; here a batch has one shape and nothing is padded.
    assert np.allclose(described(encoder, pictures), unit(wanted), atol=1e-4)
    assert encoder.describe_texts(["a red door"]).shape == (1, 32)


CHAT = ("<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


def qwen(folder: Path) -> Any:
    words = tokenizer(folder, CHAT)
    ids = {name: words.convert_tokens_to_ids(name) for name in CHAT}
    text = {
        "vocab_size": 140, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 48,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]},
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "patch_size": 8,
        "out_hidden_size": 32, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1],
    }  # fmt: skip
    config = transformers.Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    return saved(folder, transformers.Qwen3VLForConditionalGeneration(config)), words


def test_qwen3_vl_embedding(tmp_path: Path):
    torch.manual_seed(0)
    model, words = qwen(tmp_path)
    keys = {
        "model": str(tmp_path),
        "preprocessing": {"size": 4096, "least": 256, "multiple": 16},
        "instruction": {"query": "the red tower"},
    }
    gallery = load_encoder("qwen3-vl-embedding", keys)
    queries = gallery.for_queries()  # type: ignore[attr-defined]
    pictures = images(2)
    processor = transformers.Qwen2VLImageProcessorPil(
        patch_size=8, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
        size={"shortest_edge": 256, "longest_edge": 4096},
    )  # fmt: skip
    inputs = processor([Image.fromarray(image[:, :, ::-1].copy()) for image in pictures], return_tensors="pt")
    for side, instruction in ((gallery, "Represent the user's input."), (queries, "the red tower.")):
        rows = []
        for number in range(2):
            grid = inputs["image_grid_thw"][number : number + 1]
            count = int(grid.prod()) // 4
            text = (
                f"<|im_start|>system\n{instruction}<|im_end|>\n<|im_start|>user\n<|vision_start|>"
                + "<|image_pad|>" * count
                + "<|vision_end|><|im_end|>\n<|im_start|>assistant\n"
            )
            ids = words(text, return_tensors="pt")["input_ids"]
            patches = inputs["pixel_values"][number * 4 * count : (number + 1) * 4 * count]
            with torch.inference_mode():
                out = model(
                    input_ids=ids,
                    pixel_values=patches,
                    image_grid_thw=grid,
                    mm_token_type_ids=(ids == model.config.image_token_id).int(),
                    output_hidden_states=True,
                )
            rows.append(out.hidden_states[-1][:, -1])
        assert np.allclose(described(side, pictures), unit(torch.cat(rows)), atol=1e-4)
    texts = ["a red door", "the tower of the blue door"]
    rows = []
    for text in texts:
        ids = words(
            f"<|im_start|>system\nthe red tower.<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n"
            "<|im_start|>assistant\n", return_tensors="pt",
        )["input_ids"]  # fmt: skip
        with torch.inference_mode():
            rows.append(model(input_ids=ids, output_hidden_states=True).hidden_states[-1][:, -1])
    assert np.allclose(queries.describe_texts(texts), unit(torch.cat(rows)), atol=1e-4)
    wrong = load_encoder(
        "qwen3-vl-embedding", {**keys, "preprocessing": {"multiple": 8, "size": 4096, "least": 1}}
    )
    with pytest.raises(InputError, match=r"set preprocessing\.multiple to 16"):
        described(wrong, images(1, 40, 40))


def test_what_is_wrong_with_a_folder_is_told(tmp_path: Path):
    torch.manual_seed(0)
    [image] = images(1)

    def attempt(folder: Path, told: str, name: str = "dinov2") -> None:
        encoder = load_encoder(name, {"model": str(folder), **SQUARE})
        with pytest.raises((InputError, ParameterError), match=told) as caught:
            described(encoder, [image])
        assert "\n" not in str(caught.value)

    attempt(tmp_path / "absent", "no such folder")
    (tmp_path / "empty").mkdir()
    attempt(tmp_path / "empty", r"config\.json and \*\.safetensors is expected; it has nothing")
    model = transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, image_size=56, patch_size=14))
    saved(tmp_path / "good", model)
    attempt(tmp_path / "good", "a model of type dinov2; the encoder clip takes clip", "clip")
    saved(tmp_path / "bad", model)
    (tmp_path / "bad" / "model.safetensors").write_bytes(b"broken")
    attempt(tmp_path / "bad", "cannot be loaded as Dinov2Model")
    from safetensors.torch import load_file, save_file

    saved(tmp_path / "cut", model)
    weights = load_file(tmp_path / "cut" / "model.safetensors")
    del weights["layernorm.weight"]
    save_file(weights, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    attempt(tmp_path / "cut", r"lacks the parameter layernorm\.weight")
    saved(tmp_path / "other", model)
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps(config | {"hidden_size": 64}))
    attempt(tmp_path / "other", r"cannot be loaded|another shape")


def test_the_key_names_every_file_of_weights(tmp_path: Path):
    torch.manual_seed(0)
    config = transformers.Dinov2Config(**SMALL, image_size=56, patch_size=14)
    saved(tmp_path, transformers.Dinov2Model(config))
    key = load_encoder("dinov2", {"model": str(tmp_path)}).key()
    assert set(key["weights"]["files"]) == {"config.json", "model.safetensors"}
    assert set(key["versions"]) >= {"torch", "transformers", "pillow"}
    assert key["settings"]["preprocessing"]["size"] == 256
    saved(tmp_path, transformers.Dinov2Model(config))
    other = load_encoder("dinov2", {"model": str(tmp_path)}).key()
    assert other["weights"]["files"]["config.json"] == key["weights"]["files"]["config.json"]
    assert other["weights"]["files"]["model.safetensors"] != key["weights"]["files"]["model.safetensors"]
