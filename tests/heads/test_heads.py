"""The head: its size, its loss against a plain one, the same weights from the same seed, resuming after a kill."""

import itertools
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import ArtifactError, InputError
from cairn.heads.arcface import arcface_loss, memory_bytes, step_classes
from cairn.heads.batches import TrainingRows, epoch_batches, steps_per_epoch, training_rows
from cairn.heads.parameters import HeadShape, HeadTraining
from cairn.heads.projection import apply_head, build_head, load_head, save_head
from cairn.heads.training import rate_factor, train_head

torch = pytest.importorskip("torch", reason="torch is not installed")

SHAPE = HeadShape(input=16, hidden=32, output=8)
TRAINING = HeadTraining(
    epochs=4, batch=32, classes_per_step=12, centres=2, rate=3e-3, dropout=0.1, buffer=2, margin=0.2
)


def rows(classes: int = 15, per_class: int = 12, seed: int = 0) -> TrainingRows:
    """Classes as points in 6 of 16 dimensions, the rest noise; uneven blocks of float16, as files hold them."""
    generator = np.random.default_rng(seed)
    points = np.concatenate([generator.normal(size=(classes, 6)), np.zeros((classes, 10))], axis=1)
    noise = np.concatenate([np.full(6, 0.3), np.full(10, 1.0)])
    values = np.repeat(points, per_class, axis=0) + noise * generator.normal(size=(classes * per_class, 16))
    labels = np.repeat(np.arange(classes), per_class)
    order = generator.permutation(len(labels))
    values = (values / np.linalg.norm(values, axis=1, keepdims=True))[order].astype(np.float16)
    blocks = np.split(values, [50, 90, 170])
    return TrainingRows(tuple(blocks), labels[order], tuple(range(classes)))


def weights(head) -> bytes:
    return b"".join(value.numpy().tobytes() for value in head.state_dict().values())


def test_the_published_head_has_its_number_of_parameters() -> None:
    head = build_head(HeadShape())
    assert sum(one.numel() for one in head.parameters()) == HeadShape().n_parameters == 3_148_800


def test_centres_of_all_of_gldv2_clean_take_less_than_a_gibibyte() -> None:
    assert memory_bytes(81_313, 512, HeadTraining()) / 2**30 == pytest.approx(0.93, abs=0.005)


def plain_loss(outputs, centres, targets, scale, margin) -> float:
    """ArcFace as its equation stands, image by image."""
    total = 0.0
    for output, target in zip(outputs, targets, strict=True):
        cosines = [max(float(output @ one) / float(np.linalg.norm(one)) for one in own) for own in centres]
        angle = math.acos(cosines[target])
        turned = (
            math.cos(angle + margin)
            if angle + margin < math.pi
            else cosines[target] - margin * math.sin(margin)
        )
        logits = [scale * (turned if number == target else cosine) for number, cosine in enumerate(cosines)]
        top = max(logits)
        total += top + math.log(sum(math.exp(one - top) for one in logits)) - logits[target]
    return total / len(targets)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 1.2), st.integers(1, 3))
def test_loss_is_the_papers(seed: int, margin: float, sub: int) -> None:
    generator = np.random.default_rng(seed)
    outputs = generator.normal(size=(5, 4))
    outputs /= np.linalg.norm(outputs, axis=1, keepdims=True)
    centres = generator.normal(size=(6, sub, 4))
    targets = generator.integers(6, size=5)
    ours = arcface_loss(torch.tensor(outputs), torch.tensor(centres), torch.tensor(targets), 16.0, margin)
    assert float(ours) == pytest.approx(plain_loss(outputs, centres, targets, 16.0, margin), rel=1e-4)


@given(st.lists(st.integers(0, 29), min_size=1, max_size=20), st.integers(2, 40), st.integers(0, 99))
def test_a_steps_classes_hold_the_batchs_and_are_distinct(labels, wanted, seed) -> None:
    classes = step_classes(np.array(labels), 30, wanted, np.random.default_rng(seed))
    assert set(labels) <= set(classes.tolist()) <= set(range(30))
    assert len(set(classes.tolist())) == len(classes) == max(len(set(labels)), min(wanted, 30))
    assert np.all(np.diff(classes) > 0)


def test_other_classes_are_drawn_evenly() -> None:
    generator = np.random.default_rng(0)
    counts = np.zeros(10)
    for _ in range(4000):
        counts[step_classes(np.array([3, 7]), 10, 4, generator)] += 1
    absent = np.delete(counts, [3, 7])
    assert counts[3] == counts[7] == 4000 and np.all(abs(absent - 1000) < 150)


