"""Grids: which cells there are, that a cell's numbers are those of a run, and what counts as an extreme."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from cairn.errors import InputError, ParameterError
from cairn.metrics.evaluate import score_ranking
from cairn.readout import ReadoutParameters
from cairn.readout.grid import Cell, extremes, grid_cells, measure, record
from cairn.readout.show import print_grid
from cairn.store.descriptors import MISSING, open_shard, write_shard
from cairn.systems.ranking import search
from cairn.systems.readout import make_readout
from tests.systems.conftest import GALLERY, QUERIES, TRAINING, Town, town  # noqa: F401 - a fixture


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Path]:
    """Descriptors of two systems, in which some queries find their images, and of training images."""
    folders = {}
    for seed, name in enumerate(("document", "query")):
        generator = np.random.default_rng(seed)
        centre = generator.standard_normal(16)
        images = generator.standard_normal((GALLERY, 16)) + centre
        near = images[:QUERIES] + (seed + 1) * generator.standard_normal((QUERIES, 16))
        training = generator.standard_normal((TRAINING, 16)) + centre
        for part, ids, rows in (
            ("images", [f"g{n:02d}" for n in range(GALLERY)], images),
            ("training", [f"t{n:02d}" for n in range(TRAINING)], training),
        ):
            folder = tmp_path / f"{name}-{part}"
            folder.mkdir()
            write_shard(folder / "0000.parquet", ids, _unit(rows), {"encoder": name})
            folders[f"{name}-{part}"] = folder
        ids = [f"q{n}" for n in range(QUERIES)]
        write_shard(folders[f"{name}-images"] / "queries.parquet", ids, _unit(near), {}, id_column="query_id")
    return folders


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16)


def cells(**changes: Any) -> list[Cell]:
    settings: dict[str, Any] = {
        "systems": ["document", "query"],
        "controls": [],
        "dimensions": [8, None],
        "centres": ["none", "gallery"],
        "whitenings": [None],
    }
    return grid_cells(**settings | changes)


def measured(town: Town, stored: dict[str, Path], chosen: list[Cell]):  # noqa: F811
    return [
        measure(
            cell,
            stored[f"{cell.system}-images"],
            stored[f"{cell.system}-training"],
            town.manifest,
            town.truth,
            "revisitop",
            20,
        )
        for cell in chosen
    ]


def test_a_grid_is_the_product_of_its_axes():
    assert [cell.name for cell in cells()] == [
        "document/dim8",
        "document/dim8-centred.gallery",
        "document/plain",
        "document/centred.gallery",
        "query/dim8",
        "query/dim8-centred.gallery",
        "query/plain",
        "query/centred.gallery",
    ]
    white = cells(systems=["query"], dimensions=[None], whitenings=[None, {"source": "training"}])
    assert [cell.name for cell in white] == [
        "query/plain",
        "query/centred.gallery",
        "query/whitened.training",
    ]
    control = cells(systems=["query"], controls=["document"])
    assert [cell.control for cell in control] == [False] * 4 + [True] * 4
    with pytest.raises(ParameterError, match="a system and as a control"):
        cells(controls=["query"])
    with pytest.raises(ParameterError, match="query/plain is asked for twice"):
        cells(systems=["query", "query"], dimensions=[None], centres=["none"])


@pytest.mark.parametrize(
    ("readout", "options"),
    [
        ({}, {"dimensions": [None], "centres": ["none"]}),
        ({"dimension": 8, "centre": "training"}, {"dimensions": [8], "centres": ["training"]}),
        (
            {"whiten": {"source": "gallery", "dimension": 5}},
            {
                "dimensions": [None],
                "centres": ["none"],
                "whitenings": [{"source": "gallery", "dimension": 5}],
            },
        ),
    ],
)
def test_a_cells_numbers_are_those_of_a_run_with_its_read_out(
    town: Town,  # noqa: F811
    stored: dict[str, Path],
    tmp_path: Path,
    readout: dict[str, Any],
    options: dict[str, Any],
):
    found = measured(town, stored, cells(systems=["query"], **options))
    assert len(found) == 1
    outputs = {name: tmp_path / name for name in ("readout", "ranking")}
    for folder in outputs.values():
        folder.mkdir()
    make_readout(stored["query-images"], stored["query-training"], readout, outputs["readout"])
    search(
        stored["query-images"],
        town.manifest,
        town.truth,
        {"top": 20},
        outputs["ranking"],
        readout=outputs["readout"],
    )
    table = pq.read_table(outputs["ranking"] / "ranking.parquet")
    expected = score_ranking(table, town.truth, "revisitop", GALLERY)
    assert found[0].rows == {(r.slice, r.metric): r for r in expected.rows if r.value is not None}
    stage = json.loads((outputs["ranking"] / "ranking.json").read_text())["stage"]
    learned = readout.get("whiten", {}).get("source")
    assert stage == ("global-whitened.gallery" if learned == "gallery" else "global")


@pytest.mark.parametrize("source", ["training", "gallery"])
def test_a_cell_knows_of_missing_images_and_queries(
    town: Town,  # noqa: F811
    stored: dict[str, Path],
    tmp_path: Path,
    source: str,
):
    folder, training = stored["query-images"], stored["query-training"]
    for path, id_column, gone in (
        (folder / "0000.parquet", "image_id", ["g02", "g38"]),
        (folder / "queries.parquet", "query_id", ["q3"]),
        (training / "0000.parquet", "image_id", ["t01"]),
    ):
        store = open_shard(path, id_column)
        rows = store.array()
        rows[store.rows_of(gone)] = 0
        about = store.metadata | {MISSING: json.dumps(dict.fromkeys(gone, "truncated"))}
        write_shard(path, store.ids, rows, about, id_column=id_column)
    # Even spaces over all training images would be others than over those that are there.
    readout = {"whiten": {"source": source, "images": 6, "dimension": 4}}
    cell = Cell("query", ReadoutParameters.model_validate(readout))
    [found] = [measure(cell, folder, training, town.manifest, town.truth, "micro-ap", 20)]
    for name in ("readout", "ranking"):
        (tmp_path / name).mkdir()
    make_readout(folder, training, readout, tmp_path / "readout")
    search(folder, town.manifest, town.truth, {"top": 20}, tmp_path / "ranking", readout=tmp_path / "readout")
    table = pq.read_table(tmp_path / "ranking" / "ranking.parquet")
    expected = score_ranking(table, town.truth, "micro-ap", GALLERY)
    assert found.rows == {(r.slice, r.metric): r for r in expected.rows}
    known = score_ranking(table.replace_schema_metadata({}), town.truth, "micro-ap", GALLERY)
    assert known.value("all", "micro-ap") != expected.value("all", "micro-ap"), "or nothing is shown"


def test_extremes_leave_controls_out_and_the_record_says_that_it_is_a_selection(
    town: Town,  # noqa: F811
    stored: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
):
    found = measured(town, stored, cells(systems=["query"], controls=["document"]))
    values = {one.cell.name: one.rows["medium", "map"].value for one in found}
    best, worst = extremes(found)["medium", "map"]
    own = {name: value for name, value in values.items() if name.startswith("query/")}
    assert max(values, key=lambda name: values[name] or 0).startswith("document/"), "or it would show nothing"
    assert values[best] == max(own.values())  # type: ignore[type-var]
    assert values[worst] == min(own.values())  # type: ignore[type-var]
    text = record(found)
    assert text["selection"] is True
    assert text["cells"] == 4
    end = next(end for end in text["extremes"] if (end["slice"], end["metric"]) == ("medium", "map"))
    assert end["strongest"] == {"cell": best, "value": values[best]}
    assert end["control"]["value"] == max(value for name, value in values.items() if name not in own)  # type: ignore[type-var]

    from rich.console import Console

    print_grid({"benchmark": "town", **text}, Console(width=200))
    printed = capsys.readouterr().out
    assert "controls, outside the protocol" in printed
    assert f"M: strongest of 4 {100 * (values[best] or 0):.1f} ({best})" in printed
    assert "A selection" in printed
    assert "* learned from the gallery" in printed
    assert "query/dim8-centred.gallery *" in printed


def test_a_cell_that_learns_on_training_images_needs_them(town: Town, stored: dict[str, Path]):  # noqa: F811
    cell = cells(systems=["query"], dimensions=[None], centres=["training"])[0]
    with pytest.raises(InputError, match="no training descriptors"):
        measure(cell, stored["query-images"], None, town.manifest, town.truth, "revisitop", 20)
