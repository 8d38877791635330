"""A number's way back, from `dvc.lock` and files alone."""

import io
import json
import subprocess
import sys

import pytest
import yaml
from rich.console import Console

from cairn.errors import ArtifactError, CairnError, LineageError
from cairn.files import file_digest, write_json
from cairn.lineage import trace
from cairn.lineage.show import print_trace
from tests.lineage.project import numbers_of, runs

HARD = "toytown/rootsift-vlad/geometry-k100/hard/map"


def printed(found, full: bool = False, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False, highlight=False)
    print_trace(found, console, full)
    return console.file.getvalue()


def test_the_tree_goes_from_the_scores_to_the_sources(built):
    found = trace(built / "cairn", HARD)
    base = "artifacts/toytown/rootsift-vlad"
    assert found.root == "artifacts/scores/toytown/rootsift-vlad"
    chain = [path for _, path, first in found.walk() if first]
    assert chain == [
        found.root,
        f"{base}/reranking",
        f"{base}/local",
        f"{base}/ranking",
        f"{base}/descriptors",
        f"{base}/vocabulary",
        "artifacts/toytown/training",
        "artifacts/toytown/manifest",
        "artifacts/toytown/sources",
        "artifacts/toytown/ground_truth",
    ]
    assert found.synthetic


@pytest.mark.parametrize("name", sorted(numbers_of(*runs())))
def test_every_number_has_a_source_with_a_checksum_at_every_leaf(built, name):
    found = trace(built / "cairn", name)
    for path, artifact in found.artifacts.items():
        assert artifact.sources or found.children(path), path
    assert found.unverified == ()
    assert all(source.checksums for source in found.sources)


def test_leaves_of_a_folder_are_the_users_images_and_table_and_the_borrowed_training_images(built):
    found = trace(built / "cairn", "places/rootsift-vlad/global")
    by_place = {source.location: source for source in found.sources}
    assert set(by_place) == {"../brought/images", "../brought/truth.csv", "images.tar"}
    images, truth, drawn = (by_place[p] for p in ("../brought/images", "../brought/truth.csv", "images.tar"))
    assert (images.files, images.licence) == (4, "the user's own")
    assert images.checksums["md5"].endswith(".dir")
    table = built / "brought/truth.csv"
    assert truth.checksums == {"md5": file_digest(table, "md5"), "sha256": file_digest(table)}
    assert drawn.synthetic
    notes = found.artifacts["artifacts/places/training"].notes
    assert notes == ("places has no training images: those of toytown are used",)


def test_every_step_has_its_code_parameters_packages_and_hash(built):
    found = trace(built / "cairn", HARD)
    for artifact in found.artifacts.values():
        (code,) = artifact.code
        assert code.current and code.digest and code.modules and code.packages
        assert artifact.md5
    assert found.artifacts["artifacts/toytown/rootsift-vlad/reranking"].code[0].parameters == {"k": 100}
    assert found.artifacts["artifacts/toytown/sources"].code[0].parameters == {"seed": 7}


def test_a_line_for_each_artifact_fits_80_columns_and_names_hash_and_step(built):
    found = trace(built / "cairn", HARD)
    text = printed(found, width=80)
    lines = text.splitlines()
    assert max(len(line) for line in lines) <= 80
    for path, artifact in found.artifacts.items():
        name = path.removeprefix("artifacts/")
        assert [line.split() for line in lines].count([name, artifact.md5[:12], artifact.step]) == 1
    of_each = [code for artifact in found.artifacts.values() for code in artifact.code]
    assert not any(module in text for code in of_each for module in code.modules)
    assert not any(code.digest[:12] in text for code in of_each)
    assert len(lines) <= 12 + len(found.artifacts) + 6 * len(found.sources)
    assert "synthetic images" in text
    assert "1 source pinned by a checksum" in text
    assert (
        f"  artifacts/toytown/sources/images.tar\n    sha256 {found.sources[0].checksums['sha256']}\n" in text
    )


def test_the_sources_of_a_folder_stand_below_with_their_own_paths(built):
    text = printed(trace(built / "cairn", "places/rootsift-vlad/global"))
    table = built / "brought/truth.csv"
    assert (
        f"  ../brought/truth.csv\n    sha256 {file_digest(table)}\n    md5 {file_digest(table, 'md5')}\n"
        in text
    )
    assert "  artifacts/toytown/sources/images.tar\n" in text


def test_full_shows_every_hash_module_parameter_and_command(built):
    found = trace(built / "cairn", HARD)
    text = printed(found, full=True, width=400)
    for artifact in found.artifacts.values():
        assert text.count(f"{artifact.path}  md5 {artifact.md5}") == 1 and artifact.command in text
        if made_from := found.children(artifact.path):
            assert f"from {', '.join(made_from)}\n" in text
        for code in artifact.code:
            assert code.digest in text
            for module, digest in code.modules.items():
                assert f"{module}  {digest}" in text
    for source in found.sources:
        assert all(value in text for value in source.checksums.values())


