"""Many views through an encoder: worker processes, cached local features, results in order."""

import contextlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cairn.benchmarks.structure import GroundTruth
from cairn.cache import Cache, entry_key
from cairn.encoders.protocol import Encoder, Learned
from cairn.errors import CairnError, ImageError, InputError, UnrecordedImageError
from cairn.images.manifest import ImageSource, Manifest
from cairn.images.names import shown
from cairn.parallel import map_processes, workers
from cairn.progress import track
from cairn.store.local import LocalFeatures
from cairn.systems.features import View, local_features, pixels
from cairn.systems.guards import checked_descriptors, encoder_errors

FEW = 128
"""Spawned processes cost about a second: so few views are done sooner in this one."""


AHEAD = 256
"""Prepared views that may wait for the device."""


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
    query_encoder: Encoder | None = None
    """The encoder for queries where that is another (see `work_of`)."""
    settings: Mapping[str, Any] | None = None
    """Of a user's own encoder its keys in params.yaml: they decide cached descriptors even where its `key` leaves
    some out. None for Cairn's, whose keys hold them."""

    def of(self, view: View) -> Encoder:
        """The encoder of a view's side."""
        return self.query_encoder if view.query and self.query_encoder is not None else self.encoder

    @property
    def features_cache(self) -> Cache | None:
        """Where local features are kept, None where they are not."""
        return self.cache if self.features_code and self.encoder.features is not None else None


@dataclass(frozen=True)
class Missing:
    """Stands for an image that cannot be decoded, where the encoder wants such to be listed."""

    reason: str


def work_of(
    manifest: Manifest,
    root: Path,
    encoder: Encoder,
    encoder_name: str,
    cache: Cache | None = None,
    features_code: str = "",
    learned: Learned | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Work:
    """Work on the images of `manifest`, with the encoder's other side for queries where it has one."""
    queries = encoder.for_queries() if hasattr(encoder, "for_queries") else None  # type: ignore[attr-defined]
    source = ImageSource(manifest, root)
    return Work(source, encoder, cache, features_code, learned or {}, encoder_name, queries, settings)


def gallery_views(manifest: Manifest, rows: Sequence[int] | np.ndarray) -> list[View]:
    """Whole images."""
    return [View(int(row), None, manifest.image_id[row]) for row in rows]


def query_views(
    manifest: Manifest, truth: GroundTruth, encoder_name: str, *, texts: bool = False
) -> list[View]:
    """The queries: images cropped to their boxes, and texts where the encoder can read them (`texts`).

    InputError where one is a text that it cannot read, or an image with a text.
    """
    views = []
    for query in truth.queries:
        if texts and query.text is not None:
            if query.image_id is not None:
                raise InputError(
                    f"query {query.query_id} is an image with a text; {encoder_name} describes one or the other: "
                    "remove one of them"
                )
            views.append(View(-1, None, query.query_id, query.text, query=True))
            continue
        if query.text is not None or query.image_id is None:
            what = "a text" if query.image_id is None else "an image with a text"
            raise InputError(
                f"query {query.query_id} is {what}; the encoder {encoder_name} has no text tower: "
                "remove the query, or use a system whose encoder has one"
            )
        row = manifest.row_of.get(query.image_id)
        if row is None:
            raise InputError(f"query {query.query_id}: image {query.image_id} is not in the manifest")
        views.append(View(row, query.box, query.query_id, query=True))
    return views


def prepared(
    views: Sequence[View], work: Work, description: str, note: Callable[[], str] = str
) -> Iterator[Any]:
    """What `encoder.describe` takes, per view in order: local features (from the cache where they are) or
    `encoder.prepare` of the pixels; of a text the text, of an image that may be missing a `Missing`.

    `note` gives a word behind the rate that is shown.
    """
    absent = [view for view in views if not _cached(view, work)]
    fresh = _map(_prepared, absent, work)
    missing = set(absent)
    for view in track(views, description, total=len(views), unit="images", note=note):
        # An entry that turns out to be damaged is made again here.
        yield next(fresh) if view in missing else _prepared(view, work)


def described(views: Sequence[View], work: Work, description: str) -> Iterator[np.ndarray]:
    """The descriptor of each view in order, float32 [dim], of an encoder that needs no batch."""
    return track(_map(_describe, views, work), description, total=len(views), unit="images")


def described_batch(batch: Any, views: Sequence[View], work: Work) -> np.ndarray:
    """The descriptors of prepared views of one side, all images or all texts, floating point [views, dim].

    `batch` is a list, or what the encoder's `stack` made of it. CairnError, naming encoder and view.
    """
    names = [view.name for view in views]
    texts = views[0].text is not None
    return checked_descriptors(work.of(views[0]), work.encoder_name, batch, names, work.learned, texts=texts)


def device(encoder: Encoder | None = None) -> str:
    """The kind of device that results were computed on: what the encoder says, else the processor."""
    return getattr(encoder, "device", None) or f"cpu {platform.machine()}"


def in_processes(views: Sequence[View]) -> bool:
    """Whether so many views are prepared in worker processes."""
    return len(views) >= FEW and workers() > 1


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
    if not in_processes(views):
        for view in views:
            with one_thread():
                result = function(view, work)
            yield result
        return
    chunksize = max(1, min(16, len(views) // (4 * workers())))
    yield from map_processes(
        _call,
        ((function, view) for view in views),
        chunksize=chunksize,
        initializer=_start,
        initargs=(work,),
        ahead=AHEAD,
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
    return view.text is None and cache is not None and cache.has(features_key(view, work))


def _prepared(view: View, work: Work) -> Any:
    if view.text is not None:
        return view.text
    encoder, cache = work.of(view), work.features_cache
    if encoder.features is None:
        return _pixels_prepared(view, work, encoder)
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


def _pixels_prepared(view: View, work: Work, encoder: Any) -> Any:
    height, width = whole_size(view, work)
    reduced = encoder.reduction(height, width) if hasattr(encoder, "reduction") else 1
    try:
        image = pixels(work.source, view, encoder.colour, reduced)
    except UnrecordedImageError:
        raise  # a file that is gone for now must not be recorded, and cached, as an image without a descriptor
    except ImageError as error:
        if getattr(encoder, "damaged", "fail") == "missing":
            return Missing(str(error))
        raise
    with encoder_errors(work.encoder_name, f"prepare of image {shown(view.name)}"):
        if hasattr(encoder, "shape"):
            # Sizes follow from the image as stored, so that the plan of batches is known before it is decoded.
            if view.box is not None:
                return encoder.prepare(image, (height, width))
            return encoder.prepare(image, None, (height, width)) if reduced > 1 else encoder.prepare(image)
        return encoder.prepare(image)


def whole_size(view: View, work: Work) -> tuple[int, int]:
    """Height and width of the image, as stored, that a view shows all or a part of."""
    manifest = work.source.manifest
    return int(manifest.height[view.row]), int(manifest.width[view.row])


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
