"""VLAD: an image's local descriptors aggregated by what they differ from the nearest visual word.

Jégou, Perronnin, Douze, Sánchez, Pérez and Schmid, "Aggregating local image descriptors into compact codes",
PAMI 2012 (VLAD, power normalisation); Arandjelović and Zisserman, "All about VLAD", CVPR 2013 (intra
normalisation); Delhumeau, Gosselin, Jégou and Pérez, "Revisiting the VLAD image representation", ACM MM 2013
(normalised residuals).
"""

import numpy as np


def vlad(
    descriptors: np.ndarray,
    words: np.ndarray,
    *,
    power: float = 0.5,
    intra: bool = True,
    residuals: bool = True,
) -> np.ndarray:
    """The VLAD of one image: float32 [words × dim], of L2 norm 1; zero where there is no descriptor.

    `descriptors` float32 [n, dim], `words` float32 [words, dim]. Each descriptor is assigned to its nearest
    word (Euclidean; the first of equally near ones) and its residual, descriptor − word, added to the word's
    sum. `residuals`: residuals are L2-normalised first, so that each descriptor counts the same. `intra`:
    each word's sum is L2-normalised, so that a word that occurs often counts no more than others. `power`:
    sign(v) |v|^power of every element (1: none), before the L2 normalisation of the whole.
    """
    count, dim = words.shape
    sums = np.zeros((count, dim), np.float32)
    if len(descriptors):
        assigned = nearest(descriptors, words)
        differences = descriptors - words[assigned]
        if residuals:
            differences = unit(differences)
        order = np.argsort(assigned, kind="stable")
        used, first = np.unique(assigned[order], return_index=True)
        sums[used] = np.add.reduceat(differences[order], first, axis=0)
    if intra:
        sums = unit(sums)
    whole = sums.reshape(1, -1)
    if power != 1:
        whole = np.sign(whole) * np.abs(whole) ** np.float32(power)
    return unit(whole)[0]


def nearest(descriptors: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Number of the word nearest to each descriptor, int64 [n]; the lowest number among equals."""
    # |d − w|² = |d|² − 2 d·w + |w|², and |d|² is the same for all words.
    return np.argmin((words * words).sum(axis=1) - 2 * (descriptors @ words.T), axis=1)


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows divided by their L2 norm, float32; a zero row stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1)).astype(np.float32, copy=False)


def learn_words(descriptors: np.ndarray, words: int, *, iterations: int, seed: int) -> np.ndarray:
    """k-means centroids, float32 [words, dim], of descriptors float32 [n, dim] with n ≥ words.

    By FAISS on one thread: the same input gives the same words on one machine.
    """
    import faiss
    from threadpoolctl import threadpool_limits

    training = faiss.Kmeans(
        descriptors.shape[1],
        words,
        niter=iterations,
        seed=seed,
        verbose=False,
        # The sample was drawn before; FAISS shall neither draw another nor warn that it is small.
        min_points_per_centroid=1,
        max_points_per_centroid=len(descriptors),
    )
    with threadpool_limits(1):
        training.train(np.ascontiguousarray(descriptors, np.float32))
    assert training.centroids is not None
    return np.array(training.centroids, np.float32)
