"""Training AMES from labelled images: triplets mined by global similarity, the paper's loss, distillation.

Source: Suma et al., AMES, ECCV 2024 (arXiv 2408.03282); the authors' training code (pavelsuma/ELViS,
`elvis/train.py`, `utils/training.py`, `TripletSampler`; AMES's own follows the same scheme): binary
cross-entropy of the logits of (anchor, positive) and (anchor, negative), both drawn from the anchor's nearest
neighbours by global descriptor with probability proportional to similarity cubed; a random number of
descriptors per step on either side, so that one model serves all lengths; for a binarised student, plus beta
times the mean squared error between its output tokens and a full-precision teacher's.
"""

import contextlib
import copy
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from cairn.cache import Cache
from cairn.errors import InputError, ParameterError
from cairn.progress import track
from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.ames_pairs import LocalSource, checked_batch

# The matching start: attention to an equal token has a score of SHARPNESS * sqrt(model_dim / heads), to any
# other about SHARPNESS in either direction, to the matching token UNMATCHED, between the two.
SHARPNESS, UNMATCHED, TOKEN = 1.8, 6.0, 3.0


@dataclass(frozen=True)
class TrainOptions:
    """Knobs of the training; learning rate, decay, warm-up, candidates and beta default to the authors'.

    Lengths: the most descriptors of the anchor and of the other image; `least` the fewest. `triplets` per
    step. `start`: "random" as in the paper, or "matching", where training images are few.
    """

    steps: int = 1000
    triplets: int = 100
    learning_rate: float = 5e-4
    weight_decay: float = 5e-4
    warmup: float = 0.1
    query_length: int = 400
    gallery_length: int = 400
    least: int = 10
    candidates: int = 300
    beta: float = 10.0
    start: str = "random"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.triplets < 1 or self.candidates < 2 or self.least < 1:
            raise ParameterError("AMES training: steps, triplets and least must be >= 1, candidates >= 2")
        if self.start not in ("random", "matching"):
            raise ParameterError(f"AMES training: start {self.start!r}; expected random or matching")
        if self.least > min(self.query_length, self.gallery_length):
            raise ParameterError(
                f"AMES training: at least {self.least} descriptors per image, but lengths end at "
                f"{self.query_length} and {self.gallery_length}"
            )


@dataclass(frozen=True)
class Mined:
    """Neighbours of every training image by global similarity, itself left out.

    `index` int64 [n, c] rows, `similarity` float32 [n, c] descending, `positive` bool [n, c] same label;
    `anchors` int64 [m]: the images that have a positive and a negative among them, both of similarity > 0.
    """

    index: NDArray[np.int64]
    similarity: NDArray[np.float32]
    positive: NDArray[np.bool_]
    anchors: NDArray[np.int64]


def mine(descriptors: NDArray[np.float32], labels: Sequence[str], candidates: int = 300) -> Mined:
    """Neighbours from global `descriptors` [n, D] of unit norm and one label per image.

    Raises InputError where no image has both a positive and a negative neighbour.
    """
    n = len(descriptors)
    classes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)[1]
    count = min(candidates, n - 1)
    index = np.empty((n, max(count, 0)), np.int64)
    similarity = np.empty(index.shape, np.float32)
    for start in range(0, n, 1024):
        rows = np.arange(start, min(start + 1024, n))
        # In float64 and rounded: the last bits of a float32 product differ between processors, the triplets drawn
        # by it, and whether an interrupted training is recognised, must not.
        block = (descriptors[rows].astype(np.float64) @ descriptors.T.astype(np.float64)).astype(np.float32)
        block[np.arange(len(rows)), rows] = -np.inf
        order = np.argsort(-block, axis=1, kind="stable")[:, :count]
        index[rows], similarity[rows] = order, np.take_along_axis(block, order, 1)
    positive = classes[index] == classes[:, None]
    near = similarity > 0
    anchors = np.flatnonzero((positive & near).any(axis=1) & (~positive & near).any(axis=1))
    if not len(anchors):
        raise InputError(
            f"AMES training: none of {n} images has both an image of its own class and one of another among "
            f"its {count} nearest and of similarity above 0; more images per class or more classes are needed"
        )
    return Mined(index, similarity, positive, anchors)


