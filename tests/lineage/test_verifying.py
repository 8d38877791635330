"""Verification: what differs is named to the file, and exactly the numbers downstream of it."""

import io
import json
import random
import shutil
import subprocess

import pytest
import yaml
from rich.console import Console

from cairn.errors import ArtifactError, LineageError
from cairn.files import dvc_digest
from cairn.lineage import verify
from cairn.lineage.hashing import cache_folder, hash_paths, recorded_files
from cairn.lineage.lock_checks import Declared
from cairn.lineage.show import print_verification
from tests.lineage.project import Builder, numbers_of, runs

RERANKED = "geometry-k100"
TOY, TINY, PLACES = ("toytown", "rootsift-vlad"), ("toytown", "tiny-histogram"), ("places", "rootsift-vlad")


def flip(path, position: int | None = None) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if position is None else position] ^= 1
    path.write_bytes(bytes(data))


def relock(project, change) -> None:
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    change(lock["stages"])
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))


def entry(project, path: str) -> dict:
    """What DVC would record of `path` now."""
    files = [file for file in (project / path).rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    return {"md5": dvc_digest(project / path), "size": size, "nfiles": len(files)}


def test_an_untouched_project_passes(built):
    verification = verify(built / "cairn")
    assert verification.findings == ()
    assert set(verification.numbers) == numbers_of(*runs())
    assert verification.synthetic == ("toytown",)
    assert verification.artifacts == 25
    # No git here: a note, and only with --strict a failure.
    assert verification.passed() and not verification.passed(strict=True)


def test_an_input_taken_out_of_the_lock_is_a_note(project):
    stage, output = "ranking@toytown-rootsift-vlad", "artifacts/toytown/rootsift-vlad/descriptors"
    declared = {
        stage: Declared((output, "artifacts/toytown/ground_truth/"), output.replace("descriptors", "ranking"))
    }
    assert not [note for note in verify(project, declared=declared).notes if stage in note]
    relock(project, lambda stages: stages[stage].update(deps=[]))
    verification = verify(project, declared=declared)
    assert [note for note in verification.notes if stage in note and output in note]
    assert not verification.passed(strict=True)


def test_what_no_number_rests_on_is_checked_where_it_lies_here(project):
    folder = project / "artifacts/toytown/contamination"
    folder.mkdir()
    (folder / "audit.json").write_text("{}")
    out = {
        "path": "artifacts/toytown/contamination",
        "hash": "md5",
        "md5": dvc_digest(folder),
        "size": 2,
        "nfiles": 1,
    }
    name, code = "contamination@toytown", "artifacts/code/contamination/toytown.json"
    stage = {
        "cmd": "python -m pipelines step contamination toytown",
        "params": {code: {"digest": "d"}},
        "outs": [out],
    }
    relock(project, lambda stages: stages.update({name: stage}))
    before = verify(project)
    assert before.findings == () and before.artifacts == 26
    (folder / "audit.json").write_text("{ }")
    (finding,) = verify(project).findings
    assert (finding.artifact, finding.numbers) == (out["path"], ())
    assert verify(project, [next(iter(numbers_of(TOY)))]).findings == ()
    shutil.rmtree(folder)  # what a system left that is no longer in params.yaml
    assert verify(project).passed()


@pytest.mark.parametrize(
    ("file", "tainted"),
    [
        ("artifacts/toytown/rootsift-vlad/descriptors/0001.parquet", [TOY]),
        ("artifacts/toytown/tiny-histogram/descriptors/queries.parquet", [TINY]),
        # The shortlist's local features are under the re-ranked numbers alone.
        ("artifacts/places/rootsift-vlad/local/local.hdf5", [(*PLACES, RERANKED)]),
        ("artifacts/toytown/ground_truth/relevance.parquet", [TOY, TINY]),
        ("artifacts/scores/toytown/rootsift-vlad/per_query.parquet", [TOY]),
        ("artifacts/places/training/training.json", [PLACES]),
        ("artifacts/toytown/training/training.json", [TOY, TINY]),
        # places borrows toytown's training images, so its numbers rest on them too.
        ("artifacts/toytown/sources/sources.json", [TOY, TINY, PLACES]),
        ("artifacts/toytown/manifest/manifest.parquet", [TOY, TINY, PLACES]),
        ("artifacts/places/manifest/manifest.parquet", [PLACES]),
        ("artifacts/results/metrics.json", [TOY, TINY, PLACES]),
        ("artifacts/code/ranking/toytown-rootsift-vlad.json", [TOY]),
    ],
)
def test_one_flipped_byte_names_the_file_and_exactly_the_numbers_downstream(project, file, tainted):
    flip(project / file, 5)
    verification = verify(project)
    assert [finding.file for finding in verification.findings] == [file]
    (finding,) = verification.findings
    assert finding.kind == "changed"
    assert finding.expected != finding.found
    assert set(finding.numbers) == set(verification.tainted) == numbers_of(*tainted)
    assert not verification.passed()


def test_any_flipped_byte_anywhere_is_found(project):
    """Mutation: every file under artifacts/ in turn, a random byte each; the project is mended between."""
    generator = random.Random(3)
    files = sorted(file for file in (project / "artifacts").rglob("*") if file.is_file())
    used = [file for file in files if file.name != "results.parquet"]
    for file in generator.sample(used, 25):
        before = file.read_bytes()
        flip(file, generator.randrange(len(before)))
        name = file.relative_to(project).as_posix()
        assert name in {finding.file for finding in verify(project).findings}, name
        file.write_bytes(before)
    assert verify(project).findings == ()


def test_missing_and_unexpected_files_are_named(project):
    shards = project / "artifacts/toytown/rootsift-vlad/descriptors"
    (shards / "0000.parquet").unlink()
    (shards / "stray.txt").write_text("x")
    found = {(finding.kind, finding.file.rsplit("/", 1)[-1]) for finding in verify(project).findings}
    assert found == {("missing", "0000.parquet"), ("unexpected", "stray.txt")}


def test_a_missing_artifact_is_one_finding(project):
    shutil.rmtree(project / "artifacts/toytown/rootsift-vlad/local")
    (finding,) = verify(project).findings
    assert (finding.kind, finding.artifact) == ("missing", "artifacts/toytown/rootsift-vlad/local")
    assert set(finding.numbers) == numbers_of((*TOY, RERANKED))


def test_without_the_listing_the_directory_is_named(project):
    shutil.rmtree(project / ".dvc/cache")
    flip(project / "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet")
    (finding,) = verify(project).findings
    assert finding.artifact == "artifacts/toytown/rootsift-vlad/descriptors"
    assert finding.file is None
    assert "which file" in finding.message


def test_a_listing_that_was_tampered_with_is_no_evidence(project):
    md5 = dvc_digest(project / "artifacts/toytown/rootsift-vlad/descriptors")
    listing = project / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    assert recorded_files(project, md5)
    entries = json.loads(listing.read_text())
    entries[0]["md5"] = "0" * 32
    listing.write_text(json.dumps(entries))
    assert recorded_files(project, md5) is None
    assert verify(project).findings == ()


def test_the_cache_may_lie_elsewhere(project, tmp_path):
    (project / ".dvc/cache").rename(tmp_path / "far")
    (project / ".dvc/config.local").write_text(f"[cache]\n    dir = {tmp_path / 'far'}\n")
    assert cache_folder(project) == tmp_path / "far"
    flip(project / "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet")
    (finding,) = verify(project).findings
    assert finding.file.endswith("0001.parquet")


def test_chosen_numbers_are_checked_and_others_left(project):
    flip(project / "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet")
    other = verify(project, ["places/rootsift-vlad/global"])
    assert other.findings == ()
    assert other.numbers == ("places/rootsift-vlad/-/-/global/all/map",)
    chosen = verify(project, ["toytown/rootsift-vlad/global/hard"])
    # Checked for one number, but whoever else rests on the file is named too.
    assert set(chosen.findings[0].numbers) == numbers_of(TOY)


def test_a_stage_that_used_an_older_version_is_reported(project):
    older = "a" * 32 + ".dir"

    def change(stages):
        for item in stages["ranking@toytown-rootsift-vlad"]["deps"]:
            if item["path"].endswith("descriptors"):
                item["md5"] = older

    relock(project, change)
    (finding,) = verify(project).findings
    assert finding.kind == "outdated"
    assert finding.artifact == "artifacts/toytown/rootsift-vlad/descriptors"
    assert finding.expected == older
    assert "ranking@toytown-rootsift-vlad used artifacts/toytown/rootsift-vlad/descriptors" in finding.message
    assert set(finding.numbers) == numbers_of(TOY)


def test_all_that_a_renewed_output_left_behind_is_one_finding(project):
    folder = "artifacts/toytown/manifest"
    (project / folder / "extra.txt").write_text("newer")

    def change(stages):
        stages["manifest@toytown"]["outs"][0]["md5"] = dvc_digest(project / folder)

    relock(project, change)
    (finding,) = [f for f in verify(project).findings if f.kind == "outdated"]
    assert finding.artifact == folder
    assert "training@toytown, training@places" in finding.message or "and" in finding.message
    assert set(finding.numbers) == numbers_of(TOY, TINY, PLACES)


def test_an_outdated_input_taints_only_what_was_computed_from_it(project):
    def change(stages):
        for item in stages["scores@toytown-rootsift-vlad"]["deps"]:
            if item["path"].endswith("reranking"):
                item["md5"] = "b" * 32 + ".dir"

    relock(project, change)
    (finding,) = verify(project).findings
    assert set(finding.numbers) == numbers_of((*TOY, RERANKED))
    assert verify(project, ["toytown/rootsift-vlad/global/hard"]).findings == ()


def test_a_number_that_does_not_say_rests_on_everything(project):
    from dataclasses import replace

    from cairn.results import read_results, write_results

    path = project / "artifacts/results/results.parquet"
    write_results(path, [replace(row, computed_from=()) for row in read_results(path)])
    flip(project / "artifacts/places/rootsift-vlad/local/local.hdf5")
    finding = next(f for f in verify(project).findings if f.file and f.file.endswith("local.hdf5"))
    assert set(finding.numbers) == numbers_of(PLACES)


def test_a_table_made_from_older_scores_taints_exactly_those_rows(project):
    scores = "artifacts/scores/toytown/tiny-histogram"
    (project / scores / "extra.txt").write_text("newer")

    def change(stages):
        stages["scores@toytown-tiny-histogram"]["outs"][0].update(entry(project, scores))

    relock(project, change)
    (finding,) = verify(project).findings
    assert (finding.kind, finding.artifact) == ("outdated", scores)
    assert set(finding.numbers) == numbers_of(TINY)


def test_a_row_that_was_edited_is_found_by_the_tables_hash(project):
    from dataclasses import replace

    from cairn.results import read_results, write_results

    path = project / "artifacts/results/results.parquet"
    rows = read_results(path)
    write_results(path, [replace(rows[0], value=0.999), *rows[1:]])
    changed, row = verify(project).findings
    assert changed.file == row.file == "artifacts/results/results.parquet"
    assert (changed.kind, row.kind) == ("changed", "row")
    assert set(changed.numbers) == numbers_of(*runs())
    assert row.numbers == (str(rows[0].name),)


def test_a_number_nobody_made_is_reported(project):
    relock(project, lambda stages: stages.pop("scores@places-rootsift-vlad"))
    verification = verify(project)
    assert {finding.kind for finding in verification.findings} == {"unrecorded"}
    assert set(verification.tainted) == numbers_of(PLACES)


def test_a_changed_image_of_the_user_is_named(project):
    brought = project.parent / "brought"
    flip(brought / "images/place2.png", -3)
    verification = verify(project)
    images = [finding for finding in verification.findings if finding.kind == "image"]
    assert [finding.file for finding in images] == ["../brought/images/place2.png"]
    folder = [finding for finding in verification.findings if finding.kind == "source"]
    assert [finding.artifact for finding in folder] == ["../brought/images"]
    assert set(verification.tainted) == numbers_of(PLACES)


def test_a_changed_table_of_the_user_is_named_once(project):
    (project.parent / "brought/truth.csv").write_text("query,image,relevance\n")
    found = [(finding.kind, finding.artifact) for finding in verify(project).findings]
    assert ("source", "../brought/truth.csv") in found
    assert set(verify(project).tainted) == numbers_of(PLACES)


def test_a_changed_image_inside_an_archive_is_named(project):
    """The archive's own hash is forged in dvc.lock; the manifest still knows every image."""
    archive = project / "artifacts/toytown/sources/images.tar"
    flip(archive, 700)

    def change(stages):
        forged = dvc_digest(project / "artifacts/toytown/sources")
        for stage in stages.values():
            for item in [*stage.get("deps", []), *stage["outs"]]:
                if item["path"] == "artifacts/toytown/sources":
                    item["md5"] = forged

    relock(project, change)
    verification = verify(project)
    kinds = {finding.kind: finding for finding in verification.findings}
    assert kinds["image"].file == "artifacts/toytown/sources/images.tar/town/00.png"
    assert kinds["source"].expected != kinds["source"].found  # sources.json pins the archive as well
    assert set(verification.tainted) == numbers_of(*runs())


def test_sources_that_are_not_on_this_machine_are_a_note(project):
    shutil.rmtree(project.parent / "brought")
    verification = verify(project)
    assert verification.findings == ()
    assert any("../brought/images is not on this machine" in note for note in verification.notes)


def test_stale_code_other_packages_and_missing_code_files_are_notes(project):
    code = project / "artifacts/code/ranking/toytown-rootsift-vlad.json"
    record = json.loads(code.read_text())
    record["packages"]["numpy"] = "0.0.1"
    record["packages"]["no-such-package"] = "1"
    code.write_text(json.dumps(record))
    relock(project, lambda stages: stages["code"]["outs"][0].update(entry(project, "artifacts/code")))
    notes = "\n".join(verify(project).notes)
    assert "package numpy: 0.0.1" in notes
    assert "package no-such-package" in notes and "not installed" in notes
    record["digest"] = "e" * 64
    code.write_text(json.dumps(record))
    relock(project, lambda stages: stages["code"]["outs"][0].update(entry(project, "artifacts/code")))
    verification = verify(project)
    assert verification.findings == ()
    assert any(
        "changed since artifacts/toytown/rootsift-vlad/ranking was made" in n for n in verification.notes
    )
    code.unlink()
    assert any("is not here" in note for note in verify(project).notes)


def test_changed_source_code_is_a_note(project):
    def changed(root, record):
        assert root == project
        return ["cairn/ranking.py"] if "cairn/ranking.py" in record["modules"] else []

    verification = verify(project, changed_code=changed)
    assert verification.findings == ()
    assert any("cairn/ranking.py" in note and "tiny-histogram/ranking" in note for note in verification.notes)


def test_the_result_does_not_depend_on_threads(project):
    flip(project / "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet")
    assert verify(project, threads=1) == verify(project, threads=7)


def test_files_below_two_paths_are_the_same_content(project):
    content = hash_paths(project, ["artifacts/scores", "artifacts/scores/toytown/rootsift-vlad"])
    inner = content["artifacts/scores/toytown/rootsift-vlad"]
    assert inner.md5 == dvc_digest(project / "artifacts/scores/toytown/rootsift-vlad")
    for name, md5 in inner.files.items():
        assert content["artifacts/scores"].files[f"toytown/rootsift-vlad/{name}"] == md5


def test_what_dvc_ignores_is_not_hashed_and_odd_files_do_not_hang(project):
    import os

    folder = project / "artifacts/scores/toytown/rootsift-vlad"
    before = dvc_digest(folder)
    (project / ".dvcignore").write_text("__pycache__/\n*.tmp\n")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__/x.pyc").write_bytes(b"x")
    (folder / "y.tmp").write_bytes(b"y")
    os.mkfifo(folder / "pipe")
    assert hash_paths(project, ["artifacts/scores/toytown/rootsift-vlad"]).popitem()[1].md5 == before
    (folder / "dangling").symlink_to("nowhere")
    content = hash_paths(project, ["artifacts/scores/toytown/rootsift-vlad"]).popitem()[1]
    assert list(content.unreadable) == ["dangling"]
    assert {finding.kind for finding in verify(project).findings} == {"unreadable"}


def test_nothing_to_start_from_is_one_clear_line(project):
    (project / "artifacts/results/results.parquet").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="results"):
        verify(project)
    (project / "dvc.lock").write_text("stages: [")
    with pytest.raises(LineageError, match="not valid YAML"):
        verify(project)


