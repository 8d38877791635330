"""Dagster, `cairn status` and DVC name the same stale assets after every kind of change, and nothing else runs."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from assets.step import steps
from cairn.files import file_digest
from tests.pipelines.project import Project

VERDICTS = Path(__file__).with_name("dagster_verdicts.py")
pytestmark = pytest.mark.slow
STEPS = [name for name, step in steps().items() if not step.of_heads]
"""The steps of a project without heads; those of heads are tested in `test_heads.py`."""


class Watched:
    """A project, and a process that says what the three call stale."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._log = (project.root / "verdicts.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(VERDICTS)],
            cwd=project.root,
            env=project.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def agreed(self) -> set[str]:
        """The stale assets, once all three have said the same."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("?\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, (self.project.root / "verdicts.log").read_text("utf-8")[-3000:]
        said = json.loads(line)
        assert said["dvc"] == said["cairn"] == said["dagster"]
        return set(said["dvc"])

    def edit(self, file: str, change: Callable[[str], str]) -> Callable[[], object]:
        """Change a file; calling the result puts the old content back."""
        path = self.project.root / file
        before = path.read_text("utf-8")
        after = change(before)
        assert after != before, f"{file}: the edit changed nothing"
        path.write_text(after, "utf-8")
        return lambda: path.write_text(before, "utf-8")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def watched(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One project for all tests here: each puts back what it changed."""
    project = made.copy(tmp_path_factory.mktemp("watched") / "project")
    images = project.root / "photos"
    images.mkdir()
    for number, picture in enumerate(sorted(project.root.glob("artifacts/scores/*/*/gallery.png"))):
        shutil.copy2(picture, images / f"{number}.png")
    watched = Watched(project)
    yield watched
    watched.close()


def names(assets: set[str]) -> set[str]:
    return {asset.split("/")[-1] for asset in assets}


def test_all_is_fresh_after_a_run(watched: Watched):
    assert watched.agreed() == set()
    assert watched.project.repro() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_change_in_one_step_makes_that_step_stale_alone(watched: Watched, step: str):
    undo = watched.edit(f"assets/{step}.py", lambda text: text + "\n_UNUSED = 1\n")
    try:
        assert names(watched.agreed()) == {step}
    finally:
        undo()
    # That this is fresh again shows in the next test: it expects its own step and no other.


@pytest.mark.parametrize(
    ("section", "name", "key", "value", "stale"),
    [
        ("systems", "rootsift-vlad", ("rerank", "geometry", "weight"), 0.5, {"reranking"}),
        ("systems", "rootsift-vlad", ("search", "top"), 7, {"ranking"}),
        (
            "systems",
            "rootsift-vlad",
            ("vocabulary", "words"),
            8,
            {"vocabulary", "descriptors", "training_descriptors", "reranker_training", "local"},
        ),
        ("benchmarks", "toytown", ("metric",), "map", {"scores"}),
        ("benchmarks", "toytown", ("seed",), 1, {"sources", "manifest", "ground_truth", "contamination"}),
    ],
)
def test_a_parameter_makes_its_steps_stale(watched: Watched, section, name, key, value, stale):
    project = watched.project
    before = (project.root / "params.yaml").read_text("utf-8")
    parameters = project.parameters()
    entry = parameters[section][name]
    for part in key[:-1]:
        entry = entry.setdefault(part, {})
    entry[key[-1]] = value
    project.write_parameters(parameters)
    try:
        found = names(watched.agreed())
    finally:
        (project.root / "params.yaml").write_text(before, "utf-8")
    assert found == stale


def test_all_is_fresh_once_everything_is_put_back(watched: Watched):
    assert watched.agreed() == set()


def test_a_run_after_a_change_brings_all_three_back(watched: Watched):
    undo = watched.edit("assets/ranking.py", lambda text: text + "\n_UNUSED = 2\n")
    ran = watched.project.repro()
    assert ran == ["code", "ranking@toytown-rootsift-vlad"], (
        "the ranking came out the same, so nothing below it runs"
    )
    assert watched.agreed() == set()
    undo()
    assert names(watched.agreed()) == {"ranking"}
    watched.project.repro()
    assert watched.agreed() == set()


