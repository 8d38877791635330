"""Sub-centre ArcFace over many classes, with the softmax of a step over some of them.

ArcFace: Deng, Guo, Xue and Zafeiriou, CVPR 2019, equation 3. Sub-centres: Deng, Guo, Liu, Gong and Zafeiriou,
ECCV 2020, equation 4 (a class's cosine is the largest of its sub-centres'). Sampled classes: An et al.,
"Killing two birds with one stone: efficient and robust training of face recognition CNNs by partial FC",
CVPR 2022: a step's softmax runs over the batch's classes and others drawn at random, and only their centres
are moved.

Memory: the centres and their momentum, 2 · classes · centres · dim · 4 bytes; 81,313 classes with 3 centres of
512 dimensions take 0.93 GiB. A step adds batch · classes_per_step · centres · 4 bytes a few times over.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cairn.heads.parameters import HeadTraining

if TYPE_CHECKING:
    import torch

MOMENTUM = 0.9


@dataclass
class Centres:
    """Class centres float32 [class, centre, dim] and their momentum, moved in place."""

    weights: "torch.Tensor"
    momentum: "torch.Tensor"

    def rows(self, classes: np.ndarray) -> "torch.Tensor":
        """The centres of some classes as a leaf that collects its gradient."""
        import torch

        index = torch.from_numpy(classes).to(self.weights.device)
        return self.weights[index].clone().requires_grad_(True)

    def move(self, classes: np.ndarray, gradient: "torch.Tensor", rate: float) -> None:
        """One step of momentum SGD for these classes alone."""
        import torch

        index = torch.from_numpy(classes).to(self.weights.device)
        momentum = self.momentum[index] * MOMENTUM + gradient
        self.momentum[index] = momentum
        self.weights[index] -= rate * momentum


def draw_centres(classes: int, dim: int, training: HeadTraining, device: str = "cpu") -> Centres:
    """Centres on the unit sphere, from torch's generator of the processor, whatever the device."""
    import torch
    from torch.nn import functional

    weights = functional.normalize(torch.randn(classes, training.centres, dim), dim=2).to(device)
    return Centres(weights, torch.zeros_like(weights))


def memory_bytes(classes: int, dim: int, training: HeadTraining) -> int:
    """Bytes that centres and momentum take."""
    return 2 * classes * training.centres * dim * 4


def step_classes(
    labels: np.ndarray, n_classes: int, wanted: int, generator: np.random.Generator
) -> np.ndarray:
    """Classes of a step, int64 ascending: those of `labels`, and others up to `wanted` drawn uniformly."""
    present = np.unique(labels).astype(np.int64)
    more = min(wanted, n_classes) - len(present)
    if more <= 0:
        return present
    if len(present) + more == n_classes:
        return np.arange(n_classes, dtype=np.int64)
    # Numbers among the absent classes, moved past the present ones below them.
    drawn = np.sort(generator.choice(n_classes - len(present), more, replace=False))
    absent = drawn + np.searchsorted(present - np.arange(len(present)), drawn, side="right")
    return np.sort(np.concatenate([present, absent]))


def arcface_loss(
    outputs: "torch.Tensor", centres: "torch.Tensor", targets: "torch.Tensor", scale: float, margin: float
) -> "torch.Tensor":
    """Mean cross-entropy of scaled cosines, the target's with the margin added to its angle.

    `outputs` float32 [n, dim] of norm 1; `centres` float32 [class, centre, dim], any norm; `targets` int64 [n]
    number classes among `centres`. Beyond the angle π − margin, where the cosine would rise again, the
    target's cosine falls by margin · sin(margin) instead, as in the authors' code.
    """
    import torch
    from torch.nn import functional

    n_classes, n_centres, dim = centres.shape
    unit = functional.normalize(centres, dim=2).reshape(-1, dim)
    cosines = (outputs @ unit.T).reshape(-1, n_classes, n_centres).amax(dim=2)
    own = cosines.gather(1, targets[:, None]).clamp(-1 + 1e-6, 1 - 1e-6)
    turned = own * math.cos(margin) - torch.sqrt(1 - own * own) * math.sin(margin)
    turned = torch.where(own > math.cos(math.pi - margin), turned, own - margin * math.sin(margin))
    return functional.cross_entropy(scale * cosines.scatter(1, targets[:, None], turned), targets)
