"""Class-level audit at GLDv2's size: 203,094 categories, 81,313 clean classes, 1,580,470 images.

Run: `python bench/bench_contamination.py`. The CSVs are generated from a fixed seed in a temporary folder; the
audit runs in a process of its own, whose wall time and peak memory are printed with what it found.
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

CATEGORIES, CLASSES, IMAGES = 203_094, 81_313, 1_580_470
FORMS = (
    "{0} Castle", "Église Saint-{0} de {1}", "{0} Church ({1})", "Schloss {0}", "{1} railway station", "Lake {0}",
    "Monastery of St. {0}", "Cathédrale Notre-Dame de {1}", "Christ Church, {1}", "Museo de {0}", "Пам'ятник {0}",
    "{0} Bridge, {1}", "Buildings in {1}", "Interior of {0} Palace", "{0} (Paris)", "{0} Street, Oxford", "{0} Pagoda",
)  # fmt: skip
PLANTED = (
    "Louvre", "Louvre-Lens", "Notre-Dame de Paris", "Panthéon (Paris)", "Pantheon (Rome)", "Magdalen College, Oxford",
    "Magdalene College, Cambridge", "Christ Church, Oxford", "Eiffel Tower", "Radcliffe Camera",
)  # fmt: skip
SYLLABLES = "ba den kir ol ma rin ste fan wald burg ville ro sen ta ni ko lo pra zu ém ø ü".split()  # noqa: SIM905


def generate(folder: Path) -> None:
    """Write `train_label_to_category.csv` and `train_clean.csv` of exactly the sizes above."""
    draw = random.Random(0)

    def word() -> str:
        return "".join(draw.choices(SYLLABLES, k=draw.randint(2, 4))).capitalize()

    def address(number: int) -> str:
        if number < len(PLANTED):
            name = PLANTED[number]
        else:
            name = draw.choice(FORMS).format(word(), word())
        return "http://commons.wikimedia.org/wiki/Category:" + quote(name.replace(" ", "_"), safe="_(),-:.'")

    with (folder / "train_label_to_category.csv").open("w", encoding="utf-8") as stream:
        stream.write("landmark_id,category\n")
        for number in range(CATEGORIES):
            text = address(number)
            stream.write(f'{number},"{text}"\n' if "," in text else f"{number},{text}\n")
    chosen = [*range(len(PLANTED)), *draw.sample(range(len(PLANTED), CATEGORIES), CLASSES - len(PLANTED))]
    sizes = [2] * CLASSES  # GLDv2's classes have a long tail: a few are large
    for place in draw.choices(
        range(CLASSES), weights=[1 / (1 + n) ** 0.6 for n in range(CLASSES)], k=IMAGES - 2 * CLASSES
    ):
        sizes[place] += 1
    draw.shuffle(chosen)
    number = 0
    with (folder / "train_clean.csv").open("w", encoding="utf-8") as stream:
        stream.write("landmark_id,images\n")
        for landmark, size in zip(chosen, sizes, strict=True):
            images = " ".join(f"{(number + k) * 0x9E3779B97F4A7C15 % 2**64:016x}" for k in range(size))
            stream.write(f"{landmark},{images}\n")
            number += size


def audit(folder: Path) -> None:
    """The audit, and its cost, on standard output."""
    start = time.perf_counter()
    from cairn.contamination.classes import audit_classes, total_images, write_audit
    from cairn.contamination.landmarks import load_landmarks
    from cairn.contamination.training_classes import read_categories, read_training_images

    categories = read_categories(folder / "train_label_to_category.csv")
    training = read_training_images(folder / "train_clean.csv", categories)
    read = time.perf_counter()
    result = audit_classes(categories, training, [load_landmarks("roxford5k"), load_landmarks("rparis6k")])
    write_audit(folder / "leak_class_ids.json", result)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{result.categories:,} categories, {result.classes:,} classes, {result.images:,} images: "
        f"{len(result.flagged):,} classes with {total_images(result.flagged):,} images flagged, "
        f"{len(result.considered):,} considered and not"
    )
    print(
        f"reading {read - start:.2f} s, examining and writing {end - read:.2f} s, together {end - start:.2f} s"
    )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"processor time {usage.ru_utime + usage.ru_stime:.2f} s; peak memory {peak:.0f} MiB (limit 1,024)")


def main() -> None:
    if len(sys.argv) == 2:
        audit(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        subprocess.run([sys.executable, __file__, folder], check=True)


if __name__ == "__main__":
    main()