def test_a_comment_or_a_docstring_reruns_the_digests_and_nothing_else(watched: Watched):
    undo = watched.edit(
        "cairn/files.py", lambda text: text.replace('"""Files that', '# a comment\n"""Some files that', 1)
    )
    assert watched.project.repro() == ["code"]
    assert watched.agreed() == set()
    undo()
    assert watched.agreed() == set()


def test_a_shared_helper_makes_all_its_users_stale_and_no_one_else(watched: Watched):
    undo = watched.edit("cairn/metrics/evaluate.py", lambda text: text + "\n_UNUSED = 1\n")
    try:
        # The plots that `results` writes come from the same definitions.
        assert names(watched.agreed()) == {"scores", "results"}
    finally:
        undo()
    undo = watched.edit("cairn/files.py", lambda text: text + "\n_UNUSED = 1\n")
    assert names(watched.agreed()) == set(STEPS)
    undo()
    assert watched.agreed() == set()


def test_an_encoder_nobody_uses_changes_nothing(watched: Watched):
    module = watched.project.root / "cairn" / "encoders" / "unused.py"
    module.write_text('"""An encoder nobody uses."""\n\nLEARNING_KEYS = ()\n', "utf-8")
    undo = watched.edit(
        "cairn/encoders/registry.yaml",
        lambda text: text + "unused: {module: cairn.encoders.unused, facts: {}}\n",
    )
    assert watched.agreed() == set()
    undo()
    module.unlink()
    assert watched.agreed() == set()


def test_an_input_image_that_changes_makes_its_benchmark_stale_alone(watched: Watched):
    project = watched.project
    before = (project.root / "params.yaml").read_text("utf-8")
    pipeline, lock = (
        (project.root / "dvc.yaml").read_text("utf-8"),
        (project.root / "dvc.lock").read_text("utf-8"),
    )
    images = project.root / "photos"
    shutil.copy2(images / "0.png", images / "1.png")
    (project.root / "truth.csv").write_text("query,image,relevance\n0.png,1.png,positive\n", "utf-8")
    project.cairn("add", "mine", "--images", "photos", "--truth", "truth.csv", "--system", "rootsift-vlad")
    project.repro()
    assert watched.agreed() == set()
    original = (images / "1.png").read_bytes()
    import cv2

    picture = cv2.imread(str(images / "1.png"))
    cv2.imwrite(str(images / "1.png"), 255 - picture)
    assert watched.agreed() == {"mine/sources"}
    ran = project.repro()
    assert {"sources-folder@mine", "manifest@mine", "descriptors@mine-rootsift-vlad"} <= set(ran)
    assert not [stage for stage in ran if "toytown-" in stage or stage.endswith("@toytown")]
    assert watched.agreed() == set()
    (images / "1.png").write_bytes(original)
    assert watched.agreed() == {"mine/sources"}
    (project.root / "params.yaml").write_text(before, "utf-8")
    (project.root / "dvc.yaml").write_text(pipeline, "utf-8")
    (project.root / "dvc.lock").write_text(lock, "utf-8")


def bring(project: Project, seed: int) -> None:
    """Features of the tiny town, training images included, as a user would bring them."""
    (project.root / "features").mkdir(exist_ok=True)
    generator = np.random.default_rng(seed)
    names = pq.read_table(project.root / "artifacts/toytown/manifest/manifest.parquet")
    queries = pq.read_table(project.root / "artifacts/toytown/manifest/queries/queries.parquet")
    sides = {
        "gallery": [row["image_id"] for row in names.to_pylist() if row["gallery"]],
        "queries": queries.column("query_id").to_pylist(),
        "training": [row["image_id"] for row in names.to_pylist() if row["train"]],
    }
    arrays = {}
    for side, ids in sides.items():
        arrays[side] = generator.standard_normal((len(ids), 12)).astype(np.float32) + 0.5
        arrays[f"{side}-ids"] = np.array(ids)
    np.savez(project.root / "features" / "mine.npz", **arrays)


