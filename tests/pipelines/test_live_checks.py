"""Asset checks in a live Dagster instance: what is wrong is named, and nothing below it is made."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cairn.results import read_results, write_results
from cairn.store.descriptors import open_shard, write_shard
from tests.pipelines.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
RUNS = Path(__file__).with_name("dagster_runs.py")
OWN = "toytown/rootsift-vlad"
SHARD = f"artifacts/{OWN}/descriptors/0000.parquet"


class Live:
    """A project, and a process that runs assets and checks in its Dagster instance."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._log = (project.root / "runs.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(RUNS)],
            cwd=project.root,
            env=project.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def run(self, *assets: str, checks_only: bool = False) -> dict:
        """What came of a run of these assets with their checks."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"select": assets, "checks_only": checks_only}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self.project.root / "runs.log").read_text("utf-8")[-3000:]
        return json.loads(line)

    def checked(self, asset: str) -> dict[str, dict]:
        """Check → what it says of an asset as it lies there."""
        found = self.run(asset, checks_only=True)
        assert found["made"] == []
        return {name.removeprefix(f"{asset}:"): check for name, check in found["checks"].items()}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def live(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One project for all tests here: each puts back what it changed."""
    live = Live(made.copy(tmp_path_factory.mktemp("live") / "project"))
    yield live
    live.close()


@pytest.fixture
def kept(live: Live) -> Iterator[Callable[[str], Path]]:
    """Gives a folder of the project that a test may change; afterwards it is as it was."""
    copies: dict[Path, Path] = {}

    def keep(name: str) -> Path:
        folder = live.project.root / name
        copies[folder] = folder.with_name("kept")
        shutil.copytree(folder, copies[folder])
        return folder

    yield keep
    for folder, copy in copies.items():
        shutil.rmtree(folder)
        copy.rename(folder)


def rewritten(path: Path, change: Callable[[list[str], np.ndarray, dict], None]) -> None:
    """A shard written again after `change` has had its hands on ids, descriptors and metadata."""
    store = open_shard(path)
    ids, array, about = list(store.ids), np.concatenate(list(store.blocks())), dict(store.metadata)
    change(ids, array, about)
    write_shard(path, ids, array[: len(ids)], about)


def lost(ids, array, about):
    ids.pop()


def stretched(ids, array, about):
    array[3] *= 1.02


def alike(ids, array, about):
    array[:] = array[0]


def shifted(ids, array, about):
    array[:] = np.roll(array, 1, axis=0)


def foreign(ids, array, about):
    about["encoder"] = "colour-histogram"


def broken(path: Path) -> None:
    """One number that is not: the writer refuses such, a damaged disk does not."""
    first = open_shard(path).take(np.array([0]))[0]
    data = path.read_bytes()
    place = data.index(first.tobytes())
    path.write_bytes(data[:place] + np.array([np.nan], np.float16).tobytes() + data[place + 2 :])


def test_what_lies_there_is_sound(live: Live):
    found = live.checked(f"{OWN}/descriptors")
    assert set(found) == {"content_matches_lock", "descriptors_are_sound"}
    assert all(check["passed"] for check in found.values()), found


@pytest.mark.parametrize(
    ("change", "name", "says"),
    [
        (lost, "counts", "no descriptor of 1, first image "),
        (stretched, "unit_norms", "1 farther than 0.002 from 1, first image "),
        (alike, "duplicates", "images have the descriptor of an image of another content (first: "),
        (shifted, "fresh_sample", "described again: least cosine 0."),
        (foreign, "metadata", "image files: encoder is 'colour-histogram', not 'rootsift-vlad'"),
        (None, "finite", "1 not finite, first image "),
    ],
    ids=["lost", "stretched", "alike", "shifted", "foreign", "nan"],
)
def test_a_corrupted_descriptor_is_named(live: Live, kept, change, name: str, says: str):
    path = kept(f"artifacts/{OWN}/descriptors") / Path(SHARD).name
    if change is None:
        broken(path)
    else:
        rewritten(path, change)
    found = live.checked(f"{OWN}/descriptors")
    assert not found["content_matches_lock"]["passed"]
    sound = found["descriptors_are_sound"]
    assert not sound["passed"] and sound["severity"] == "ERROR"
    assert sound["said"][name].startswith("FAILED: ") and says in sound["said"][name], sound["said"]


