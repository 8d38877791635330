"""Draws the town: an archive of images, ground truth, training classes, and what an audit may know."""

from __future__ import annotations

import csv
import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.benchmarks.toytown.settings import ToytownSettings
from cairn.errors import ArtifactError
from cairn.files import atomic, file_digest, write_json
from cairn.parallel import map_processes
from cairn.progress import track

if TYPE_CHECKING:  # the command line validates settings at its start: numpy waits until a town is drawn
    from cairn.benchmarks.toytown.plan import Building, Plan

IMAGES_FILE = "images.tar"
GROUND_TRUTH = "ground_truth"
TRAINING_FILE = "training.csv"
CATEGORIES_FILE = "train_label_to_category.csv"
LANDMARKS_FILE = "landmarks.json"
TRUTH_FILE = "truth.json"
SOURCES_FILE = "sources.json"


@dataclass(frozen=True)
class ImageRole:
    """What an image of the archive is for; `label` is its training class, None for other images."""

    image_id: str
    gallery: bool
    query: bool
    train: bool
    label: str | None


def draw_town(output: Path, settings: ToytownSettings, processes: int | None = None) -> None:
    """Draw the town of `settings` into the existing, empty directory `output`.

    The bytes follow from `settings` alone, not from the number of `processes`. Written are
    `images.tar` (plain tar, members `gallery/…`, `query/…`, `train/…`, which are the image ids);
    `ground_truth/` (the common structure); `training.csv` (image_id, landmark_id) and
    `train_label_to_category.csv` (landmark_id, category), GLDv2's format; `landmarks.json`, what a
    contamination audit may know; `truth.json`, what it has to find out, for tests only; `sources.json`.

    Raises ArtifactError where `output` is missing or not empty.
    """
    from cairn.benchmarks.toytown.plan import plan_town

    output = Path(output)
    if not output.is_dir() or any(output.iterdir()):
        raise ArtifactError(f"toytown is drawn into an empty directory, which {output} is not")
    plan = plan_town(settings)
    images, geometry = _take_photographs(plan, settings, processes)
    for copy, original in plan.duplicates:
        images[copy], geometry[copy] = images[original], geometry[original]
    write_archive(output / IMAGES_FILE, images)
    relevance = _relevance(plan, geometry)
    _write_ground_truth(output / GROUND_TRUTH, plan, geometry, relevance)
    _write_training(output, plan)
    write_json(output / LANDMARKS_FILE, _known(plan))
    write_json(output / TRUTH_FILE, _truth(plan, geometry, relevance))
    write_json(output / SOURCES_FILE, {"sources": [source_entry(output / IMAGES_FILE, settings)]})


def image_roles(directory: Path) -> tuple[ImageRole, ...]:
    """Roles of the images that `draw_town` wrote into `directory`, by image id.

    Raises ArtifactError where the archive or its training classes are missing or do not fit each other.
    """
    directory = Path(directory)
    try:
        with tarfile.open(directory / IMAGES_FILE, "r:") as archive:
            members = sorted(archive.getnames())
        with (directory / TRAINING_FILE).open(newline="", encoding="utf-8") as stream:
            labels = {row["image_id"]: row["landmark_id"] for row in csv.DictReader(stream)}
    except (OSError, tarfile.TarError, KeyError) as error:
        raise ArtifactError(f"{directory} does not hold a drawn town: {error}; draw it again") from None
    roles = []
    for member in members:
        folder = member.split("/")[0]
        if (folder == "train") != (member in labels):
            raise ArtifactError(f"{directory / TRAINING_FILE} does not fit {IMAGES_FILE}: see {member}")
        roles.append(
            ImageRole(member, folder == "gallery", folder == "query", folder == "train", labels.get(member))
        )
    return tuple(roles)


def source_entry(archive: Path, settings: ToytownSettings) -> dict[str, Any]:
    """What stands in `sources.json` for a drawn town."""
    return {
        "name": "toytown",
        "path": archive.name,
        "url": None,
        "sha256": file_digest(archive),
        "size": archive.stat().st_size,
        "licence": "Apache-2.0",
        "retrieved": None,
        "synthetic": True,
        "seed": settings.seed,
        "generator": {"module": "cairn.benchmarks.toytown", "settings": asdict(settings)},
        "note": "drawn by code from the seed; no photograph, no download",
    }


