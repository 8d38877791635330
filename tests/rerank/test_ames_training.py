"""Training AMES: mined triplets, reproducible weights, and a network that improves what it re-ranks."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from cairn.cache import Cache
from cairn.errors import InputError, ParameterError
from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.ames_files import score_pairs
from cairn.rerank.ames_pairs import PairOptions
from cairn.rerank.ames_training import Resume, TrainOptions, draw_triplets, itq, mine, train_ames
from cairn.rerank.checkpoints import state_digest
from cairn.rerank.pairs import rerank_all
from cairn.rerank.two_stage import Cell, RankedQuery

DIM = 32
SHAPE = AmesShape(local_dim=DIM, model_dim=32, heads=2, layers=2, feedforward=64)


class World:
    """Images of objects: a few noisy parts of the object among clutter; the global descriptor is their mean.

    Most of an image is clutter from a common pool, so the mean says little, while equal parts give a pair
    away.
    """

    path = Path("world.hdf5")
    dim = DIM

    def __init__(self, seed: int, classes: int, per_class: int):
        generator = np.random.default_rng(seed)
        pool = np.random.default_rng(99).normal(size=(12, DIM))
        self.labels = [f"c{c}" for c in range(classes) for _ in range(per_class)]
        self.names = [f"i{i}" for i in range(len(self.labels))]
        parts = generator.normal(size=(classes, 4, DIM))
        self.local = []
        for c in np.repeat(np.arange(classes), per_class):
            shown = parts[c, generator.permutation(4)[:3]]
            clutter = pool[generator.integers(0, 12, 6)]
            self.local.append(np.concatenate([shown, clutter]) + 0.25 * generator.normal(size=(9, DIM)))
        mean = np.array([block.mean(axis=0) for block in self.local])
        self.globals = (mean / np.linalg.norm(mean, axis=1, keepdims=True)).astype(np.float32)
        self.rows = {name: row for row, name in enumerate(self.names)}

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def row_of(self, name: str) -> int:
        return self.rows[name]

    def batch(self, names, keypoints):
        local, mask = (
            np.zeros((len(names), keypoints, DIM), np.float32),
            np.ones((len(names), keypoints), bool),
        )
        for position, name in enumerate(names):
            block = self.local[self.rows[name]][:keypoints]
            local[position, : len(block)], mask[position, : len(block)] = block, False
        return local, mask


def rankings(world: World) -> tuple[list[RankedQuery], dict[str, dict[str, str]]]:
    """Every image of the world is a query for the others; itself is junk."""
    ranked, relevance = [], {}
    for row, name in enumerate(world.names):
        scores = world.globals @ world.globals[row]
        order = np.argsort(-scores, kind="stable")
        names = tuple(world.names[i] for i in order)
        ranked.append(RankedQuery(name, names, order, np.arange(len(order)), scores[order], len(order)))
        grades = {
            other: "positive"
            for other, label in zip(world.names, world.labels, strict=True)
            if label == world.labels[row]
        }
        relevance[name] = grades | {name: "junk"}
    return ranked, relevance


def mean_ap(ranked: list[RankedQuery], orders: list[np.ndarray], relevance: dict) -> float:
    values = []
    for query, order in zip(ranked, orders, strict=True):
        grades = [relevance[query.query_id].get(query.image_ids[i], "") for i in order]
        hits = np.array([grade == "positive" for grade in grades if grade != "junk"])
        values.append(float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean()))
    return float(np.mean(values))


def options(**changes) -> TrainOptions:
    settings = {
        "steps": 3,
        "triplets": 4,
        "query_length": 9,
        "gallery_length": 9,
        "least": 3,
        "candidates": 20,
    }
    return TrainOptions(**(settings | changes))


def test_triplets_follow_labels_and_similarity():
    world = World(0, 6, 5)
    mined = mine(world.globals, world.labels, 12)
    assert mined.index.shape == (30, 12) and np.all(np.diff(mined.similarity, axis=1) <= 0)
    assert not (mined.index == np.arange(30)[:, None]).any()
    triplets = draw_triplets(mined, np.random.default_rng(0), 400)
    for anchor, positive, negative in triplets:
        assert world.labels[anchor] == world.labels[positive] != world.labels[negative]
        assert anchor != positive and {positive, negative} <= set(mined.index[anchor])
    # Rounds without repetition: every anchor once before any comes twice.
    assert len(set(triplets[: len(mined.anchors), 0])) == len(mined.anchors)
    # Near negatives are drawn more often than far ones, by the cube of similarity.
    anchor = mined.anchors[0]
    drawn = [t[2] for t in draw_triplets(mined, np.random.default_rng(1), 3000) if t[0] == anchor]
    weight = np.clip(mined.similarity[anchor], 0, None) ** 3 * ~mined.positive[anchor]
    expected = weight / weight.sum()
    share = np.array([np.mean(np.array(drawn) == row) for row in mined.index[anchor]])
    assert np.abs(share - expected).max() < 0.25 and np.all(share[expected == 0] == 0)


def test_training_that_cannot_work_is_named():
    world = World(0, 1, 5)
    with pytest.raises(InputError, match="none of 5 images"):
        mine(world.globals, world.labels)
    world = World(0, 3, 3)
    mined = mine(world.globals, world.labels)
    with pytest.raises(InputError, match=r"world.hdf5: local descriptors of 32 dimensions; .* 8"):
        train_ames(world, world.names, mined, AmesShape(local_dim=8), options())
    teacher, _ = train_ames(world, world.names, mined, SHAPE, options(steps=1))
    with pytest.raises(ParameterError, match="width is 32, the student's 16"):
        train_ames(world, world.names, mined, AmesShape(local_dim=DIM, model_dim=16), options(), teacher)
    with pytest.raises(ParameterError, match="at least 10"):
        options(least=10)


def test_the_same_input_gives_the_same_weights():
    world = World(0, 4, 4)
    mined = mine(world.globals, world.labels)
    before = torch.get_num_threads()
    digests = set()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(threads)
        digests.add(state_digest(train_ames(world, world.names, mined, SHAPE, options())[0]))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert len(digests) == 1
    assert state_digest(train_ames(world, world.names, mined, SHAPE, options(seed=1))[0]) not in digests


@pytest.mark.parametrize("damage", ["text", "other network", "no losses", "half a network"])
def test_a_kept_state_that_cannot_be_read_counts_as_none(tmp_path: Path, damage: str):
    world = World(0, 4, 4)
    mined = mine(world.globals, world.labels)
    expected = state_digest(train_ames(world, world.names, mined, SHAPE, options())[0])
    resume = Resume(Cache(tmp_path), "ab" * 32, every=2)
    train_ames(world, world.names, mined, SHAPE, options(), resume=resume)
    kept = resume.cache.get(resume.key)
    assert kept is not None
    state = torch.load(io.BytesIO(kept), weights_only=True)
    if damage == "other network":
        state["network"] = Ames(replace(SHAPE, model_dim=16)).state_dict()
    elif damage == "no losses":
        del state["losses"]
    elif damage == "half a network":
        # What comes before the missing one is loaded before PyTorch complains.
        state["network"] = {name: torch.zeros_like(value) for name, value in state["network"].items()}
        del state["network"]["classifier.weight"]
    buffer = io.BytesIO()
    torch.save(state, buffer)
    resume.cache.put(resume.key, b"no state" if damage == "text" else buffer.getvalue())
    network, losses = train_ames(world, world.names, mined, SHAPE, options(), resume=resume)
    assert state_digest(network) == expected and len(losses) == 3


def test_itq_bits_split_the_samples_and_keep_neighbours():
    generator = np.random.default_rng(0)
    samples = (generator.normal(size=(400, 12)) + 2).astype(np.float32)
    projection = itq(samples, 8, generator)
    signs = np.sign(samples / np.linalg.norm(samples, axis=1, keepdims=True) @ projection)
    assert np.all(np.abs(signs.mean(axis=0)) < 0.3)
    np.testing.assert_allclose(projection.T @ projection, np.eye(8), atol=1e-5)
    near = samples + 0.05 * generator.normal(size=samples.shape)
    other = np.sign(near @ projection)
    assert (signs == other).mean() > 0.9 > (signs == other[::-1]).mean()
    with pytest.raises(ParameterError, match="13 bits"):
        itq(samples, 13, generator)


@pytest.mark.slow
def test_a_trained_network_beats_the_ranking_it_reorders():
    training, test = World(1, 60, 8), World(2, 12, 6)
    mined = mine(training.globals, training.labels, 100)
    knobs = options(steps=300, triplets=32, candidates=100, learning_rate=3e-3)
    network, losses = train_ames(training, training.names, mined, SHAPE, knobs)
    assert np.mean(losses[-20:]) < 0.5 * np.mean(losses[:5])
    ranked, relevance = rankings(test)
    before = mean_ap(ranked, [np.arange(len(query.rank)) for query in ranked], relevance)

    def after(trained: Ames) -> float:
        logits = score_pairs(trained, ranked, relevance, test, test, 40, PairOptions(9, 9))
        reranked = rerank_all(ranked, relevance, logits, Cell("ames", 40), "all")
        return mean_ap(ranked, [new.order for new in reranked], relevance)

    assert after(network) > before + 0.1
    # A binarised student of it, distilled, gains as well.
    binarized = replace(SHAPE, binarized=True)
    student, _ = train_ames(training, training.names, mined, binarized, replace(knobs, beta=1.0), network)
    assert student.shape.binarized and after(student) > before + 0.04


@pytest.mark.parametrize(("binarized", "steps"), [(False, 30), (True, 100)])
def test_a_matching_start_needs_few_steps(binarized: bool, steps: int):
    training, test = World(1, 30, 6), World(2, 12, 6)
    mined = mine(training.globals, training.labels, 60)
    shape = AmesShape(local_dim=DIM, model_dim=32, heads=1, layers=2, feedforward=64, binarized=binarized)
    knobs = options(steps=steps, triplets=16, candidates=60, learning_rate=3e-3)
    ranked, relevance = rankings(test)
    before = mean_ap(ranked, [np.arange(len(query.rank)) for query in ranked], relevance)
    after = {}
    for start in ("random", "matching"):
        network, _ = train_ames(training, training.names, mined, shape, replace(knobs, start=start))
        logits = score_pairs(network, ranked, relevance, test, test, 40, PairOptions(9, 9))
        reranked = rerank_all(ranked, relevance, logits, Cell("ames", 40, 0.2, 1.0), "all")
        after[start] = mean_ap(ranked, [new.order for new in reranked], relevance)
    assert after["matching"] > max(before, after["random"]) + 0.15, (before, after)


def test_unknown_start_is_named():
    with pytest.raises(ParameterError, match="'pretrained'; expected random or matching"):
        options(start="pretrained")