def draw_triplets(mined: Mined, generator: np.random.Generator, count: int) -> NDArray[np.int64]:
    """`count` triplets [count, 3] of (anchor, positive, negative) rows; no anchor repeats within a round."""
    anchors: list[int] = []
    while len(anchors) < count:
        anchors.extend(generator.permutation(mined.anchors).tolist())
    triplets = []
    for anchor in anchors[:count]:
        weight = np.clip(mined.similarity[anchor].astype(np.float64), 0, None) ** 3
        parts = [weight * mined.positive[anchor], weight * ~mined.positive[anchor]]
        chosen = [generator.choice(len(weight), p=part / part.sum()) for part in parts]
        triplets.append([anchor, *mined.index[anchor][chosen].tolist()])
    return np.array(triplets, np.int64)


@dataclass(frozen=True)
class Resume:
    """Where an interrupted training goes on: every `every` steps its state is put into `cache` under `key`.

    The key holds all that decides the weights: descriptors, labels, shape, options, code, versions.
    """

    cache: Cache
    key: str
    every: int = 25

    def load(self, network: Ames, optimizer: torch.optim.Optimizer) -> list[float]:
        """Bring both to the last state that was kept; the losses up to it, [] where there is none.

        A state that cannot be read, or is another network's, counts as none: both stay as they are.
        """
        data = self.cache.get(self.key)
        if data is None:
            return []
        before = copy.deepcopy((network.state_dict(), optimizer.state_dict()))
        try:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
            losses = [float(loss) for loss in state["losses"]]
            network.load_state_dict(state["network"])
            optimizer.load_state_dict(state["optimizer"])
        except Exception:  # pickle, zipfile and PyTorch each raise their own
            network.load_state_dict(before[0])
            optimizer.load_state_dict(before[1])
            return []
        return losses

    def save(self, network: Ames, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
        """Keep the state after `len(losses)` steps."""
        buffer = io.BytesIO()
        parts = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses}
        torch.save(parts, buffer)
        self.cache.put(self.key, buffer.getvalue())