def test_git_state_is_a_note(project):
    def git(*arguments):
        subprocess.run(["git", "-C", str(project), *arguments], check=True, capture_output=True)

    git("init", "-q")
    git("config", "user.email", "nobody@example.org")
    git("config", "user.name", "Nobody")
    (project / ".gitignore").write_text("/artifacts/\n.dvc/\n")
    notes = verify(project).notes
    assert any("no commit holds this dvc.lock" in note for note in notes)
    git("add", "-A")
    git("commit", "-qm", "All")
    assert verify(project).notes == ()
    assert verify(project).passed(strict=True)
    (project / "new.py").write_text("x = 1\n")
    assert verify(project).notes == ("the git tree is dirty: new.py (untracked)",)
    assert verify(project).passed() and not verify(project).passed(strict=True)
    (project / "new.py").unlink()
    (project / "params.yaml").write_text("runs: {a: b}\n")
    assert any("dirty: params.yaml" in note for note in verify(project).notes)
    relock(project, lambda stages: None)
    (project / "dvc.lock").write_text((project / "dvc.lock").read_text() + "# touched\n")
    verification = verify(project)
    assert any("not committed" in note for note in verification.notes)
    assert verification.passed() and not verification.passed(strict=True)


def test_printed_findings_say_file_hashes_and_numbers(project):
    file = "artifacts/toytown/rootsift-vlad/descriptors/0001.parquet"
    flip(project / file)
    verification = verify(project)
    console = Console(file=io.StringIO(), width=200, force_terminal=False, highlight=False)
    print_verification(verification, console)
    text = console.file.getvalue()
    assert f"{file} differs" in text
    assert verification.findings[0].found in text
    assert all(number in text for number in numbers_of(TOY))
    assert not any(number in text for number in numbers_of(TINY))
    assert "FAILED: 1 finding, 6 numbers tainted" in text
    record = verification.as_dict()
    assert json.loads(json.dumps(record)) == record
    assert record["passed"] is False


