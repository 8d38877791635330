"""Many views through an encoder: worker processes, cached local features, results in order."""

import contextlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.encoders.protocol import Encoder, Learned
from cairn.errors import CairnError, InputError
from cairn.images.manifest import ImageSource, Manifest
from cairn.images.names import shown
from cairn.parallel import map_processes, workers
from cairn.progress import track
from cairn.store.local import LocalFeatures
from cairn.systems.features import View, local_features, pixels
from cairn.systems.guards import checked_descriptors, encoder_errors

FEW = 128
"""Spawned processes cost about a second: so few views are done sooner in this one."""


@dataclass(frozen=True)
class Work:
    """What workers need. `features_code` is the digest of the code that turns pixels into local features.

    Without such a digest local features are not cached: nothing would tell old ones from new ones.
    """

    source: ImageSource
    encoder: Encoder
    cache: Cache | None
    features_code: str
    learned: Learned = field(default_factory=dict)
    encoder_name: str = ""

    @property
    def features_cache(self) -> Cache | None:
        """Where local features are kept, None where they are not."""
        return self.cache if self.features_code and self.encoder.features is not None else None


def gallery_views(manifest: Manifest, rows: Sequence[int] | np.ndarray) -> list[View]:
    """Whole images."""
    return [View(int(row), None, manifest.image_id[row]) for row in rows]


def query_views(manifest: Manifest, truth: GroundTruth, encoder_name: str) -> list[View]:
    """The queries, cropped to their boxes. InputError where one is a text, which this encoder cannot read."""
    views = []
    for query in truth.queries:
        if query.text is not None or query.image_id is None:
            what = "a text" if query.image_id is None else "an image with a text"
            raise InputError(
                f"query {query.query_id} is {what}; the encoder {encoder_name} has no text tower: "
                "remove the query, or use a system whose encoder has one"
            )
        row = manifest.row_of.get(query.image_id)
        if row is None:
            raise InputError(f"query {query.query_id}: image {query.image_id} is not in the manifest")
        views.append(View(row, query.box, query.query_id))
    return views


def prepared(views: Sequence[View], work: Work, description: str) -> Iterator[Any]:
    """What `encoder.describe` takes, per view in order: local features (from the cache where they are) or
    `encoder.prepare` of the pixels."""
    absent = [view for view in views if not _cached(view, work)]
    fresh = _map(_prepared, absent, work)
    missing = set(absent)
    for view in track(views, description, total=len(views), unit="images"):
        # An entry that turns out to be damaged is made again here.
        yield next(fresh) if view in missing else _prepared(view, work)


def described(views: Sequence[View], work: Work, description: str) -> Iterator[np.ndarray]:
    """The descriptor of each view in order, float32 [dim], of an encoder that needs no batch."""
    return track(_map(_describe, views, work), description, total=len(views), unit="images")


def described_batch(batch: Sequence[Any], views: Sequence[View], work: Work) -> np.ndarray:
    """The descriptors of prepared views, floating point [views, dim]. CairnError, naming encoder and view."""
    names = [view.name for view in views]
    return checked_descriptors(work.encoder, work.encoder_name, list(batch), names, work.learned)


def device() -> str:
    """The kind of device that results were computed on."""
    return f"cpu {platform.machine()}"


def features_key(view: View, work: Work) -> str:
    """The cache key of a view's local features."""
    assert work.encoder.features is not None and work.features_code
    with encoder_errors(work.encoder_name, "features.key"):
        extractor = work.encoder.features.key()
    return entry_key(
        kind="features",
        image=work.source.manifest.sha256[view.row],
        box=view.box,
        extractor=extractor,
        code=work.features_code,
        device=device(),
    )


def pack(features: LocalFeatures) -> bytes:
    """Local features as bytes: one line of JSON, then the arrays."""
    head = {"n": len(features), "dim": features.descriptors.shape[1], "dtype": features.descriptors.dtype.str}
    arrays = (features.positions, features.scales, features.weights)
    parts = [np.ascontiguousarray(array, "<f4").tobytes() for array in arrays]
    return b"".join([json.dumps(head).encode(), b"\n", *parts, features.descriptors.tobytes()])


def unpack(data: bytes) -> LocalFeatures:
    """The inverse of `pack`."""
    line, _, body = data.partition(b"\n")
    head = json.loads(line)
    count, dim = head["n"], head["dim"]
    numbers = np.frombuffer(body, "<f4", 4 * count)
    descriptors = np.frombuffer(body, np.dtype(head["dtype"]), count * dim, offset=16 * count)
    return LocalFeatures(
        numbers[: 2 * count].reshape(count, 2),
        numbers[2 * count : 3 * count],
        numbers[3 * count :],
        descriptors.reshape(count, dim),
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Inside, numpy, FAISS and OpenCV compute on one thread: results and speed as in a worker process."""
    import cv2
    from threadpoolctl import threadpool_limits

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        cv2.setNumThreads(before)


def _map(function: Any, views: Sequence[View], work: Work) -> Iterator[Any]:
    if len(views) < FEW or workers() == 1:
        for view in views:
            with one_thread():
                result = function(view, work)
            yield result
        return
    chunksize = max(1, min(16, len(views) // (4 * workers())))
    yield from map_processes(
        _call, ((function, view) for view in views), chunksize=chunksize, initializer=_start, initargs=(work,)
    )


_work: Work
_limits: Any


def _start(work: Work) -> None:
    global _work, _limits
    import cv2
    from threadpoolctl import threadpool_limits

    _limits = threadpool_limits(1)
    cv2.setNumThreads(1)
    _work = work


def _call(task: tuple[Any, View]) -> Any:
    function, view = task
    return function(view, _work)


def _describe(view: View, work: Work) -> np.ndarray:
    return described_batch([_prepared(view, work)], [view], work)[0]


def _cached(view: View, work: Work) -> bool:
    cache = work.features_cache
    return cache is not None and cache.has(features_key(view, work))


def _prepared(view: View, work: Work) -> Any:
    encoder, cache = work.encoder, work.features_cache
    if encoder.features is None:
        image = pixels(work.source, view, encoder.colour)
        with encoder_errors(work.encoder_name, f"prepare of image {shown(view.name)}"):
            return encoder.prepare(image)
    if cache is None:
        return _features(view, work)
    key = features_key(view, work)
    if (data := cache.get(key)) is not None:
        return unpack(data)
    features = _features(view, work)
    with encoder_errors(work.encoder_name, f"local features of image {shown(view.name)}"):
        data = pack(features)
    cache.put(key, data)
    return features


def _features(view: View, work: Work) -> LocalFeatures:
    assert work.encoder.features is not None
    with encoder_errors(work.encoder_name, f"local features of image {shown(view.name)}"):
        found = local_features(work.source, view, work.encoder.features)
    if not isinstance(found, LocalFeatures):
        raise CairnError(
            f"encoder {work.encoder_name}: local features of image {shown(view.name)} are a "
            f"{type(found).__name__}; a cairn.store.local.LocalFeatures is expected"
        )
    return found