def train_ames(
    source: LocalSource,
    names: Sequence[str],
    mined: Mined,
    shape: AmesShape,
    options: TrainOptions,
    teacher: Ames | None = None,
    resume: Resume | None = None,
) -> tuple[Ames, list[float]]:
    """A trained network in evaluation mode, and the loss of every step.

    `source`: local descriptors of the images `names` (n, in the order that was mined). With a `teacher` (full
    precision, same width) its output tokens are distilled. Runs on one core, so that the same input gives the
    same weights whatever the machine's number of cores; with `resume`, an interrupted training goes on and
    ends with the same weights. Raises InputError as `checked_batch` does.
    """
    if source.dim != shape.local_dim:
        raise InputError(
            f"{source.path}: local descriptors of {source.dim} dimensions; the network is to take "
            f"{shape.local_dim}"
        )
    if teacher is not None and teacher.shape.model_dim != shape.model_dim:
        raise ParameterError(
            f"AMES distillation: the teacher's width is {teacher.shape.model_dim}, the student's "
            f"{shape.model_dim}; they must be equal"
        )
    generator = np.random.default_rng(options.seed)
    with _deterministic(options.seed):
        network = Ames(shape)
        if shape.binarized or options.start == "matching":
            _begin_projection(network, _sample(source, names, generator, options), generator)
        if options.start == "matching":
            _begin_matching(network)
        network.train()
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
        )
        losses = resume.load(network, optimizer) if resume else []
        share = _schedule(options)
        batches = _batches(
            source, names, mined, generator, options, whole=teacher is not None, start=len(losses)
        )
        for batch in track(batches, "train AMES", options.steps - len(losses), "steps"):
            for group in optimizer.param_groups:
                group["lr"] = float(options.learning_rate * share(len(losses)))
            loss = _loss(network, batch, teacher, options.beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if resume and len(losses) % resume.every == 0:
                resume.save(network, optimizer, losses)
    return network.eval(), losses


def itq(
    samples: NDArray[np.float32], bits: int, generator: np.random.Generator, rounds: int = 50
) -> NDArray[np.float32]:
    """Projection [D, bits] whose signs keep the directions of `samples` [n, D] (Gong and Lazebnik, CVPR
    2011).

    Principal directions, rotated to the corners of the binary cube. The network adds no offset before taking
    signs, so the mean's direction is removed first and every bit splits the samples.
    """
    unit = samples.astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    mean = unit.mean(axis=0)
    mean /= max(float(np.linalg.norm(mean)), 1e-12)
    centred = unit - (unit @ mean)[:, None] * mean
    values, directions = np.linalg.eigh(centred.T @ centred)
    basis = directions[:, np.argsort(-values, kind="stable")[:bits]]
    if basis.shape[1] < bits:
        raise ParameterError(
            f"AMES: {bits} bits from descriptors of {samples.shape[1]} dimensions; fewer are needed"
        )
    projected = centred @ basis
    rotation = np.linalg.qr(generator.normal(size=(bits, bits)))[0]
    for _ in range(rounds):
        signs = np.where(projected @ rotation >= 0, 1.0, -1.0)
        left, _, right = np.linalg.svd(projected.T @ signs)
        rotation = left @ right
    return (basis @ rotation).astype(np.float32)


@dataclass(frozen=True)
class _Batch:
    """One step's triplets: descriptors [3, B, L, dim] and padding [3, B, L] of anchor, positive, negative."""

    local: Tensor
    padding: Tensor
    query_length: int
    gallery_length: int


def _batches(
    source: LocalSource,
    names: Sequence[str],
    mined: Mined,
    generator: np.random.Generator,
    options: TrainOptions,
    whole: bool,
    start: int = 0,
) -> Iterator[_Batch]:
    """The batches from step `start` on; every step's draws are made, whether it is done again or not."""
    triplets = draw_triplets(mined, generator, options.steps * options.triplets)
    for step in range(options.steps):
        rows = triplets[step * options.triplets : (step + 1) * options.triplets].T
        query_length = int(generator.integers(options.least, options.query_length + 1))
        gallery_length = int(generator.integers(options.least, options.gallery_length + 1))
        if step < start:
            continue
        length = max(query_length, gallery_length)
        if whole:
            length = max(options.query_length, options.gallery_length)
        local, padding = checked_batch(source, [names[int(row)] for row in rows.ravel()], length)
        yield _Batch(
            torch.from_numpy(local).unflatten(0, (3, -1)),
            torch.from_numpy(padding).unflatten(0, (3, -1)),
            query_length,
            gallery_length,
        )


def _loss(network: Ames, batch: _Batch, teacher: Ames | None, beta: float) -> Tensor:
    q, g = batch.query_length, batch.gallery_length
    query = network.project(batch.local[0, :, :q]).repeat(2, 1, 1)
    gallery = network.project_gallery(batch.local[1:, :, :g].flatten(0, 1))
    query_padding, gallery_padding = (
        batch.padding[0, :, :q].repeat(2, 1),
        batch.padding[1:, :, :g].flatten(0, 1),
    )
    pairs = batch.local.shape[1]
    labels = torch.cat([torch.ones(pairs), torch.zeros(pairs)])
    if teacher is None:
        logits = network.match(query, query_padding, gallery, gallery_padding)
        return F.binary_cross_entropy_with_logits(logits, labels)
    logits, tokens = network.tokens(query, query_padding, gallery, gallery_padding)
    with torch.no_grad():
        # The teacher sees every descriptor; what the student lacks is left out of the comparison.
        anchor = teacher.project(batch.local[0]).repeat(2, 1, 1)
        others = teacher.project_gallery(batch.local[1:].flatten(0, 1))
        length = anchor.shape[1]
        _, taught = teacher.tokens(
            anchor, batch.padding[0].repeat(2, 1), others, batch.padding[1:].flatten(0, 1)
        )
        taught = torch.cat([taught[:, : 1 + q], taught[:, 1 + length : 1 + length + g]], 1)
    return F.binary_cross_entropy_with_logits(logits, labels) + beta * F.mse_loss(tokens, taught)


def _sample(
    source: LocalSource, names: Sequence[str], generator: np.random.Generator, options: TrainOptions
) -> NDArray[np.float32]:
    """Descriptors [n, dim] of up to 256 training images."""
    chosen = sorted(generator.permutation(len(names))[:256])
    local, padding = checked_batch(source, [names[int(row)] for row in chosen], options.gallery_length)
    return local[~padding]


def _begin_projection(network: Ames, samples: NDArray[np.float32], generator: np.random.Generator) -> None:
    """Start the projection from `samples` [n, dim]: ITQ for bits, else PCA whitening."""
    width = network.shape.model_dim
    first: Any = network.remap_local[0]
    with torch.no_grad():
        if network.shape.binarized:
            first.W.copy_(torch.from_numpy(itq(samples, width, generator)))
            return
        unit = samples.astype(np.float64)
        unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
        values, directions = np.linalg.eigh(np.cov(unit.T))
        largest = np.argsort(-values, kind="stable")[:width]
        whitening = (directions[:, largest] / np.sqrt(np.maximum(values[largest], 1e-9))).T
        first.weight[: len(largest)] = torch.from_numpy(whitening)
        first.bias[: len(largest)] = torch.from_numpy(-whitening @ unit.mean(axis=0))


def _begin_matching(network: Ames) -> None:
    """Start as a network that already matches: ours, not the paper's, for training sets of hundreds of images.

    From a random start so few classes are learned by heart before matching is discovered. Here the cross-attention
    compares tokens as they are (queries and keys a multiple of the identity) and copies what it finds (values
    and output the identity). Every token is drawn to the matching token with one constant score: a token with a
    partner attends to the partner, one without to the matching token, whose last dimension no other token uses. So
    this dimension starts as the share of descriptors that found no partner, and all of it is then trained.
    """
    width, heads = network.shape.model_dim, network.shape.heads
    rows = torch.arange(heads) * (width // heads)  # the first row of every head
    identity = torch.eye(width)
    with torch.no_grad():
        linear: Any = network.remap_local[1 if network.shape.binarized else 0]
        if network.shape.binarized:
            linear.weight.copy_(identity)
        linear.weight[-1], linear.bias[-1] = 0, 0
        network.mtc_token.copy_(TOKEN * identity[-1])
        for layer in network.decoder.layers:
            attention: Any = layer.cross_attn
            attention.in_proj_weight.copy_(torch.cat([SHARPNESS**0.5 * identity] * 2 + [identity]))
            attention.in_proj_bias.zero_()
            attention.out_proj.weight.copy_(identity)
            attention.in_proj_weight[width + rows, -1] = 1
            attention.in_proj_bias[rows] = UNMATCHED * (width // heads) ** 0.5 / TOKEN


def _schedule(options: TrainOptions) -> Callable[[int], float]:
    """Share of the learning rate at a step: linear warm-up, then half a cosine."""
    warm = int(options.warmup * options.steps)

    def share(step: int) -> float:
        if step < warm:
            return (step + 1) / (warm + 1)
        return 0.5 * (1 + np.cos(np.pi * (step - warm) / max(1, options.steps - warm)))

    return share


@contextlib.contextmanager
def _deterministic(seed: int) -> Iterator[None]:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)