RANKING = "ranking@toytown-rootsift-vlad"
EVERY = (TOY, TINY, PLACES)


@pytest.mark.parametrize(
    ("stage", "artifact", "tainted"),
    [
        ("sources-toytown@toytown", "artifacts/toytown/sources", EVERY),
        ("sources-folder@places", "artifacts/places/sources", [PLACES]),
        ("manifest@places", "artifacts/places/manifest", [PLACES]),
        ("training@toytown", "artifacts/toytown/training", [TOY, TINY]),
        (RANKING, "artifacts/toytown/rootsift-vlad/ranking", [TOY]),
        ("results", "artifacts/results/results.parquet", EVERY),
        ("code", "artifacts/code", EVERY),
    ],
)
def test_a_stage_deleted_from_the_lock_is_a_finding(project, stage, artifact, tainted):
    relock(project, lambda stages: stages.pop(stage))
    verification = verify(project)
    (finding,) = verification.findings
    assert (finding.kind, finding.artifact) == ("unrecorded", artifact)
    assert "git checkout dvc.lock" in finding.message
    assert set(finding.numbers) == numbers_of(*tainted)


def test_images_are_still_checked_where_the_manifests_stage_is_gone(project):
    relock(project, lambda stages: stages.pop("manifest@places"))
    flip(project.parent / "brought/images/place2.png", -3)
    images = [finding for finding in verify(project).findings if finding.kind == "image"]
    assert [finding.file for finding in images] == ["../brought/images/place2.png"]
    assert set(images[0].numbers) == numbers_of(PLACES)


