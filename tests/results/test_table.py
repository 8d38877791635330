"""The results table: same bytes in any order, refused when damaged."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.errors import ArtifactError, CairnError
from cairn.files import dvc_digest
from cairn.results import NumberName, Result, collect_results, read_results, write_metrics, write_results
from cairn.results.table import results_schema


def rows(count: int = 12, system: str = "s") -> list[Result]:
    generator = random.Random(count)
    return [
        Result(
            NumberName("toytown", system, "-", "-", "global", piece, f"m{index}"),
            generator.random(),
            50,
            1480,
            low=0.1 if index % 2 else None,
            high=0.9 if index % 2 else None,
            source_artifact="artifacts/scores/toytown/s",
            source_md5="0" * 32 + ".dir",
        )
        for index in range(count // 3)
        for piece in ("easy", "medium", "hard")
    ]


def test_rows_come_back_exactly_sorted_by_name(tmp_path):
    write_results(tmp_path / "r.parquet", rows())
    found = read_results(tmp_path / "r.parquet")
    assert found == sorted(rows(), key=lambda row: row.name)


def test_what_a_number_was_computed_from_comes_back(tmp_path):
    from dataclasses import replace

    given = [
        replace(row, computed_from=("artifacts/a", "artifacts/b")[: n % 3]) for n, row in enumerate(rows())
    ]
    write_results(tmp_path / "results.parquet", given)
    assert read_results(tmp_path / "results.parquet") == sorted(given, key=lambda row: row.name)


def test_any_order_gives_the_same_bytes(tmp_path):
    shuffled = rows()
    random.Random(0).shuffle(shuffled)
    write_results(tmp_path / "a.parquet", rows())
    write_results(tmp_path / "b.parquet", shuffled)
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_no_rows_are_a_table_too(tmp_path):
    write_results(tmp_path / "r.parquet", [])
    assert read_results(tmp_path / "r.parquet") == []
    assert pq.read_schema(tmp_path / "r.parquet").names == results_schema().names


def test_two_rows_with_one_name_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ArtifactError, match="two rows are called"):
        write_results(tmp_path / "r.parquet", [*rows(), rows()[0]])
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_is_no_number_is_refused():
    with pytest.raises(ArtifactError, match="nan"):
        Result(NumberName("t", "s", "-", "-", "global", "hard", "map"), float("nan"), 1, 1)


def test_missing_table_says_how_to_get_it(tmp_path):
    with pytest.raises(ArtifactError, match="cairn run"):
        read_results(tmp_path / "none.parquet")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet", b"PAR1" + bytes(100) + b"PAR1"])
def test_a_damaged_table_is_one_clear_line(tmp_path, content):
    (tmp_path / "r.parquet").write_bytes(content)
    with pytest.raises(ArtifactError, match="not a readable Parquet file"):
        read_results(tmp_path / "r.parquet")


def test_a_missing_column_and_a_wrong_type_are_named(tmp_path):
    write_results(tmp_path / "r.parquet", rows())
    table = pq.read_table(tmp_path / "r.parquet")
    pq.write_table(table.drop_columns(["value"]), tmp_path / "a.parquet")
    with pytest.raises(ArtifactError, match="value"):
        read_results(tmp_path / "a.parquet")
    wrong = table.set_column(table.column_names.index("value"), "value", pa.array(["x"] * len(table)))
    pq.write_table(wrong, tmp_path / "b.parquet")
    with pytest.raises(ArtifactError, match="value"):
        read_results(tmp_path / "b.parquet")


def test_a_name_with_a_path_in_it_is_refused_on_reading(tmp_path):
    write_results(tmp_path / "r.parquet", rows())
    table = pq.read_table(tmp_path / "r.parquet")
    hostile = table.set_column(1, table.schema.field(1), pa.array(["../../etc"] * len(table)))
    pq.write_table(hostile, tmp_path / "h.parquet")
    with pytest.raises(CairnError, match="cannot be part of a number's name"):
        read_results(tmp_path / "h.parquet")


def test_collecting_adds_path_and_hash_of_the_scores(tmp_path):
    folder = tmp_path / "artifacts/scores/toytown/s"
    write_results(folder / "scores.parquet", rows())
    found = collect_results(tmp_path)
    assert len(found) == len(rows())
    assert {row.source_artifact for row in found} == {"artifacts/scores/toytown/s"}
    assert {row.source_md5 for row in found} == {dvc_digest(folder)}


def test_scores_of_another_run_in_the_wrong_folder_are_refused(tmp_path):
    write_results(tmp_path / "artifacts/scores/toytown/other/scores.parquet", rows())
    with pytest.raises(ArtifactError, match="only numbers of toytown/other"):
        collect_results(tmp_path)


def test_metrics_hold_the_same_values_and_say_what_is_synthetic(tmp_path):
    more = Result(NumberName("real", "net", "decon", "0", "ames-k100-l0.5", "hard", "map"), 0.25, 70, 100)
    write_metrics(tmp_path / "m.json", [*rows(), more], synthetic=["toytown"])
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert metrics["real"] == {"net/decon/0": {"ames-k100-l0.5": {"hard": {"map": 0.25}}}}
    assert set(metrics) == {"real", "toytown (synthetic)"}
    for row in rows():
        assert metrics["toytown (synthetic)"]["s"]["global"][row.name.slice][row.name.metric] == row.value
