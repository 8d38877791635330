"""What storing descriptors as float16 does to the metric: the same search with float32 and with float16 descriptors.

Run: `python bench/bench_rounding.py` (about two minutes). Two kinds of descriptors:

- clustered ones from a fixed seed, `--rows` × 128 to 2,048: 100 queries with 50 positives each from the same cluster,
  the rest distractors, so that scores lie as close together as they do in a large gallery;
- those of real images, described by `--encoder` (more than one may be given) from the set of pictures in `--images` (a
  folder with `query/` and `database/`, matching by file name), where one is at hand.

For each: mean average precision with either, the largest change of a query's, how many positives change rank, and
how many queries another first image (of two images that tie in float16, the first in the manifest comes first).
Nothing is timed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cairn.search.exact import exact_search

SEED = 0
ROWS, QUERIES, POSITIVES = 100_000, 100, 50
DIMS = (128, 512, 1024, 2048)
ENCODERS = ("colour-histogram", "rootsift-vlad")


@dataclass
class Memory:
    """A gallery in memory."""

    rows: np.ndarray

    @property
    def dim(self) -> int:
        return self.rows.shape[1]

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[np.ndarray]:
        yield self.rows

    def take(self, rows: np.ndarray) -> np.ndarray:
        return self.rows[rows]


def unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms == 0, 1, norms)


def clustered(rows: int, dim: int) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Queries and gallery, float32, and each query's positives: around a common centre among distractors."""
    generator = np.random.default_rng(SEED)
    centres = unit(generator.standard_normal((QUERIES, dim), dtype=np.float32))
    gallery = unit(generator.standard_normal((rows, dim), dtype=np.float32))
    positives = min(POSITIVES, rows // QUERIES)
    truth = []
    for query in range(QUERIES):
        own = np.arange(query * positives, (query + 1) * positives)
        # From easy ones to those that are lost among the distractors.
        gallery[own] += generator.uniform(0.05, 0.6, (positives, 1)).astype(np.float32) * centres[query]
        truth.append(own)
    noise = unit(generator.standard_normal((QUERIES, dim), dtype=np.float32))
    return unit(centres + 0.5 * noise), unit(gallery), truth


def average_precision(ranks: np.ndarray) -> float:
    """Of the ranks (from 0) of all positives: the mean of precision at each."""
    ordered = np.sort(ranks)
    return float(np.mean((np.arange(len(ordered)) + 1) / (ordered + 1)))


def compare(name: str, queries: np.ndarray, gallery: np.ndarray, truth: list[np.ndarray]) -> None:
    """Print one line: the metric and the ranks with float32 and with float16."""
    place = np.arange(len(gallery))
    found = [
        exact_search(queries.astype(kind), Memory(gallery.astype(kind)), place, 1, truth)
        for kind in (np.float32, np.float16)
    ]
    single, half = (np.array([average_precision(one.judged_ranks) for one in each]) for each in found)
    moved = sum(int((a.judged_ranks != b.judged_ranks).sum()) for a, b in zip(*found, strict=True))
    first = sum(int(a.rows[0] != b.rows[0]) for a, b in zip(*found, strict=True))
    total = sum(len(rows) for rows in truth)
    print(
        f"{name:<34} mAP float32 {100 * single.mean():>8.4f}   float16 {100 * half.mean():>8.4f}   "
        f"largest |dAP| {100 * np.abs(single - half).max():.4f}   positives moved {moved} of {total}   "
        f"other first image {first} of {len(queries)}"
    )


def described(folder: Path, encoder: str) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Queries and gallery of the pictures in `folder`, as the encoder gives them, float32, and the truth."""
    from cairn.encoders import checked_parameters, load_encoder, load_encoder_module
    from cairn.images.manifest import ImageSource, build_manifest, list_entries, manifest_of
    from cairn.systems.extraction import Work, described, described_batch, gallery_views, prepared
    from cairn.systems.vocabulary import learn_vocabulary, read_learned

    entries = []
    for part, flags in (("database", {"gallery": True, "train": True}), ("query", {"query": True})):
        entries += [
            replace(entry, image_id=f"{part}/{entry.member}", **flags) for entry in list_entries(part, folder)
        ]
    manifest = manifest_of(build_manifest(entries, folder))
    settings = checked_parameters(encoder, load_encoder_module(encoder), {}, encoder)
    with tempfile.TemporaryDirectory() as learned:
        learn_vocabulary(manifest, folder, encoder, settings, Path(learned), cache=None, features_code="")
        built = load_encoder(encoder, settings, folder)
        work = Work(ImageSource(manifest, folder), built, None, "", read_learned(Path(learned)), encoder)
    views = gallery_views(manifest, np.arange(len(manifest.image_id)))
    if built.in_workers:
        array = np.stack(list(described(views, work, "Describing images")))
    else:
        ready = prepared(views, work, "Describing images")
        array = np.concatenate(
            [described_batch([one], [view], work) for one, view in zip(ready, views, strict=True)]
        )
    number = {name: row for row, name in enumerate(manifest.image_id)}
    in_gallery = [row for name, row in number.items() if name.startswith("database/")]
    as_query = [row for name, row in number.items() if name.startswith("query/")]
    place = {row: position for position, row in enumerate(in_gallery)}
    truth = [
        np.array([place[number["database/" + manifest.image_id[row].removeprefix("query/")]]])
        for row in as_query
    ]
    array = array.astype(np.float32)
    return array[as_query], array[in_gallery], truth


def main(arguments: Sequence[str] | None = None) -> None:
    shared = Path(os.environ.get("CAIRN_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--images", type=Path, default=shared / "flat-mini")
    parser.add_argument("--encoder", action="append", help=f"default: {' and '.join(ENCODERS)}")
    parser.add_argument("--no-images", action="store_true", help="clustered descriptors alone")
    asked = parser.parse_args(arguments)
    for dim in DIMS:
        compare(f"clustered, {asked.rows:,} × {dim}", *clustered(asked.rows, dim))
    if asked.no_images:
        return
    if not (asked.images / "query").is_dir():
        print(f"no pictures at {asked.images}: give a folder with query/ and database/ as --images")
        return
    for encoder in asked.encoder or ENCODERS:
        compare(f"{asked.images.name}, {encoder}", *described(asked.images, encoder))


if __name__ == "__main__":
    main()