def test_a_manifest_that_no_stage_uses_any_more_is_a_finding(project):
    def change(stages):
        del stages["manifest@places"]
        for stage in stages.values():
            stage["deps"] = [d for d in stage.get("deps", []) if d["path"] != "artifacts/places/manifest"]

    relock(project, change)
    (finding,) = verify(project).findings
    assert (finding.kind, finding.artifact) == ("unrecorded", "artifacts/places/manifest")
    assert "images cannot be compared" in finding.message


def test_an_edited_code_file_that_no_number_rests_on_is_a_finding(project):
    folder, file = project / "artifacts/toytown/contamination", "artifacts/code/contamination/toytown.json"
    folder.mkdir()
    (folder / "audit.json").write_text("{}")
    (project / file).parent.mkdir(parents=True)
    (project / file).write_text((project / "artifacts/code/ranking/toytown-rootsift-vlad.json").read_text())
    record = json.loads((project / file).read_text())
    stage = {
        "cmd": "python -m pipelines step contamination toytown",
        "params": {file: {key: record[key] for key in ("digest", "parameters")}},
        "outs": [Builder(project).recorded("artifacts/toytown/contamination")],
    }

    def change(stages):
        stages["contamination@toytown"] = stage
        stages["code"]["outs"] = [Builder(project).recorded("artifacts/code")]

    relock(project, change)
    assert verify(project).findings == ()
    flip(project / file, 5)
    (finding,) = [found for found in verify(project).findings if found.file == file]
    assert (finding.kind, finding.numbers) == ("changed", ())
    (project / file).unlink()
    assert [found.kind for found in verify(project).findings if found.file == file] == ["missing"]


