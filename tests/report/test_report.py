"""What the page holds, without a browser: the same bytes anywhere, numbers from the table, curves that add up."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.card.published import published_rows
from cairn.errors import ArtifactError, LineageError
from cairn.lineage.graph import load_numbers
from cairn.report.board import build_boards
from cairn.report.figures import benchmark_figures
from cairn.report.page import TEMPLATES, build_report
from cairn.report.plots import TABLES, plot_tables, query_values
from cairn.report.queries import choose_queries, query_galleries
from cairn.results import write_results
from cairn.results.table import RESULTS_PATH


def test_a_clone_elsewhere_gives_the_same_bytes(project: Path, page: Path, tmp_path: Path):
    shutil.copytree(project, tmp_path / "another place/cairn", ignore=shutil.ignore_patterns("report.html"))
    again = build_report(tmp_path / "another place/cairn")
    assert again == page.read_text("utf-8")
    assert str(project) not in again


def test_nothing_is_loaded_from_outside(page: Path):
    text = page.read_text("utf-8")
    html = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert not re.findall(r"(?:src|href)=[\"']?(?:https?:)?//", html)
    assert "default-src 'none'" in html and "url(" not in html


def test_pictures_keep_to_their_budget(project: Path):
    runs = [("town", "second"), ("copies", "first")]
    shown, pictures, notes = query_galleries(project, runs, 20_000)
    assert sum(len(data) for data in pictures.values()) <= 20_000
    assert set(shown) == set(runs) and notes == []  # each run has its turn
    everything, _, _ = query_galleries(project, runs, 10_000_000)
    assert len(everything[runs[0]]) > len(shown[runs[0]])


def test_images_that_are_gone_are_a_note_without_a_path_of_this_machine(project: Path, tmp_path: Path):
    shutil.copytree(project, tmp_path / "cairn")
    shutil.rmtree(tmp_path / "cairn/artifacts/town/sources/images")
    shown, _, notes = query_galleries(tmp_path / "cairn", [("town", "second")], 1_000_000)
    assert shown == {} and notes[0].startswith("town/second: no pictures")
    assert str(tmp_path) not in notes[0]


def test_a_ranking_that_is_gone_is_a_note(project: Path, tmp_path: Path):
    shutil.copytree(project, tmp_path / "cairn")
    shutil.rmtree(tmp_path / "cairn/artifacts/town/second/ranking")
    shown, _, notes = query_galleries(
        tmp_path / "cairn", [("town", "second"), ("roxford5k", "dinov2-l")], 10**6
    )
    assert shown == {} and notes == ["town/second: no queries, since its ranking is not here (`dvc pull`)"]


def test_published_rows_and_seed_means_stand_in_the_board(project: Path):
    numbers = load_numbers(project)
    board = build_boards(numbers, published_rows())["roxford5k-1m"][0]
    kinds = [line.kind for line in board.lines]
    assert kinds.count("published") == 6 and kinds.count("seed") == 6 and kinds.count("mean") == 2
    telling = [line.cells[board.telling].sort for line in board.lines if line.cells[board.telling]]
    assert telling == sorted(telling, reverse=True)
    mean = next(line for line in board.lines if line.kind == "mean" and not line.first)
    cell = mean.cells[board.telling]
    assert cell is not None and len(cell.numbers) == 3 and cell.best
    assert cell.sort == pytest.approx(100 * sum(numbers[place].value for place in cell.numbers) / 3)


def test_the_precision_recall_curve_ends_at_micro_ap(project: Path):
    """µAP is the sum of the precision at each true prediction, over the pairs that exist: the curve's own points."""
    tables = plot_tables(project, load_numbers(project))
    points = [row for row in tables["precision-recall"] if row["series"] == "second"]
    pairs = round(len(points) / (max(row["recall"] for row in points) / 100))
    value = sum(row["precision"] for row in points) / pairs
    recorded = next(r for r in tables["slices"] if r["benchmark"] == "copies" and r["series"] == "second")
    assert value == pytest.approx(recorded["value"], abs=0.01)


def test_t_map_is_the_mean_of_its_curve(project: Path):
    numbers = load_numbers(project)
    points = [r for r in plot_tables(project, numbers)["thresholds"] if r["series"] == "first"]
    number = next(n for n in numbers if str(n.name) == "flat/first/-/-/global/overall/t-map@1")
    assert len(points) == 11
    assert sum(row["value"] for row in points) / 11 == pytest.approx(100 * number.value, abs=0.01)


def test_gains_are_later_values_minus_first_ones(project: Path):
    values, metric, piece = query_values(project / "artifacts/scores/town/second/per_query.parquet")
    assert (metric, piece) == ("map", "hard")
    wanted = sorted(100 * (values["geometry-k100"][q] - values["global"][q]) for q in values["global"])
    rows = [
        r["gain"] for r in plot_tables(project, load_numbers(project))["gains"] if r["benchmark"] == "town"
    ]
    assert rows == pytest.approx(wanted, abs=0.001)


def test_every_table_has_the_columns_it_says_and_every_protocol_its_figures(project: Path):
    tables = plot_tables(project, load_numbers(project))
    assert set(tables) == set(TABLES)
    for name, rows in tables.items():
        assert rows, name
        assert all(list(row) == list(TABLES[name].columns) for row in rows)
    titles = {
        name: [f.id.split("-")[0] for f in benchmark_figures(name, tables)]
        for name in ("town", "copies", "flat", "kinds", "roxford5k")
    }
    assert titles == {
        "town": ["slices", "gains", "tail", "tail"],
        "copies": ["slices", "precision"],
        "flat": ["slices", "thresholds", "gains"],
        "kinds": ["slices", "slices", "gains"],
        "roxford5k": ["slices", "gallery", "seeds"],
    }