def write_archive(path: Path, members: Mapping[str, bytes]) -> None:
    """A plain tar whose bytes depend on `members` alone: sorted, no owner, no time."""
    with atomic(path) as temporary, tarfile.open(temporary, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(members):
            entry = tarfile.TarInfo(name)  # a fresh entry has time 0, user 0, group 0
            entry.size, entry.mode = len(members[name]), 0o644
            archive.addfile(entry, io.BytesIO(members[name]))


def _take_photographs(
    plan: Plan, settings: ToytownSettings, processes: int | None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    import cv2

    threads = cv2.getNumThreads()
    tasks = [(settings.seed, building) for building in plan.buildings]
    images, geometry = {}, {}
    try:
        results = map_processes(
            _photograph_building, tasks, chunksize=4, initializer=_use_one_thread, processes=processes
        )
        for shots in track(results, "drawing toytown", total=len(tasks), unit="building"):
            for image_id, encoded, measured in shots:
                images[image_id], geometry[image_id] = encoded, measured
    finally:
        cv2.setNumThreads(threads)  # with one process it was changed in this one
    return images, geometry


def _use_one_thread() -> None:
    import cv2

    cv2.setNumThreads(
        1
    )  # the processes are the parallelism; threads inside them only get in each other's way


def _photograph_building(task: tuple[int, Building]) -> list[tuple[str, bytes, Any]]:
    """Every photograph of one building: image id, JPEG, geometry."""
    from cairn.benchmarks.toytown.facade import build
    from cairn.benchmarks.toytown.photograph import take_photograph

    seed, building = task
    model = build(building.specification)
    return [
        (shot.image_id, *take_photograph(model, shot.difficulty, seed, building.building_id, shot.number))
        for shot in building.shots
    ]


def _relevance(plan: Plan, geometry: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Grades of the gallery images of each query's landmark, by query id."""
    from cairn.benchmarks.toytown.labels import grades

    views = _gallery_by_landmark(plan)
    return {
        _query_id(image): grades(geometry[image], {view: geometry[view] for view in views[landmark]})
        for image, landmark in plan.queries
    }


def _gallery_by_landmark(plan: Plan) -> dict[str, list[str]]:
    views: dict[str, list[str]] = {landmark.landmark_id: [] for landmark in plan.landmarks}
    for image, landmark in _shown(plan).items():
        if landmark is not None and image.startswith("gallery/"):
            views[landmark].append(image)
    return views


def _shown(plan: Plan) -> dict[str, str | None]:
    """Landmark that each image shows, None for none; copies included."""
    shown = {shot.image_id: building.landmark for building in plan.buildings for shot in building.shots}
    return shown | {copy: shown[original] for copy, original in plan.duplicates}


def _query_id(image_id: str) -> str:
    return Path(image_id).stem


def _write_ground_truth(
    path: Path, plan: Plan, geometry: Mapping[str, Any], relevance: Mapping[str, Mapping[str, str]]
) -> None:
    from cairn.benchmarks.structure import GroundTruth, Query, write_ground_truth

    queries = tuple(
        Query(query_id=_query_id(image), image_id=image, box=geometry[image].box, text=None, split=None)
        for image, _ in plan.queries
    )
    write_ground_truth(path, GroundTruth(queries=queries, relevance=relevance))


def _write_training(output: Path, plan: Plan) -> None:
    images = [(image, one.landmark_id) for one in plan.training for image in one.image_ids]
    _write_csv(output / TRAINING_FILE, ("image_id", "landmark_id"), sorted(images))
    categories = [(one.landmark_id, one.category.address) for one in plan.training]
    _write_csv(output / CATEGORIES_FILE, ("landmark_id", "category"), sorted(categories))


def _write_csv(path: Path, header: tuple[str, ...], rows: Iterable[tuple]) -> None:
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _known(plan: Plan) -> dict[str, Any]:
    """What anyone may know who has the benchmark: names, places, and which query shows what."""
    from cairn.benchmarks.toytown.names import PLACE, PLACE_ALIASES, PLACE_LANGUAGES

    queries: dict[str, list[str]] = {landmark.landmark_id: [] for landmark in plan.landmarks}
    for image, landmark in plan.queries:
        queries[landmark].append(_query_id(image))
    return {
        "benchmark": "toytown",
        "places": [{"name": PLACE, "aliases": list(PLACE_ALIASES), "languages": PLACE_LANGUAGES}],
        "landmarks": [
            {
                "id": landmark.landmark_id,
                "name": landmark.name,
                "aliases": list(landmark.aliases),
                "languages": landmark.languages,
                "ambiguous": landmark.ambiguous,
                "place": PLACE,
                "queries": queries[landmark.landmark_id],
            }
            for landmark in plan.landmarks
        ],
    }


def _truth(
    plan: Plan, geometry: Mapping[str, Any], relevance: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """What is hidden: what each picture shows and how, which classes show landmarks, what is a copy."""
    from cairn.benchmarks.toytown.labels import shared_share

    shown = _shown(plan)
    building_of = {shot.image_id: one.building_id for one in plan.buildings for shot in one.shots}
    building_of |= {copy: building_of[original] for copy, original in plan.duplicates}
    images = {
        image: {
            "building": building_of[image],
            "landmark": shown[image],
            "visible_share": round(float(seen.visible.mean()), 4),
            "obliquity": round(seen.obliquity, 2),
            "scale": round(seen.scale, 4),
        }
        for image, seen in geometry.items()
    }
    classes = {
        str(one.landmark_id): {
            "shows": one.category.landmark,
            "naming": one.category.naming,
            "sounds_like": one.category.sounds_like,
            "images_that_show_it": [image for image in sorted(one.image_ids) if shown[image] is not None],
        }
        for one in plan.training
    }
    query_image = {_query_id(image): image for image, _ in plan.queries}
    shares = {
        query: {
            image: round(shared_share(geometry[query_image[query]], geometry[image]), 4) for image in graded
        }
        for query, graded in relevance.items()
    }
    return {
        "images": images,
        "classes": classes,
        "duplicates": [list(pair) for pair in sorted(plan.duplicates)],
        "shared_share": shares,
    }
