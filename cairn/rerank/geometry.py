"""Geometric verification: how many local features of a query and an image agree on one view of a plane.

Philbin, Chum, Isard, Sivic and Zisserman, CVPR 2007, section 4 (spatial re-ranking of a shortlist). Matches
by Lowe's ratio (IJCV 2004, section 7.1) that are mutual; a homography by MAGSAC++ (Barath, Noskova,
Ivashechkin and Matas, CVPR 2020; OpenCV's USAC_MAGSAC); its inliers, if it is a view that a camera can have.

An image's score is

    global similarity + weight × g / (g + saturation),   g = max(0, inliers − (minimum − 1)),

so that unverified images keep their score, a few inliers move an image past similar ones, and many put it
before all unverified ones.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cairn.cache import Cache, entry_key
from cairn.encoders.rootsift import root
from cairn.files import file_digest
from cairn.rerank import IMAGES_FILE, QUERIES_FILE, Geometry, RerankParameters
from cairn.rerank.two_stage import RankedQuery, RerankedQuery, shortlist
from cairn.store.local import LocalFeatures, LocalStore, open_local

UNVERIFIED = -1
"""In the column `inliers`: the image was not in the shortlist."""

MOST_SCALE, LEAST_SCALE, MOST_STRETCH = 8.0, 0.08, 5.0
"""Limits of the homography's linear part at the inliers' centre: larger or smaller scale, or a ratio of the
two axes beyond the last, is no view of one plane that features would match in."""
CELL = 8
"""Inliers that lie in one cell of so many pixels in the image count once: clumps are easily matched by chance."""
ITERATIONS, CONFIDENCE = 1000, 0.995


def stage(parameters: RerankParameters) -> str:
    """The stage's slug, as in `geometry-k100`, or `geometry-xfeat-k100` with other features than the encoder's."""
    own = parameters.geometry.local
    return f"geometry-k{parameters.k}" if own == "encoder" else f"geometry-{own}-k{parameters.k}"


def rerank(
    queries: Sequence[RankedQuery],
    local: Path,
    parameters: RerankParameters,
    processes: int | None = None,
    cache: Cache | None = None,
    code: str = "",
) -> Iterator[tuple[RerankedQuery, dict[str, np.ndarray]]]:
    """Yield each query's new order, and `inliers` (int32 [n], in the ranking's order; -1: not in the
    shortlist).

    `local` is the folder with the local features of queries (`queries.hdf5`) and images (`images.hdf5`).
    Finished queries are kept in `cache` under `code`: an interrupted verification goes on.
    ArtifactError, naming query or image, where features are missing or the ranking is shorter than the
    shortlist. The result does not depend on `processes`.
    """
    from cairn.parallel import map_processes, workers
    from cairn.progress import track

    # A deployed system knows no junk: nothing is moved out of the shortlist.
    chosen = [shortlist(query, np.zeros(len(query.rank), bool), parameters.k) for query in queries]
    tasks = [
        (query.query_id, [query.image_ids[position] for position in positions])
        for query, positions in zip(queries, chosen, strict=True)
    ]
    keys = _keys(tasks, local, parameters.geometry, code) if cache is not None else [""] * len(tasks)
    found = [_kept(cache, key, len(images)) for key, (_, images) in zip(keys, tasks, strict=True)]
    left = [task for task, counts in zip(tasks, found, strict=True) if counts is None]
    pairs = sum(len(images) for _, images in left)
    # Spawned processes cost about a second; some hundred pairs are done sooner than that.
    processes = processes or (workers() if pairs > 400 else 1)
    counted = map_processes(
        _verify, left, initializer=_start, initargs=(local, parameters.geometry), processes=processes
    )
    counted = track(counted, "Verifying geometry", total=len(left), unit="queries")
    for query, positions, key, counts in zip(queries, chosen, keys, found, strict=True):
        if counts is None:
            counts = next(counted)
            if cache is not None:
                cache.put(key, counts.astype("<i4").tobytes())
        inliers = np.full(len(query.rank), UNVERIFIED, np.int32)
        inliers[positions] = counts
        yield (
            reordered(query, positions, mixed_score(query.score[positions], counts, parameters.geometry)),
            {"inliers": inliers},
        )
    next(counted, None)  # so that its processes end here


def _keys(tasks: Sequence[tuple[str, list[str]]], local: Path, parameters: Geometry, code: str) -> list[str]:
    """What decides the inliers of each task: features, parameters and code."""
    from importlib.metadata import version

    same = {
        "kind": "geometry",
        "features": [file_digest(open_local(local / name).path) for name in (QUERIES_FILE, IMAGES_FILE)],
        "parameters": parameters.model_dump(mode="json", exclude={"weight", "saturation"}),
        "code": code,
        "versions": {name: version(name) for name in ("numpy", "opencv-python-headless")},
    }
    return [entry_key(**same, query=query_id, images=images) for query_id, images in tasks]


def _kept(cache: Cache | None, key: str, images: int) -> np.ndarray | None:
    """The inliers of a finished query; None where there are none or the entry is not what it should be."""
    data = cache.get(key) if cache is not None else None
    if data is None or len(data) != 4 * images:
        return None
    return np.frombuffer(data, "<i4").astype(np.int32)


def mixed_score(global_score: np.ndarray, inliers: np.ndarray, parameters: Geometry) -> np.ndarray:
    """float32 [n] from global similarities float32 [n] and inliers int [n]; the formula stands above."""
    gain = np.maximum(inliers - (parameters.minimum - 1), 0).astype(np.float64)
    mixed = global_score + parameters.weight * gain / (gain + parameters.saturation)
    return mixed.astype(np.float32)


def reordered(query: RankedQuery, positions: np.ndarray, scores: np.ndarray) -> RerankedQuery:
    """The query's list with the images at `positions` sorted by `scores`; ties by manifest row, the rest stays."""
    score = query.score.astype(np.float32)
    score[positions] = scores
    order = np.arange(len(query.rank))
    order[positions] = positions[np.lexsort((query.image_row[positions], -scores))]
    return RerankedQuery(order.astype(np.int64), query.rank, score[order])


