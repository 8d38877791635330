"""Principal component analysis of descriptors, with whitening of a chosen strength.

Jégou and Chum, "Negative evidences and co-occurences in image retrieval: the benefit of PCA and whitening",
ECCV 2012.
"""

import numpy as np

from cairn.encoders.vlad import unit
from cairn.errors import ParameterError


def learn_pca(descriptors: np.ndarray, dimension: int, strength: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean float32 [dim] and projection float32 [dim, dimension] learned from descriptors float32 [n, dim].

    Components in falling order of variance λ, each divided by λ^(strength / 2): 0 only rotates, 1 whitens.
    ParameterError where fewer than `dimension` components can be told from n descriptors.
    """
    count, dim = descriptors.shape
    most = min(count - 1, dim)
    if dimension > most:
        raise ParameterError(
            f"pca.dimension is {dimension}: {count} training images with {dim}-dimensional descriptors allow "
            f"at most {most}"
        )
    mean = descriptors.mean(axis=0, dtype=np.float64)
    centred = descriptors - mean
    if count < dim:
        # Fewer images than dimensions: the eigenvectors of the Gram matrix give those of the covariance.
        values, vectors = np.linalg.eigh(centred @ centred.T / count)
        values, vectors = values[::-1][:dimension], vectors[:, ::-1][:, :dimension]
        values = np.maximum(values, values[0] * 1e-9)
        basis = centred.T @ vectors / np.sqrt(values * count)
    else:
        values, basis = np.linalg.eigh(centred.T @ centred / count)
        values, basis = values[::-1][:dimension], basis[:, ::-1][:, :dimension]
    # A sign per component is free; the one whose largest element is positive is taken.
    basis = basis * np.sign(basis[np.abs(basis).argmax(axis=0), np.arange(dimension)])
    scale = np.maximum(values, values[0] * 1e-6) ** (strength / 2)
    return mean.astype(np.float32), (basis / scale).astype(np.float32)


def project(descriptors: np.ndarray, mean: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Centred, projected and L2-normalised rows, float32 [n, dimension]; a zero row stays zero."""
    kept = np.any(descriptors != 0, axis=1, keepdims=True)
    return unit(((descriptors - mean) * kept) @ projection)