@given(st.integers(2, 70), st.integers(1, 6), st.integers(0, 3))
def test_every_row_comes_once_in_an_order_of_its_own(batch: int, buffer: int, epoch: int) -> None:
    data = rows()
    seen = list(epoch_batches(data, batch, buffer, 0, epoch))
    assert len(seen) == steps_per_epoch(data, batch)
    assert all(1 < len(labels) <= batch for _, labels in seen)
    expected = np.concatenate(data.blocks).astype(np.float32)
    found = np.concatenate([values for values, _ in seen])
    missing = len(expected) - len(found)
    assert missing == (1 if len(expected) % batch == 1 else 0)
    if not missing:
        assert np.array_equal(np.sort(found, axis=0), np.sort(expected, axis=0))
    again = list(epoch_batches(data, batch, buffer, 0, epoch))
    assert all(
        np.array_equal(a, c) and np.array_equal(b, d) for (a, b), (c, d) in zip(seen, again, strict=True)
    )
    other = list(epoch_batches(data, batch, buffer, 0, epoch + 1))
    assert not all(np.array_equal(b, d) for (_, b), (_, d) in zip(seen, other, strict=True))


def test_rate_rises_and_falls_along_a_cosine() -> None:
    factors = [rate_factor(step, 100, 0.1) for step in range(100)]
    assert factors[0] == 0.1 and factors[9] == factors[10] == 1
    assert factors[55] == pytest.approx(0.5) and factors[99] < 1e-3
    assert all(later <= earlier for earlier, later in itertools.pairwise(factors[10:]))


