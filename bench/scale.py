"""100 million images × 1024 on paper: derives `docs/scale.md` from measured and assumed figures in `scale.yaml`.

Run: `python bench/scale.py` prints the derived tables, `--write` puts them into docs/scale.md, `--figures FILE.yaml`
takes other figures. Nothing is timed here. What can be known exactly is computed from the code itself: how many shards
there are, and the bytes of a stored descriptor, from a shard that is written to a temporary folder.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from cairn.store.descriptors import write_shard
from cairn.store.shards import IMAGES_PER_SHARD, shard_count

HERE = Path(__file__).resolve().parent
FIGURES = HERE / "scale.yaml"
DOCUMENT = HERE.parent / "docs" / "scale.md"
BEGIN, END = "<!-- derived by bench/scale.py: do not edit -->", "<!-- end -->"


@dataclass(frozen=True)
class Figures:
    """`scale.yaml`: sections of figures, each a value and where it is from; and the setups."""

    sections: Mapping[str, Mapping[str, Mapping[str, Any]]]
    setups: Mapping[str, Mapping[str, float]]

    @classmethod
    def read(cls, path: Path) -> "Figures":
        document = yaml.safe_load(path.read_text("utf-8"))
        setups = document.pop("setups")
        for section, figures in document.items():
            for name, figure in figures.items():
                if not {"value", "from"} <= figure.keys() <= {"value", "from", "unit"}:
                    raise ValueError(f"{path.name}: {section}.{name} needs a value and where it is from")
        return cls(document, setups)

    def __call__(self, section: str, name: str) -> Any:
        return self.sections[section][name]["value"]


def stored_bytes(dimension: int, characters: int) -> float:
    """Bytes per image of a whole shard, ids and footers included."""
    ids = [f"{row:0{characters}d}" for row in range(IMAGES_PER_SHARD)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0000.parquet"
        write_shard(path, ids, np.zeros((IMAGES_PER_SHARD, dimension), np.float16), {})
        return path.stat().st_size / IMAGES_PER_SHARD


def image_flops(figures: Figures) -> float:
    """Floating-point operations of a vision transformer for one image: matrix products alone."""
    layers, width, mlp, patch, side = (
        figures("model", name) for name in ("layers", "width", "mlp", "patch", "side")
    )
    tokens = (side // patch) ** 2 + 1
    linear = 2 * (4 * width**2 + 2 * width * mlp)  # query, key, value, output; the two layers behind them
    attention = 2 * 2 * tokens * width  # queries × keys, weights × values
    return tokens * layers * (linear + attention)


def derive(figures: Figures) -> dict[str, dict[str, float | None]]:
    """What each setup needs, by row; seconds, bytes, watt-hours and dollars."""
    images, dimension = figures("collection", "images"), figures("collection", "dimension")
    per_image = stored_bytes(dimension, figures("collection", "image_id_characters"))
    store = images * per_image
    archives = images * figures("collection", "image_bytes")
    flops = images * image_flops(figures)
    bound = flops / (figures("hardware", "gpu_tflops") * 1e12)
    assumed = bound / figures("hardware", "utilisation")
    rate = figures("measured", "gpu_images_per_second")
    gpu_seconds = images / rate if rate else assumed
    decoded = figures("measured", "decoded_images_per_second")
    scored = np.prod([figures("measured", f"search_{of}") for of in ("queries", "images", "dimension")])
    search = figures("measured", "search_seconds") / float(scored)
    search *= figures("collection", "queries") * images * dimension
    per_open = figures("measured", "opening_seconds") / figures("measured", "search_images")
    per_id = figures("measured", "search_memory") * 2**20 / figures("measured", "search_images")
    watts = figures("hardware", "gpu_watts") + figures("hardware", "host_watts_per_gpu")
    kilowatt_hours = gpu_seconds / 3600 * watts / 1000 * figures("hardware", "pue")
    result = {}
    for name, setup in figures.setups.items():
        gpus, cores = setup["nodes"] * setup["gpus"], setup["nodes"] * setup["cores"]
        reading = setup["nodes"] * setup["drives"] * figures("hardware", "disk_gb_per_second") * 1e9
        network = setup["nodes"] * setup["network_gbit"] * 1e9 / 8
        result[name] = {
            "archives": archives,
            "descriptors": store,
            "descriptors per node": store / setup["nodes"],
            "shards": shard_count(images),
            "memory": images * per_id,
            "GPU seconds, bound": bound,
            "GPU seconds, assumed": assumed,
            "GPU seconds, measured": images / rate if rate else None,
            "extraction": gpu_seconds / gpus,
            "images per second": images / (gpu_seconds / gpus),
            "processors decoding": images / (gpu_seconds / gpus) / decoded if decoded else None,
            "network, archives": archives / network,
            "network rate needed": archives / (gpu_seconds / gpus) / setup["nodes"],
            "network, descriptors": store / network,
            "opening": images * per_open,
            "search, reading": store / reading,
            "search, products": search / cores,
            "energy": kilowatt_hours,
            "carbon": kilowatt_hours * figures("hardware", "grid_kg_per_kwh"),
            "money, GPUs": gpu_seconds / 3600 * figures("hardware", "gpu_hour_price"),
            "money, storage": (archives + store) / 1e9 * figures("hardware", "storage_price"),
        }
    return result


def tables(figures: Figures) -> str:
    """The derived part of the document."""
    derived = derive(figures)
    first = next(iter(derived.values()))
    images, dimension = figures("collection", "images"), figures("collection", "dimension")
    rows = [
        ("**disk**: archives, read in place", "archives", terabytes),
        (f"descriptors, {dimension} × float16 with ids", "descriptors", gigabytes),
        (
            f"of those on each node, in {first['shards']:,} shards altogether",
            "descriptors per node",
            gigabytes,
        ),
        ("**memory** of the searching process (ids; descriptors are mapped)", "memory", gigabytes),
        ("**GPU-hours**, at the full matrix rate", "GPU seconds, bound", hours),
        (f"at {figures('hardware', 'utilisation'):.0%} of it (assumed)", "GPU seconds, assumed", hours),
        ("at the measured rate", "GPU seconds, measured", hours),
        ("**extraction** on all GPUs", "extraction", duration),
        ("images per second that must be decoded", "images per second", count),
        ("processors that are busy with it", "processors decoding", count),
        ("**network**: the archives once, at full speed", "network, archives", duration),
        ("per node, to keep the GPUs busy", "network rate needed", rate),
        ("the descriptors once, at full speed", "network, descriptors", duration),
        ("opening the store: ids, on one processor", "opening", duration),
        (
            f"**exact search**, {figures('collection', 'queries'):,} queries: reading the store",
            "search, reading",
            duration,
        ),
        ("the same: products, top 1,600 and ranks on all processors", "search, products", duration),
        ("**energy** of extraction", "energy", kilowatt_hours),
        ("**carbon** of it", "carbon", kilograms),
        ("**money**: GPUs", "money, GPUs", dollars),
        ("archives and descriptors, per month", "money, storage", dollars),
    ]
    head = [f"{images:,} images × {dimension}, {figures('model', 'name')}", *derived]
    lines = [row(head), row(["---"] * len(head))]
    lines += [row([label, *(shape(one[key]) for one in derived.values())]) for label, key, shape in rows]
    setups = [
        f"{name}: {s['nodes']} × ({s['gpus']} {figures('hardware', 'gpu')}, {s['cores']} processors, "
        f"{s['drives']} drives, {s['network_gbit']} Gbit/s)"
        for name, s in figures.setups.items()
    ]
    paper = figures.sections["paper"]
    said = [
        "; ".join(setups) + ".",
        f"One image takes {image_flops(figures) / 1e12:.2f} TFLOP in matrix products.",
        f"The paper on estimates from a sample puts one model at {paper['gpu_hours']['value']} of GPU-hours and "
        f"{paper['descriptors_gb']['value']} GB of descriptors ({paper['gpu_hours']['from']}). "
        f"Its carbon assumptions: {paper['carbon_assumptions']['value'] or paper['carbon_assumptions']['from']}.",
    ]
    sources = [row(["figure", "value", "from"]), row(["---"] * 3)]
    for section in ("collection", "measured", "model", "hardware"):
        for name, figure in figures.sections[section].items():
            value = figure["value"]
            shown = (
                "not measured" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
            )
            sources.append(
                row(
                    [
                        f"{section}: {name.replace('_', ' ')}",
                        f"{shown} {figure.get('unit', '')}".strip(),
                        figure["from"],
                    ]
                )
            )
    return "\n".join([*lines, "", *said, "", "### What it is derived from", "", *sources])


def row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def gigabytes(value: float) -> str:
    return f"{value / 1e9:,.0f} GB"


def terabytes(value: float) -> str:
    return f"{value / 1e12:,.1f} TB"


def hours(value: float | None) -> str:
    return "not measured" if value is None else f"{value / 3600:,.1f} h"


def duration(value: float) -> str:
    """In the unit that gives a number one can read."""
    for unit, seconds in (("h", 3600), ("min", 60)):
        if value >= 1.5 * seconds:
            return f"{value / seconds:,.1f} {unit}"
    return f"{value:,.1f} s"


def rate(value: float) -> str:
    return f"{value * 8 / 1e9:,.1f} Gbit/s"


def count(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.0f}"


def kilowatt_hours(value: float) -> str:
    return f"{value:,.0f} kWh"


def kilograms(value: float) -> str:
    return f"{value:,.0f} kg CO₂e"


def dollars(value: float) -> str:
    return f"{value:,.0f} USD"


def document(text: str, derived: str) -> str:
    """`text` with its derived part replaced."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the document has no part between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{derived}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--figures", type=Path, default=FIGURES)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/scale.md")
    asked = parser.parse_args(arguments)
    derived = tables(Figures.read(asked.figures))
    if asked.write:
        DOCUMENT.write_text(document(DOCUMENT.read_text("utf-8"), derived), "utf-8")
    else:
        print(derived)


if __name__ == "__main__":
    main()