def test_queries_are_chosen_by_what_they_tell():
    values = {
        "global": {"a": 0.9, "b": 0.5, "c": 0.1, "d": 0.8},
        "geometry-k100": {"a": 0.2, "b": 0.9, "c": 0.1, "d": 0.8},
    }
    chosen = {query: reason for reason, query in choose_queries(values, ["a", "b", "c", "d"])}
    assert chosen["c"] == "worst failure"
    assert chosen["b"].startswith("gains most") and chosen["a"].startswith("loses most")
    assert choose_queries({}, ["a"]) == []


def test_a_number_without_a_way_back_is_not_shown(project: Path, tmp_path: Path):
    shutil.copytree(project, tmp_path / "cairn")
    rows = load_numbers(project)
    write_results(
        tmp_path / "cairn" / RESULTS_PATH, [replace(rows[0], source_artifact="artifacts/gone"), *rows[1:]]
    )
    with pytest.raises(LineageError, match="no stage that made it"):
        build_report(tmp_path / "cairn")
    write_results(tmp_path / "cairn" / RESULTS_PATH, [])
    with pytest.raises(ArtifactError, match="no numbers yet"):
        build_report(tmp_path / "cairn")


def test_the_lineage_in_the_page_is_that_of_trace(project: Path, page: Path):
    text = page.read_text("utf-8")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    data = json.loads(found[1])
    for name in (
        "town/second/-/-/geometry-k100/hard/map",
        "town/second/-/-/global/hard/map",
        "town/first/-/-/global/easy/map",
        "copies/second/-/-/global/all/micro-ap",
        "roxford5k/dinov2-l/decon/0/global/hard/map",
    ):
        _same_lineage(project, data, name)


def _same_lineage(project: Path, data: dict, name: str) -> None:
    from cairn.lineage.tracing import trace

    row = next(row for row in data["numbers"] if "/".join(row[:7]) == name)
    wanted = trace(project, name)
    assert row[7] == wanted.result.value and row[14] == wanted.result.source_md5
    artifacts = data["lineage"]["artifacts"]
    way = data["lineage"]["ways"][row[17]]
    own = artifacts[way["artifact"]]
    first = [origin for item in own["inputs"] if item[0] in way["inputs"] for origin in item[2]]
    seen, waiting = {way["artifact"]}, first
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            waiting += [origin for item in artifacts[place]["inputs"] for origin in item[2]]
    assert {artifacts[place]["path"]: artifacts[place]["md5"] for place in seen} == {
        path: artifact.md5 for path, artifact in wanted.artifacts.items()
    }


def test_options_around_the_search_make_no_second_stage(project: Path, tmp_path: Path):
    """A first stage may be called `global-aqe-n10`: its line, curves and gains are those of a first stage."""
    copied = tmp_path / "cairn"
    shutil.copytree(project, copied)
    base, scores = copied / "artifacts/town/second", copied / "artifacts/scores/town/second"
    renamed = {"global": "global-aqe-n10", "geometry-k100": "geometry-k100-on-aqe-n10"}
    for file in (base / "ranking/ranking.json", base / "reranking/reranking.json"):
        facts = json.loads(file.read_text())
        file.write_text(json.dumps({**facts, "stage": renamed[facts["stage"]]}))
    table = pq.read_table(scores / "per_query.parquet")
    stages = pa.array([renamed[stage] for stage in table.column("stage").to_pylist()])
    place = table.schema.get_field_index("stage")
    pq.write_table(table.set_column(place, "stage", stages), scores / "per_query.parquet")
    numbers = [
        replace(row, name=replace(row.name, stage=renamed[row.name.stage]))
        if (row.name.benchmark, row.name.system) == ("town", "second") and row.name.stage in renamed
        else row
        for row in load_numbers(copied)
    ]
    lines = {(line.system, line.stage): line for line in build_boards(numbers, [])["town"][0].lines}
    assert lines["second", "first ranking (aqe-n10)"].first
    assert not next(line for (system, stage), line in lines.items() if "geometric" in stage).first
    tables = plot_tables(copied, numbers)
    assert {"second (aqe-n10)"} < {row["series"] for row in tables["slices"] if row["benchmark"] == "town"}
    before = [row["gain"] for row in plot_tables(project, load_numbers(project))["gains"]]
    assert [row["gain"] for row in tables["gains"]] == before != []
    galleries, _, _ = query_galleries(copied, [("town", "second")], 10**7)
    assert galleries["town", "second"][0].strips[0].stage == "first ranking (aqe-n10)"
    assert all(strip.value for shown in galleries["town", "second"] for strip in shown.strips)


def test_every_library_in_the_page_stands_in_its_notices():
    """vl-convert carries each JavaScript library under the address that it was taken from."""
    import vl_convert

    (binary,) = Path(vl_convert.__file__).parent.glob("vl_convert*.so")
    found = re.findall(rb"/npm/([a-z][a-z0-9.-]*)@[0-9.]+/\+esm", binary.read_bytes())
    names = {name.decode() for name in found}
    assert {"vega", "vega-lite", "vega-embed", "d3-array"} <= names
    listed = set(re.findall(r"[a-z][a-z0-9.-]*", (TEMPLATES / "notices.txt").read_text("utf-8")))
    assert names <= {name.rstrip(".") for name in listed}
