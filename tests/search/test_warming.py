"""After the warming up nothing is left to compile, and the search finds what it finds without it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cairn.search.exact import exact_search
from cairn.search.warming import ROWS, warm_up
from cairn.store.descriptors import write_shard
from tests.search.test_exact import Matrix, whole_numbers

PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from cairn.search import counting, products
from cairn.search.exact import exact_search
from cairn.search.warming import warm_up
from cairn.store.descriptors import open_shards

def compiled():
    found = {}
    for module in (counting, products):
        for name, function in vars(module).items():
            if hasattr(function, "signatures"):
                found[name] = list(map(str, function.signatures))
    return found

gallery = open_shards(Path(sys.argv[1]))
queries = np.ones((3, gallery.dim), sys.argv[2])
before = compiled()
warm_up(queries, gallery, np.arange(len(gallery)))
warm = compiled()
assert not any(before.values())
assert {"all_finite", "count", "keep", "ranks", "gather"} <= {name for name in warm if warm[name]}, warm
exact_search(queries, gallery, np.arange(len(gallery)), 10, [np.array([3, 90]), np.zeros(0, np.int64), np.array([0])])
assert compiled() == warm, {name: (warm[name], now) for name, now in compiled().items() if now != warm[name]}
"""


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_search_after_it_compiles_nothing(tmp_path: Path, kind: str):
    rows = whole_numbers(np.random.default_rng(0), 2 * ROWS, 8)
    names = [f"{n:03}" for n in range(len(rows))]
    write_shard(tmp_path / "0000.parquet", names, rows.astype(kind), {})
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path), kind], check=True, timeout=300)


def test_first_use_is_announced_once(tmp_path: Path, monkeypatch, capsys):
    from cairn.search import counting

    class Fresh:
        class stats:
            cache_path = str(tmp_path)

        def __call__(self, *arguments):
            return count(*arguments)

    count = counting.count
    monkeypatch.setattr(counting, "count", Fresh())
    rows = whole_numbers(np.random.default_rng(0), 5, 4)
    warm_up(rows[:2], Matrix(rows), np.arange(5))
    assert "compiling the search" in capsys.readouterr().err
    (tmp_path / "counting.count-1.py3.nbi").touch()
    warm_up(rows[:2], Matrix(rows), np.arange(5))
    assert capsys.readouterr().err == ""


def test_what_is_not_finite_is_left_to_the_search():
    from cairn.search.exact import NotFiniteError

    rows = whole_numbers(np.random.default_rng(0), 5, 4)
    rows[1, 0] = np.inf
    queries = np.ones((2, 4), np.float16)
    warm_up(queries, Matrix(rows), np.arange(5))
    with pytest.raises(NotFiniteError, match="gallery row 1"):
        exact_search(queries, Matrix(rows), np.arange(5), 1, [np.zeros(0, np.int64)] * 2)


def test_nothing_to_search_is_nothing_to_warm():
    rows = np.ones((3, 4), np.float16)
    warm_up(rows[:0], Matrix(rows), np.arange(3))
    warm_up(rows, Matrix(rows[:0]), np.arange(0))