def inliers(query: LocalFeatures, image: LocalFeatures, parameters: Geometry) -> int:
    """Inliers of a plausible homography from the query's features to the image's; 0 where there is none.

    Descriptors are SIFT, uint8 [n, 128], or learned ones, floats [n, dim]; positions in pixels.
    """
    return len(verified(query, image, parameters)[0])


def verified(
    query: LocalFeatures, image: LocalFeatures, parameters: Geometry
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of `query` and of `image` (int64 [m] each) that a plausible homography from one to the other maps
    within `threshold`, and the homography float64 [3, 3]; empty rows and the identity where there is none.

    Of inliers in one cell of the image the first counts alone (see CELL).
    """
    most = parameters.features
    return _verified(
        query.positions[:most],
        comparable(query.descriptors[:most]),
        image.positions[:most],
        comparable(image.descriptors[:most]),
        parameters,
    )


def comparable(descriptors: np.ndarray) -> np.ndarray:
    """float32 [n, dim] of L2 norm 1, which dot products compare: RootSIFT of 8-bit SIFT, others normalised."""
    if descriptors.dtype == np.uint8:
        return root(descriptors)
    values = descriptors.astype(np.float32)
    norms = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(norms > 0, norms, 1)


def matches(query: np.ndarray, image: np.ndarray, ratio: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `query` [n, dim] and of `image` [m, dim] (L2-normalised) that match: mutual, and by Lowe's
    ratio.

    Nothing matches where `image` has fewer than two descriptors: there is no second best.
    """
    if len(query) == 0 or len(image) < 2:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    similarity = query @ image.T
    everyone = np.arange(len(query))
    nearest = similarity.argmax(axis=1)
    first = similarity[everyone, nearest]
    similarity[everyone, nearest] = -np.inf
    second = similarity.max(axis=1)
    similarity[everyone, nearest] = first
    # |a − b|² = 2 − 2 a·b for vectors of norm 1.
    kept = np.flatnonzero(1 - first < ratio * ratio * (1 - second))
    mutual = similarity[:, nearest[kept]].argmax(axis=0) == kept
    return kept[mutual], nearest[kept[mutual]]


def plausible(homography: np.ndarray, points: np.ndarray) -> bool:
    """Whether a homography [3, 3] can be a camera's view at the points [n, 2] that it maps.

    All of them on one side of the horizon, not mirrored, within the limits of scale and stretch.
    """
    depth = points @ homography[2, :2] + homography[2, 2]
    if not (np.all(depth > 0) or np.all(depth < 0)):
        return False
    x, y = points.mean(axis=0)
    mapped = homography @ (x, y, 1.0)
    linear = (homography[:2, :2] - np.outer(mapped[:2] / mapped[2], homography[2, :2])) / mapped[2]
    if not np.isfinite(linear).all() or np.linalg.det(linear) <= 0:
        return False
    larger, smaller = np.linalg.svd(linear, compute_uv=False)
    return bool(larger <= MOST_SCALE and smaller >= LEAST_SCALE and larger <= MOST_STRETCH * smaller)


def _verified(
    query_positions: np.ndarray,
    query_descriptors: np.ndarray,
    image_positions: np.ndarray,
    image_descriptors: np.ndarray,
    parameters: Geometry,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import cv2

    none = np.zeros(0, np.int64), np.zeros(0, np.int64), np.eye(3)
    from_query, to_image = matches(query_descriptors, image_descriptors, parameters.ratio)
    if len(from_query) < parameters.minimum:
        return none
    source, target = query_positions[from_query], image_positions[to_image]
    cv2.setRNGSeed(0)
    homography, mask = cv2.findHomography(
        source, target, cv2.USAC_MAGSAC, parameters.threshold, maxIters=ITERATIONS, confidence=CONFIDENCE
    )
    if homography is None or mask is None:
        return none
    agreeing = np.flatnonzero(mask[:, 0] > 0)
    if len(agreeing) < 4 or not plausible(homography, source[agreeing]):
        return none
    _, first = np.unique(np.floor(target[agreeing] / CELL), axis=0, return_index=True)
    kept = agreeing[np.sort(first)]
    return from_query[kept], to_image[kept], homography


_queries: LocalStore
_images: LocalStore
_parameters: Geometry


def _start(local: Path, parameters: Geometry) -> None:
    global _queries, _images, _parameters
    import cv2
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    cv2.setNumThreads(1)
    _queries, _images = open_local(local / QUERIES_FILE), open_local(local / IMAGES_FILE)
    _parameters = parameters


def _verify(task: tuple[str, list[str]]) -> np.ndarray:
    query_id, images = task
    most = _parameters.features
    query = _queries.read(query_id)
    positions, descriptors = query.positions[:most], comparable(query.descriptors[:most])
    counts = np.zeros(len(images), np.int32)
    for number, image_id in enumerate(images):
        image = _images.read(image_id)
        kept, _, _ = _verified(
            positions, descriptors, image.positions[:most], comparable(image.descriptors[:most]), _parameters
        )
        counts[number] = len(kept)
    return counts