def neighbours(values: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows whose nearest other row is of their class."""
    cosines = values @ values.T / np.outer(np.linalg.norm(values, axis=1), np.linalg.norm(values, axis=1))
    np.fill_diagonal(cosines, -2)
    return float((labels[cosines.argmax(axis=1)] == labels).mean())


def test_same_seed_same_weights() -> None:
    data = rows()
    state = torch.get_rng_state()
    first = train_head(data, SHAPE, TRAINING, 0)
    assert torch.equal(torch.get_rng_state(), state)  # others' random numbers are left alone
    torch.manual_seed(99)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    assert weights(train_head(data, SHAPE, TRAINING, 0).head) == weights(first.head)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    assert weights(train_head(data, SHAPE, TRAINING, 1).head) != weights(first.head)


def test_a_head_learns_what_tells_classes_it_never_saw_apart() -> None:
    training = TRAINING.model_copy(update={"epochs": 25})
    trained = train_head(rows(40), SHAPE, training, 0)
    assert trained.losses[-1] < 0.3 * trained.losses[0] and trained.epoch == 25
    others = rows(30, seed=1)
    before = np.concatenate(others.blocks).astype(np.float32)
    after = apply_head(trained.head, before)
    assert neighbours(after, others.labels) > neighbours(before, others.labels) + 0.1


def test_the_best_epoch_is_kept() -> None:
    values = iter([0.3, 0.7, 0.7, 0.1])
    kept = []

    def evaluate(head) -> float:
        kept.append(weights(head))
        return next(values)

    trained = train_head(rows(), SHAPE, TRAINING, 0, evaluate=evaluate)
    assert trained.epoch == 2 and trained.values == (0.3, 0.7, 0.7, 0.1)
    assert weights(trained.head) == kept[1]


class Killed(BaseException):
    pass


def test_interrupted_training_resumes_to_the_same_weights(tmp_path: Path) -> None:
    data, checkpoint = rows(), tmp_path / "checkpoint.pt"

    def value(head) -> float:
        return neighbours(apply_head(head, np.concatenate(data.blocks)), data.labels)

    whole = train_head(data, SHAPE, TRAINING, 5, evaluate=value)
    for after in (1, 3):
        calls = []

        def stop(head, after=after, calls=calls) -> float:
            calls.append(1)
            if len(calls) == after:
                raise Killed
            return value(head)

        with pytest.raises(Killed):
            train_head(data, SHAPE, TRAINING, 5, evaluate=stop, checkpoint=checkpoint)
        resumed = train_head(data, SHAPE, TRAINING, 5, evaluate=value, checkpoint=checkpoint)
        assert weights(resumed.head) == weights(whole.head)
        assert (resumed.losses, resumed.values, resumed.epoch) == (whole.losses, whole.values, whole.epoch)
        checkpoint.unlink()


CHILD = """
import os, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.heads.test_heads import SHAPE, TRAINING, rows, weights, train_head
count = []
def evaluate(head):
    count.append(1)
    if len(count) == 3 and sys.argv[1] == "die":
        os._exit(9)
    return -float(len(count))
trained = train_head(rows(), SHAPE, TRAINING, 5, evaluate=evaluate, checkpoint=Path(sys.argv[2]))
sys.stdout.buffer.write(weights(trained.head))
"""


@pytest.mark.slow
def test_killed_process_leaves_a_checkpoint_to_go_on_with(tmp_path: Path) -> None:
    code = CHILD.format(root=str(Path(__file__).parents[2]))
    checkpoint = str(tmp_path / "checkpoint.pt")
    dead = subprocess.run([sys.executable, "-c", code, "die", checkpoint], capture_output=True, check=False)
    assert dead.returncode == 9 and Path(checkpoint).exists(), dead.stderr.decode()
    alive = subprocess.run([sys.executable, "-c", code, "live", checkpoint], capture_output=True, check=True)
    # The first epoch's value is the highest, so the first epoch is kept, over the kill.
    values = iter([-1.0, -2.0, -3.0, -4.0])
    whole = train_head(rows(), SHAPE, TRAINING, 5, evaluate=lambda _: next(values))
    assert alive.stdout == weights(whole.head)


def test_foreign_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    short = TRAINING.model_copy(update={"epochs": 1})
    train_head(rows(), SHAPE, short, 0, checkpoint=checkpoint)
    first = checkpoint.read_bytes()
    checkpoint.unlink()
    train_head(rows(), SHAPE, short, 0, checkpoint=checkpoint)
    assert checkpoint.read_bytes() == first
    for seed, identity in ((1, ""), (0, "other descriptors")):
        with pytest.raises(ArtifactError, match="a checkpoint of another training"):
            train_head(rows(), SHAPE, short, seed, checkpoint=checkpoint, identity=identity)
    checkpoint.write_bytes(first[: len(first) // 2])
    with pytest.raises(ArtifactError, match="damaged checkpoint"):
        train_head(rows(), SHAPE, short, 0, checkpoint=checkpoint)
    import pickle

    checkpoint.write_bytes(pickle.dumps({"key": print}, protocol=2))
    with pytest.raises(ArtifactError, match="damaged checkpoint"):
        train_head(rows(), SHAPE, short, 0, checkpoint=checkpoint)


def test_residual_head_starts_at_the_descriptor() -> None:
    shape = HeadShape(input=16, hidden=8, output=16, residual=True)
    values = np.random.default_rng(0).normal(size=(30, 16)).astype(np.float32)
    values -= values.mean(axis=1, keepdims=True)  # the norm centres each row
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    assert np.allclose(apply_head(build_head(shape), values), unit, atol=1e-4)
    with pytest.raises(ValueError, match="residual needs output = input"):
        HeadShape(residual=True)


@pytest.mark.parametrize(
    "shape", [SHAPE, HeadShape(input=16, hidden=8, output=4, activation="relu", norm="batch")]
)
def test_saved_head_gives_the_same_descriptors(tmp_path: Path, shape: HeadShape) -> None:
    trained = train_head(rows(), shape, TRAINING.model_copy(update={"epochs": 1}), 0)
    save_head(tmp_path / "head.npz", trained.head)
    first = (tmp_path / "head.npz").read_bytes()
    save_head(tmp_path / "head.npz", trained.head)
    assert (tmp_path / "head.npz").read_bytes() == first
    values = np.concatenate(rows().blocks)
    made = apply_head(load_head(tmp_path / "head.npz", shape), values)
    assert np.array_equal(made, apply_head(trained.head, values)) and made.dtype == np.float32
    assert np.allclose(np.linalg.norm(made, axis=1), 1, atol=1e-5)
    with pytest.raises(ArtifactError, match="is float32"):
        load_head(tmp_path / "head.npz", HeadShape(input=16, hidden=9, output=4, norm=shape.norm))
    (tmp_path / "head.npz").write_bytes(first[:100])
    with pytest.raises(ArtifactError, match=r"not a head's weights|damaged"):
        load_head(tmp_path / "head.npz", shape)


def test_rows_of_a_training_set() -> None:
    blocks = [np.eye(3, 4, dtype=np.float16), np.eye(2, 4, dtype=np.float16)]
    data = training_rows(blocks, ["a", "b", "c", "d", "e"], {"a": 70, "c": 30, "e": 70})
    assert data.labels.tolist() == [1, -1, 0, -1, 1] and data.class_ids == (30, 70) and data.n_rows == 3
    for images, classes, message in (
        (["a"], {"a": 1}, "5 descriptors beside 1 image ids"),
        (["a", "b", "c", "d", "e"], {"a": 1, "z": 2}, "1 training images have no descriptor, such as z"),
        (["a", "b", "c", "d", "e"], {"a": 1}, "1 training classes; a head needs at least two"),
    ):
        with pytest.raises(InputError, match=message):
            training_rows(blocks, images, classes)


def test_mistakes_are_named() -> None:
    data = rows()
    with pytest.raises(InputError, match="16 dimensions, the head's input 20"):
        train_head(data, HeadShape(input=20, hidden=4, output=4), TRAINING, 0)
    lonely = TrainingRows(data.blocks, data.labels, (*data.class_ids, 777))
    with pytest.raises(InputError, match="class 777 has no image"):
        train_head(lonely, SHAPE, TRAINING, 0)
    with pytest.raises(InputError, match="epoch 1: the value that epochs are selected by is nan"):
        train_head(data, SHAPE, TRAINING, 0, evaluate=lambda _: float("nan"))
    broken = TrainingRows(
        tuple(block * np.float16(np.nan) for block in data.blocks), data.labels, data.class_ids
    )
    with pytest.raises(InputError, match="the loss is nan"):
        train_head(broken, SHAPE, TRAINING, 0)
