"""AMES against the reference case, against a dense formulation, and against broken checkpoints."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.dense_ames import DenseAmes
from cairn.errors import InputError
from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.checkpoints import ames_from_state, load_ames, load_detector, save_state, state_digest

TINY = {"local_dim": 24, "model_dim": 16, "layers": 3, "feedforward": 40}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(seed: int = 0, **changes) -> Ames:
    """A network with weights large enough for attention and every bias to matter."""
    torch.manual_seed(seed)
    built = Ames(AmesShape(**(TINY | changes)))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return built.eval()


def pairs(seed: int, n: int, q: int, t: int, padded: bool = True) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    query, gallery = (torch.randn(n, length, 24, generator=generator) for length in (q, t))
    kept = [torch.randint(1, length + 1, (n, 1), generator=generator) for length in (q, t)]
    masks = [torch.arange(length)[None] >= k for length, k in zip((q, t), kept, strict=True)]
    if not padded:
        masks = [torch.zeros_like(mask) for mask in masks]
    return query, masks[0], gallery, masks[1]


def test_golden_logits(shared: Path):
    folder = shared / "golden"
    expected = json.loads((folder / "ames_expected.json").read_text())
    state = {key: torch.from_numpy(value) for key, value in np.load(folder / "ames_state.npz").items()}
    built = ames_from_state(state, "golden")
    assert built.shape == AmesShape()
    inputs = np.load(folder / "ames_io.npz")
    query, gallery = (torch.from_numpy(inputs[key]).float() for key in ("src_local", "tgt_local"))
    query_mask, gallery_mask = (torch.from_numpy(inputs[key]) for key in ("src_mask", "tgt_mask"))
    with torch.inference_mode():
        logits = built(query, query_mask, gallery, gallery_mask).numpy()
        dense = DenseAmes(built)(query, query_mask, gallery, gallery_mask).numpy()
        alone = [
            built(query[i : i + 1, ~query_mask[i]], None, gallery[i : i + 1, ~gallery_mask[i]], None).item()
            for i in range(len(query))
        ]
    np.testing.assert_allclose(logits, expected["logits"], atol=5e-6, rtol=0)
    np.testing.assert_allclose(dense, expected["logits"], atol=5e-6, rtol=0)
    np.testing.assert_allclose(alone, expected["logits"], atol=5e-6, rtol=0)


@given(
    st.integers(0, 999),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from(
        [{}, {"binarized": True}, {"normalize_before": True}, {"activation": "gelu"}, {"layers": 1}]
    ),
)
@settings(max_examples=40, deadline=None)
def test_equals_dense_formulation(seed: int, n: int, q: int, t: int, variant: dict):
    built, batch = network(seed, **variant), pairs(seed, n, q, t)
    with torch.inference_mode():
        expected, tokens = DenseAmes(built).tokens(*batch)
        np.testing.assert_allclose(built(*batch), expected, atol=2e-5, rtol=1e-5)
        query, gallery = built.project(batch[0]), built.project_gallery(batch[2])
        logits, own = built.tokens(query, batch[1], gallery, batch[3])
        np.testing.assert_allclose(logits, expected, atol=2e-5, rtol=1e-5)
        # Outputs of padding are read by nobody and differ by nothing that matters: compare the others.
        real = ~torch.cat([torch.zeros(n, 1, dtype=torch.bool), batch[1], batch[3]], 1)
        np.testing.assert_allclose(own[real], tokens[real], atol=5e-5, rtol=1e-4)


def test_one_query_is_shared_by_all_candidates():
    built = network()
    query, query_mask, gallery, gallery_mask = pairs(3, 5, 8, 6)
    one = query[:1].expand(5, -1, -1), query_mask[:1].expand(5, -1)
    with torch.inference_mode():
        expected = DenseAmes(built)(*one, gallery, gallery_mask)
        shared = built(query[:1], query_mask[:1], gallery, gallery_mask)
    np.testing.assert_allclose(shared, expected, atol=2e-5, rtol=1e-5)


def test_padding_does_not_reach_the_logit():
    built = network()
    query, query_mask, gallery, gallery_mask = pairs(5, 4, 8, 7)
    assert query_mask.any() and gallery_mask.any()
    with torch.inference_mode():
        before = built(query, query_mask, gallery, gallery_mask)
        query[query_mask], gallery[gallery_mask] = 7.0, -3.0
        np.testing.assert_array_equal(built(query, query_mask, gallery, gallery_mask), before)


def test_gallery_is_rounded_to_float16_in_evaluation_only():
    built, local = network(), torch.randn(2, 5, 24)
    with torch.no_grad():
        exact, rounded = built.project(local), built.project_gallery(local)
        assert not torch.equal(exact, rounded)
        assert torch.equal(exact.half().float(), rounded)
        assert torch.equal(built.train().project_gallery(local), exact)
        binarized = network(binarized=True)
        assert torch.equal(binarized.project_gallery(local), binarized.project(local))


def test_gradients_equal_the_dense_formulation():
    built, batch = network().train(), pairs(7, 3, 6, 5)
    gradients = []
    for module in (built, DenseAmes(built)):
        built.zero_grad()
        module(*batch).square().sum().backward()
        gradients.append({key: p.grad.clone() for key, p in built.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() == dict(built.named_parameters()).keys()
    for key, gradient in gradients[1].items():
        scale = gradient.abs().max().item() + 1e-3
        np.testing.assert_allclose(gradients[0][key], gradient, atol=2e-4 * scale, rtol=1e-3, err_msg=key)


@pytest.mark.parametrize("variant", [{}, {"binarized": True}, {"normalize_before": True, "layers": 2}])
def test_checkpoint_round_trip(tmp_path: Path, variant: dict):
    built = network(**variant)
    save_state(built, tmp_path / "a.pt", epoch=3)
    save_state(built, tmp_path / "b.pt", epoch=3)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()
    loaded = load_ames(tmp_path / "a.pt")
    assert loaded.shape == built.shape and not loaded.training
    assert state_digest(loaded) == state_digest(built)


def test_checkpoint_with_numbers_of_numpy_beside_the_weights(tmp_path: Path):
    built = network()
    state = {"state": built.state_dict(), "map": np.float64(0.5), "best": np.float32(1), "epoch": np.int64(4)}
    torch.save(state, tmp_path / "a.pt")
    assert state_digest(load_ames(tmp_path / "a.pt")) == state_digest(built)


class Evil:
    def __reduce__(self):
        return Path.touch, (Path("evil-ran"),)


def damaged(built: Ames, path: Path) -> dict[str, str]:
    """Files that are no AMES checkpoint, and what the error must say."""
    state = built.state_dict()
    cases = {
        "detector": ({"state": {"conv1.weight": torch.zeros(4, 4, 1, 1)}}, "not an AMES checkpoint"),
        "short": (
            {"state": {k: v for k, v in state.items() if k != "decoder.layers.1.norm2.bias"}},
            "lacks decoder.layers.1.norm2.bias",
        ),
        "long": ({"state": state | {"extra": torch.zeros(1)}}, "has extra too many"),
        "shape": ({"state": state | {"classifier.weight": torch.zeros(1, 9)}}, "classifier.weight has shape"),
        "nan": ({"state": state | {"mtc_token": state["mtc_token"] * np.nan}}, "not finite"),
        "empty": ({"state": {}}, "no weights"),
        "list": ([1, 2], "no weights"),
        "evil": ({"state": state, "x": Evil()}, "weights alone"),
        # Small files that ask for all memory there is.
        "claims": ({"state": state | {"mtc_token": torch.zeros(1).expand(2_000_000)}}, "does not hold 2,000"),
        "wide": ({"state": state | {"mtc_token": torch.zeros(200_000)}}, "has shape"),
        "deep": (
            {"state": state | {"decoder.layers.99999999.norm1.bias": torch.zeros(1)}},
            "of 100000000 layers",
        ),
        "meta": ({"state": state | {"mtc_token": torch.zeros(8, device="meta")}}, "mtc_token is no dense"),
        "sparse": ({"state": state | {"mtc_token": state["mtc_token"].to_sparse()}}, "mtc_token is no dense"),
        "flags": ({"state": state | {"mtc_token": state["mtc_token"] > 0}}, "values of type torch.bool"),
    }
    for name, (content, _) in cases.items():
        torch.save(content, path / f"{name}.pt")
    (path / "text.pt").write_text("<html>404 not found</html>")
    (path / "cut.pt").write_bytes((path / "short.pt").read_bytes()[:2000])
    (path / "pickle.pt").write_bytes(pickle.dumps({"state": Evil()}))
    texts = {name: text for name, (_, text) in cases.items()}
    return texts | {
        "text": "weights alone",
        "cut": "not a readable",
        "pickle": "weights alone",
        "absent": "no such",
    }


def test_wrong_checkpoints_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name, text in damaged(network(), tmp_path).items():
        with pytest.raises(InputError, match=text) as caught:
            load_ames(tmp_path / f"{name}.pt")
        message = str(caught.value)
        assert f"{name}.pt" in message and "\n" not in message
    assert not (tmp_path / "evil-ran").exists()


def test_heads_must_divide_the_width():
    with pytest.raises(InputError, match="3 heads do not divide"):
        ames_from_state(network().state_dict(), "here", heads=3)


def test_wrong_detector_is_named(tmp_path: Path):
    save_state(network(), tmp_path / "ames.pt")
    with pytest.raises(InputError, match=r"ames.pt: not a detector checkpoint"):
        load_detector(tmp_path / "ames.pt")