def test_edited_parameters_of_the_same_code_are_a_finding(project):
    file = "artifacts/code/reranking/toytown-rootsift-vlad.json"

    def change(stages):
        stages["reranking@toytown-rootsift-vlad"]["params"][file]["parameters"] = {"k": 50}

    relock(project, change)
    (finding,) = verify(project).findings
    assert (finding.kind, finding.file) == ("parameters", file)
    assert "k is '50' in dvc.lock and '100' in" in finding.message
    assert set(finding.numbers) == numbers_of((*TOY, RERANKED))

    def other_code(stages):
        stages["reranking@toytown-rootsift-vlad"]["params"][file]["digest"] = "e" * 64

    relock(project, other_code)
    assert verify(project).findings == ()
    assert any("changed since" in note for note in verify(project).notes)


@pytest.mark.parametrize("lacking", ["digest", "parameters", "params"])
def test_parameters_and_digests_taken_out_are_a_finding(project, lacking):
    def change(stages):
        stage = stages["reranking@toytown-rootsift-vlad"]
        if lacking == "params":
            del stage["params"]
        else:
            del next(iter(stage["params"].values()))[lacking]

    relock(project, change)
    (finding,) = verify(project).findings
    assert finding.kind == "parameters"
    assert set(finding.numbers) == numbers_of((*TOY, RERANKED))