def test_features_that_change_make_their_system_stale_alone(watched: Watched):
    project = watched.project
    kept = {name: (project.root / name).read_bytes() for name in ("params.yaml", "dvc.yaml", "dvc.lock")}
    bring(project, 0)
    parameters = project.parameters()

    def side(name: str) -> dict[str, str]:
        return {"array": name, "ids": f"{name}-ids"}

    parameters["systems"]["mine"] = {
        "encoder": "precomputed",
        "features": "./features//mine.npz",
        "images": side("gallery"),
        "queries": side("queries"),
        "training": side("training"),
        "norm": "l2",
        "readout": {"dimension": 8, "centre": "gallery"},
        "search": {"expansion": {"method": "average", "neighbours": 2}, "normalisation": {"neighbours": 2}},
    }
    parameters["runs"]["toytown-mine"] = {"benchmark": "toytown", "system": "mine"}
    project.write_parameters(parameters)
    project.cairn("generate")
    ran = project.repro()
    assert {"descriptors-precomputed@toytown-mine", "training_descriptors-precomputed@toytown-mine"} <= set(
        ran
    )
    assert not [stage for stage in ran if "rootsift-vlad" in stage]
    assert watched.agreed() == set()

    stage = "global-centred.gallery-aqe-n2-norm-n2-f1"
    sql = "SELECT DISTINCT stage FROM results WHERE system = 'mine'"
    assert json.loads(project.cairn("sql", "--json", sql).stdout) == [{"stage": stage}]
    traced = json.loads(project.cairn("trace", "toytown/mine/hard/map", "--json").stdout)
    assert traced["number"] == f"toytown/mine/-/-/{stage}/hard/map"
    assert traced["unverified_sources"] == []
    brought = next(source for source in traced["sources"] if source["location"] == "features/mine.npz")
    assert brought["checksums"]["sha256"] == file_digest(project.root / "features" / "mine.npz")
    assert brought["checksums"]["md5"] == file_digest(project.root / "features" / "mine.npz", "md5")
    assert any(
        "learned from the gallery" in note
        for note in traced["artifacts"]["artifacts/toytown/mine/readout"]["notes"]
    )

    arguments = (
        "--dimension",
        "8,all",
        "--centre",
        "none,gallery",
        "--control",
        "toytown/rootsift-vlad",
    )
    grid = json.loads(project.cairn("grid", "toytown/mine", *arguments, "--json").stdout)
    assert grid["cells"] == 4
    assert [cell["in_protocol"] for cell in grid["measured"]] == [True] * 4 + [False] * 4
    assert all(path.startswith("artifacts/toytown/") for path in grid["measured_on"])

    bring(project, 1)
    assert watched.agreed() == {"toytown/mine/descriptors", "toytown/mine/training_descriptors"}
    ran = project.repro()
    assert "descriptors-precomputed@toytown-mine" in ran
    assert not [stage for stage in ran if "rootsift-vlad" in stage or stage.endswith("@toytown")]
    assert watched.agreed() == set()
    for name, content in kept.items():
        (project.root / name).write_bytes(content)


def test_the_command_line_says_the_same(made: Project, tmp_path: Path):
    project = made.copy(tmp_path / "project")
    clean = project.cairn("status", check=False)
    assert clean.returncode == 0
    assert "up to date" in clean.stdout
    module = project.root / "assets" / "scores.py"
    module.write_text(module.read_text("utf-8") + "\n_UNUSED = 1\n", "utf-8")
    result = project.cairn("status", "--json", check=False)
    assert result.returncode == 3
    report = json.loads(result.stdout)
    assert report["stale"] == {"toytown/rootsift-vlad/scores": ["its code changed"]}
    assert report["downstream"] == ["results"]