def test_json_is_complete_and_plain(built):
    found = trace(built / "cairn", HARD)
    record = found.as_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["number"].endswith("geometry-k100/hard/map")
    assert record["unverified_sources"] == []
    for artifact in record["artifacts"].values():
        for item in artifact["inputs"]:
            assert set(item["artifacts"]) <= set(record["artifacts"])


def test_a_source_without_a_checksum_is_flagged(project):
    file = project / "artifacts/toytown/sources/sources.json"
    listed = json.loads(file.read_text())
    del listed["sources"][0]["sha256"]
    write_json(file, listed)
    found = trace(project, HARD)
    assert [source.location for source in found.unverified] == ["images.tar"]
    assert "UNPINNED" in printed(found)
    assert "0 of them pinned by a checksum" in printed(found)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"sources": 3}', '{"sources": [1]}', "\x00", "[" * 9000]
)
def test_a_leaf_that_lists_nothing_is_flagged(project, content):
    (project / "artifacts/toytown/sources/sources.json").write_text(content)
    found = trace(project, HARD)
    assert len(found.unverified) == 1
    assert "nothing says what it was made from" in found.unverified[0].problem


def test_checksums_that_are_none_do_not_count(project):
    file = project / "artifacts/toytown/sources/sources.json"
    write_json(file, {"sources": [{"name": "x", "sha256": "not a digest", "url": "https://example.org/x"}]})
    (source,) = trace(project, HARD).unverified
    assert "not a sha256 digest" in source.problem


def test_control_characters_from_files_do_not_reach_the_terminal(project):
    file = project / "artifacts/toytown/sources/sources.json"
    write_json(
        file, {"sources": [{"name": "\x1b[2Jx", "note": "[red]\x07", "url": "u\nv", "sha256": "0" * 64}]}
    )
    text = printed(trace(project, HARD), full=True)
    assert "\x1b" not in text and "\x07" not in text
    assert "[red]" in text


def test_stale_code_is_a_note(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    params = lock["stages"]["ranking@toytown-rootsift-vlad"]["params"]
    next(iter(params.values()))["digest"] = "f" * 64
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    found = trace(project, HARD)
    assert any("code of ranking changed" in note for note in found.notes)
    assert "f" * 64 in printed(found, full=True)


def test_missing_files_errors_are_clear(project):
    (project / "artifacts/results/results.parquet").unlink()
    with pytest.raises(ArtifactError, match="cairn run"):
        trace(project, HARD)
    (project / "dvc.lock").unlink()
    with pytest.raises(LineageError, match=r"dvc\.lock does not exist"):
        trace(project, HARD)


def test_a_number_whose_scores_the_lock_does_not_know(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    del lock["stages"]["scores@toytown-rootsift-vlad"]
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    with pytest.raises(LineageError, match="records no stage that made it"):
        trace(project, HARD)


def test_ambiguous_and_hostile_names(built):
    root = built / "cairn"
    with pytest.raises(LineageError, match="fits 6 numbers"):
        trace(root, "toytown/rootsift-vlad")
    for name in ("../../etc", "\x1b", "", "%s", "toytown/../places"):
        with pytest.raises(CairnError):
            trace(root, name)


def test_neither_engine_is_imported(built):
    program = (
        "import sys, pathlib; from cairn.lineage import trace, verify; from cairn.lineage.show import print_trace;"
        f"root = pathlib.Path({str(built / 'cairn')!r}); trace(root, {HARD!r}); assert not verify(root).findings;"
        "loaded = {name.split('.')[0] for name in sys.modules};"
        "assert not loaded & {'dvc', 'dagster', 'torch', 'faiss', 'pandas'}, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_shallow_clone_says_so_beside_the_commit(project, tmp_path):
    def git(*arguments):
        subprocess.run(["git", *arguments], check=True, capture_output=True)

    git("init", "-q", str(project))
    (project / ".gitignore").write_text(".dvc/\n")
    who = ["-C", str(project), "-c", "user.email=nobody@example.org", "-c", "user.name=Nobody"]
    git("-C", str(project), "add", "-A")
    git(*who, "commit", "-qm", "All")
    git(*who, "commit", "-qm", "Later", "--allow-empty")
    whole = trace(project, HARD)
    assert whole.revision.commit and not any("shallow" in note for note in whole.notes)
    git("clone", "-q", "--depth", "1", f"file://{project}", str(tmp_path / "clone"))
    found = trace(tmp_path / "clone", HARD)
    assert found.revision.shallow and found.revision.commit != whole.revision.commit
    assert any("clone is shallow" in note and "--unshallow" in note for note in found.notes)
    assert f"commit {found.revision.commit[:12]} (the clone is shallow)" in printed(found)


def test_what_the_lock_no_longer_makes_is_unpinned(project):
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    del lock["stages"]["manifest@toytown"]
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    (source,) = trace(project, HARD).unverified
    assert (source.location, source.problem) == (
        "artifacts/toytown/manifest",
        "dvc.lock records no stage that made it",
    )