@pytest.mark.parametrize(("stage", "tainted"), [(RANKING, [TOY]), ("code", EVERY), ("results", EVERY)])
def test_a_changed_command_is_a_finding(project, stage, tainted):
    relock(project, lambda stages: stages[stage].update(cmd="python forge.py"))
    (finding,) = verify(project).findings
    assert finding.kind == "command"
    assert "python forge.py" in finding.message and "python -m pipelines" in finding.message
    assert set(finding.numbers) == numbers_of(*tainted)


def test_the_code_folder_is_checked_without_its_listing(project):
    relock(project, lambda stages: stages["code"]["outs"][0].update(md5="0" * 32 + ".dir"))
    (finding,) = verify(project).findings
    assert (finding.kind, finding.artifact, finding.file) == ("changed", "artifacts/code", None)
    assert set(finding.numbers) == numbers_of(*EVERY)


def test_only_the_code_of_chosen_numbers_and_stray_files_count(project):
    flip(project / "artifacts/code/ranking/toytown-rootsift-vlad.json", 5)
    assert verify(project, ["toytown/tiny/hard"]).findings == ()
    (project / "artifacts/code/stray.json").write_text("{}")
    kinds = {finding.kind: finding.numbers for finding in verify(project, ["toytown/tiny/hard"]).findings}
    assert kinds == {"unexpected": ()}


