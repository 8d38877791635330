"""Picks the training images out of a manifest, and says whose they are."""

from pathlib import Path

from cairn.files import write_json


def write_training(manifest: Path, benchmark: str, training: str, output: Path) -> None:
    """Write `training.parquet` (the manifest's rows marked `train`) and `training.json` (whose they are).

    `manifest` is the manifest artifact of the benchmark named `training`. Never a gallery or query image:
    the rows marked `train` that are also one of those are left out and counted.
    """
    import pyarrow.compute as pc

    from cairn.images.manifest import manifest_schema, write_manifest
    from cairn.store.tables import read_table

    table = read_table(manifest / "manifest.parquet", manifest_schema())

    train = pc.field("train")
    seen = pc.field("gallery") | pc.field("query")
    chosen = table.filter(train & ~seen)
    left_out = table.filter(train & seen).num_rows
    write_manifest(chosen, output / "training.parquet")
    if chosen.num_rows == 0:
        note = f"{training} has no training images: systems that learn from images cannot run on {benchmark}"
    elif training == benchmark:
        note = f"{benchmark}'s own training images"
    else:
        note = f"{benchmark} has no training images of its own: those of {training} are used"
    write_json(
        output / "training.json",
        {"from": training, "images": chosen.num_rows, "left_out_seen_in_test": left_out, "note": note},
    )