@pytest.mark.parametrize("damage", ["truncated", "emptied", "replaced", "gone"])
def test_a_file_that_cannot_be_read_is_a_finding(live: Live, kept, damage: str):
    path = kept(f"artifacts/{OWN}/descriptors") / Path(SHARD).name
    if damage == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(
            {"truncated": data[: len(data) // 2], "emptied": b"", "replaced": b"?" * 5000}[damage]
        )
    found = live.checked(f"{OWN}/descriptors")
    assert not found["content_matches_lock"]["passed"]
    sound = found["descriptors_are_sound"]
    assert not sound["passed"] and f"{OWN}/descriptors" in sound["said"]["error"]


def test_scores_out_of_range_and_rankings_with_holes_are_named(live: Live, kept):
    path = kept(f"artifacts/scores/{OWN}") / "scores.parquet"
    rows = read_results(path)
    write_results(path, [replace(rows[0], value=1.2), *rows[1:]])
    found = live.checked(f"{OWN}/scores")
    assert not found["content_matches_lock"]["passed"] and not found["score_ranges"]["passed"]
    assert "is 1.2: a fraction lies between 0 and 1" in found["score_ranges"]["said"]["problem"]
    path = kept(f"artifacts/{OWN}/ranking") / "ranking.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.slice(table.num_rows // 2), path)
    found = live.checked(f"{OWN}/ranking")
    assert not found["counts"]["passed"] and not found["content_matches_lock"]["passed"]


MINE = """
from cairn.encoders import colour_histogram

class Mine(colour_histogram.ColourHistogram):
    factor = 1

    def describe(self, prepared, learned):
        return self.factor * super().describe(prepared, learned)

def make(parameters):
    mine = Mine(colour_histogram.Parameters())
    object.__setattr__(mine, "factor", parameters["factor"])
    return mine
"""


def test_nothing_is_made_of_descriptors_that_fail(live: Live):
    project, own = live.project, "toytown/mine"
    (project.root / "mine.py").write_text(MINE, "utf-8")
    parameters = project.parameters()
    parameters["systems"]["mine"] = {"encoder": "python:mine:make", "factor": 2}
    parameters["runs"]["toytown-mine"] = {"benchmark": "toytown", "system": "mine"}
    project.write_parameters(parameters)
    project.cairn("generate")
    assert live.run(f"{own}/vocabulary", f"{own}/training_descriptors")["success"]
    chain = [f"{own}/{step}" for step in ("descriptors", "readout", "ranking")]
    found = live.run(*chain)
    assert not found["success"] and found["made"] == [chain[0]]
    check = found["checks"][f"{chain[0]}:descriptors_are_sound"]
    assert "FAILED: 67 farther than 0.002 from 1, first image " in check["said"]["unit_norms"], check
    assert found["checks"][f"{chain[0]}:content_matches_lock"]["passed"]  # they are what the encoder made
    assert not (project.root / "artifacts" / own / "readout").exists()
    parameters["systems"]["mine"]["factor"] = 1
    project.write_parameters(parameters)
    found = live.run(*chain)
    assert found["success"] and found["made"] == sorted(chain)
    assert all(check["passed"] for check in found["checks"].values())


def test_another_metric_is_a_warning_that_blocks_nothing(live: Live):
    parameters = live.project.parameters()
    parameters["benchmarks"]["toytown"]["metric"] = "map"
    live.project.write_parameters(parameters)
    found = live.run(f"{OWN}/scores", "results")
    check = found["checks"][f"{OWN}/scores:protocol_audit"]
    assert (check["passed"], check["severity"]) == (False, "WARN")
    assert check["said"]["problem"] == "scored by map; the benchmark's own protocol is revisitop"
    assert found["success"] and "results" in found["made"]