def test_an_output_without_a_hash_is_not_intact(project):
    shutil.rmtree(project / "artifacts/places/ground_truth")
    relock(project, lambda stages: stages["ground_truth@places"]["outs"][0].pop("md5"))
    assert [f.kind for f in verify(project).findings if f.artifact == "artifacts/places/ground_truth"] == [
        "missing"
    ]


def commit(project) -> None:
    (project / ".gitignore").write_text("/artifacts/\n.dvc/\n")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "All"]):
        subprocess.run(["git", "-C", str(project), *command], check=True, capture_output=True)


class Sources:
    """The modules that the code files name, as files of the project; digested by their text."""

    def __init__(self, project) -> None:
        self.project = project
        self.digests: dict[bytes, str] = {}
        for file in (project / "artifacts/code").rglob("*.json"):
            for module, digest in json.loads(file.read_text())["modules"].items():
                (project / module).parent.mkdir(parents=True, exist_ok=True)
                (project / module).write_text(module)
                self.digests[module.encode()] = digest

    def digest_of(self, path, content):
        return self.digests.get(content, "0" * 64)

    def changed(self, root, record):
        return [
            path
            for path, digest in record["modules"].items()
            if not (root / path).is_file() or self.digest_of(path, (root / path).read_bytes()) != digest
        ]


def test_recorded_code_is_looked_up_in_the_history_of_git(project):
    sources = Sources(project)
    commit(project)

    def notes():
        return [
            note
            for note in verify(project, changed_code=sources.changed, digest_of=sources.digest_of).notes
            if "holds" in note
        ]

    assert notes() == []
    # Changed since, but committed once: found in the history.
    (project / "cairn/ranking.py").write_text("another")
    assert notes() == []
    commit(project)
    assert notes() == []
    # Never committed as it was when it made the artifact.
    sources.digests[b"cairn/ranking.py"] = "1" * 64
    (note,) = notes()
    assert note.startswith("no commit holds cairn/ranking.py as it made artifacts/")
    assert "2 more" in note  # three runs rank with it


def test_stored_rankings_are_scored_again_and_a_difference_taints_its_number(project):
    from dataclasses import replace

    from cairn.results import read_results, write_results

    asked = []

    def rescore(root, stage, folder):
        if stage == "results":
            shutil.copytree(root / "artifacts/results", folder, dirs_exist_ok=True)
            return
        asked.append(stage)
        artifact = yaml.safe_load((root / "dvc.lock").read_text())["stages"][stage]["outs"][0]["path"]
        shutil.copytree(root / artifact, folder, dirs_exist_ok=True)
        rows = read_results(root / artifact / "scores.parquet")
        if stage.endswith("tiny-histogram"):
            rows = [replace(r, value=r.value + 1e-9) if r.name.slice == "hard" else r for r in rows]
        write_results(folder / "scores.parquet", rows)

    (finding,) = verify(project, rescore=rescore).findings
    assert len(asked) == len(runs())
    assert (finding.kind, finding.numbers) == ("score", ("toytown/tiny-histogram/-/-/global/hard/map",))
    assert finding.expected != finding.found and "value" in finding.message
    # By other scoring code it is a note: nothing says that the stored number was wrong.
    other = verify(project, changed_code=lambda root, record: ["cairn/scores.py"], rescore=rescore)
    assert other.findings == () and any("other scoring code" in note for note in other.notes)
    # What is not as it was recorded is not scored: it is a finding already.
    asked.clear()
    flip(project / "artifacts/toytown/ground_truth/relevance.parquet")
    verify(project, rescore=rescore)
    assert asked == ["scores@places-rootsift-vlad"]


def test_scores_that_cannot_be_computed_again_are_a_note(project):
    def rescore(root, stage, folder):
        raise ArtifactError("no such metric")

    verification = verify(project, rescore=rescore)
    assert verification.findings == () and not verification.rescored
    assert sum("cannot be scored again: no such metric" in note for note in verification.notes) == len(runs())
    assert "artifacts/results cannot be made again: no such metric" in verification.notes
