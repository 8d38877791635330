"""A user's own folder: `cairn add`, `cairn run`, a new image, a changed image, and faults in the files."""

import csv
import io
import json
import shutil
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.pipelines.project import Project

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(project: Project) -> Path:
    """`bring` in a project of the test's own."""
    return bring(project)


@dataclass
class Added:
    """A project with the folder as a benchmark that has run, and what the commands printed."""

    project: Project
    said: str
    printed: str


@pytest.fixture(scope="module")
def ran(made: Project, tmp_path_factory: pytest.TempPathFactory) -> Added:
    """Added and run once. Do not change it: copy it (`added`)."""
    project = made.copy(tmp_path_factory.mktemp("folder") / "project")
    bring(project)
    return Added(project, add(project).stderr, project.cairn("run", "mine").stdout)


@pytest.fixture
def added(ran: Added, tmp_path: Path) -> Added:
    """A copy that a test may change."""
    return replace(ran, project=ran.project.copy(tmp_path / "project"))


def bring(project: Project) -> Path:
    """Some images of the tiny town as a folder, and `truth.csv` beside it."""
    folder = project.root / "photos"
    folder.mkdir()
    with tarfile.open(project.root / "artifacts/toytown/sources/images.tar") as archive:
        members = [name for name in sorted(archive.getnames()) if name.startswith("gallery/")][:12]
        for name in members:
            (folder / Path(name).name).write_bytes(archive.extractfile(name).read())  # type: ignore[union-attr]
    names = sorted(path.name for path in folder.iterdir())
    rows = [(names[0], names[1], "positive"), (names[0], names[0], "junk"), (names[2], names[3], "positive")]
    write_csv(project.root / "truth.csv", [*rows, (names[4], "", "")])
    return folder


def write_csv(
    path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("query", "image", "relevance")
):
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    path.write_text(text.getvalue(), "utf-8")


def add(project: Project, *more: str, check: bool = True):
    return project.cairn("add", "mine", "--images", "photos", "--truth", "truth.csv", *more, check=check)


def test_a_folder_becomes_a_benchmark_and_new_images_touch_little(added: Added):
    project, photos = added.project, added.project.root / "photos"
    assert "toytown" in added.said, "it says on whose images the vocabulary is learned"
    text = (project.root / "params.yaml").read_text("utf-8")
    assert "mine-rootsift-vlad: {benchmark: mine, system: rootsift-vlad}" in text
    assert "mAP" in added.printed
    assert "toytown" in added.printed, "and it says so beside the numbers"
    assert (project.root / "artifacts/scores/mine/rootsift-vlad/gallery.png").is_file()
    traced = json.loads(project.cairn("trace", "mine/rootsift-vlad/global/all/map", "--json").stdout)
    assert {source["location"] for source in traced["sources"]} >= {"photos", "truth.csv"}
    assert traced["unverified_sources"] == []

    extra = sorted(photos.iterdir())[5]
    shutil.copy2(extra, photos / "new.jpg")
    stale = json.loads(project.cairn("status", "--json", check=False).stdout)["stale"]
    assert set(stale) == {"mine/sources"}
    ran = project.repro()
    assert not [stage for stage in ran if "toytown" in stage and "mine" not in stage]
    assert "vocabulary@mine-rootsift-vlad" not in ran
    assert "descriptors@mine-rootsift-vlad" in ran


def test_a_changed_relevance_leaves_descriptors_alone(added: Added):
    project = added.project
    truth = project.root / "truth.csv"
    truth.write_text(truth.read_text("utf-8").replace("positive", "easy"), "utf-8")
    ran = project.repro()
    assert "ground_truth@mine" in ran
    assert "descriptors@mine-rootsift-vlad" not in ran
    assert "scores@mine-rootsift-vlad" in ran


def test_an_image_that_changed_behind_the_manifest_is_refused(added: Added):
    project, photos = added.project, added.project.root / "photos"
    shutil.rmtree(project.root / "artifacts/mine/rootsift-vlad/descriptors")
    shutil.rmtree(project.root / ".cairn" / "cache")  # what is cached by content needs no file
    changed = sorted(photos.iterdir())[0]
    shutil.copy2(sorted(photos.iterdir())[7], changed)
    result = project.cairn("step", "descriptors", "mine-rootsift-vlad", check=False)
    assert result.returncode == 1
    assert changed.name in result.stderr
    assert "Traceback" not in result.stderr
    assert not (project.root / "artifacts/mine/rootsift-vlad/descriptors").exists()


def damage_corrupt(photos: Path, truth: Path) -> str:
    path = sorted(photos.iterdir())[3]
    path.write_bytes(path.read_bytes()[:200])
    return path.name


def damage_unknown(photos: Path, truth: Path) -> str:
    truth.write_text(truth.read_text("utf-8") + "absent.jpg,photo-0001.jpg,positive\n", "utf-8")
    return "absent.jpg"


def damage_relevance(photos: Path, truth: Path) -> str:
    truth.write_text(truth.read_text("utf-8").replace("positive", "great", 1), "utf-8")
    return "great"


def damage_no_queries(photos: Path, truth: Path) -> str:
    truth.write_text("query,image,relevance\n", "utf-8")
    return "truth.csv"


def damage_columns(photos: Path, truth: Path) -> str:
    truth.write_text(truth.read_text("utf-8").replace("relevance", "label", 1), "utf-8")
    return "relevance"


def damage_not_text(photos: Path, truth: Path) -> str:
    truth.write_bytes(b"query,image,relevance\n\xff\xfe,a,positive\n")
    return "truth.csv"


def damage_empty_folder(photos: Path, truth: Path) -> str:
    shutil.rmtree(photos)
    photos.mkdir()
    return "photos"


@pytest.mark.parametrize(
    "damage",
    [
        damage_unknown,
        damage_relevance,
        damage_no_queries,
        damage_columns,
        damage_not_text,
        damage_empty_folder,
    ],
)
def test_a_fault_in_the_files_is_one_clear_line_and_nothing_is_written(
    project: Project, photos: Path, damage
):
    named = damage(photos, project.root / "truth.csv")
    before = (project.root / "params.yaml").read_bytes()
    result = add(project, check=False)
    assert result.returncode == 1
    assert named in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert (project.root / "params.yaml").read_bytes() == before


def test_a_corrupt_image_is_named_and_nothing_is_half_written(project: Project, photos: Path):
    named = damage_corrupt(photos, project.root / "truth.csv")
    add(project, check=False)
    if "mine" in project.parameters()["benchmarks"]:
        result = project.cairn("run", "mine", check=False)
        assert result.returncode == 1
        assert named in result.stderr
        assert "Traceback" not in result.stderr
        assert not (project.root / "artifacts/mine/manifest").exists()


def test_a_metric_can_be_chosen(project: Project, photos: Path):
    add(project, "--metric", "micro_AP, recall@p90")
    assert project.parameters()["benchmarks"]["mine"]["metric"] == "micro-ap,recall@p90"


def test_a_metric_that_is_chosen_is_what_is_reported(added: Added):
    project, parameters = added.project, added.project.parameters()
    parameters["benchmarks"]["mine"]["metric"] = "micro-ap,recall@p90"
    project.write_parameters(parameters)
    project.cairn("run", "mine")
    rows = json.loads(
        project.cairn("sql", "--json", "SELECT DISTINCT metric FROM results WHERE benchmark='mine'").stdout
    )
    assert {"micro-ap"} <= {
        value for row in rows for value in (row.values() if isinstance(row, dict) else row)
    }
