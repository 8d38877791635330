"""Every published benchmark, from its own files to the common structure, through the steps of the graph."""

import gzip
import hashlib
import json
import pickle
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from assets.ground_truth import ground_truth
from assets.manifest import manifest
from assets.sources import sources
from assets.step import Job
from cairn.benchmarks.adapters import load_adapter
from cairn.benchmarks.known import entry_of, known_benchmarks
from cairn.benchmarks.published import fetch_published, write_published
from cairn.benchmarks.structure import GroundTruth, read_ground_truth
from cairn.errors import CairnError, ImageError, InputError, SourceError
from cairn.images.manifest import ImageSource, Manifest, read_manifest
from cairn.metrics.evaluate import parse_protocol
from cairn.parameters import load_parameters, validate
from tests.benchmarks import publications as published
from tests.fetch.server import Server, running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> "Project":
    server.files.clear()
    server.log.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAIRN_MIRROR", server.url)
    monkeypatch.setenv("CAIRN_WORKERS", "1")
    return Project(tmp_path, server)


class Project:
    """A project folder in which the three steps of a benchmark run, as the graph runs them."""

    def __init__(self, root: Path, server: Server) -> None:
        self.root = root
        self.server = server

    def serve(self, files: Mapping[str, bytes]) -> None:
        for address, data in files.items():
            self.server.put(address, data)

    def run(self, name: str, **changes: Any) -> tuple[GroundTruth, Manifest]:
        """Sources, manifest and ground truth of a known benchmark, with changed settings."""
        parameters = self.parameters(name, **changes)
        for step, inputs in (
            (sources, ()),
            (manifest, ("sources",)),
            (ground_truth, ("sources", "manifest")),
        ):
            self.step(step, name, inputs, parameters)
        folder = self.root / "artifacts" / name
        return read_ground_truth(folder / "ground_truth"), read_manifest(
            folder / "manifest" / "manifest.parquet"
        )

    def step(self, step: Any, name: str, inputs: tuple[str, ...], parameters: Mapping[str, Any]) -> None:
        base = Path("artifacts") / name
        output = self.root / base / step.__name__
        output.mkdir(parents=True)
        step(
            Job(
                root=self.root,
                benchmark=name,
                system="",
                inputs={each: base / each for each in inputs},
                output=output,
                parameters=parameters,
                digest="",
                features="",
            )
        )

    def truth_alone(self, name: str) -> tuple[Any, dict[str, Any]]:
        """The adapter and settings of a benchmark whose truth files lie in the folder `truth`."""
        parameters = self.parameters(name)
        adapter, settings = load_adapter(parameters["adapter"], name), parameters["settings"]
        found = fetch_published(adapter.SOURCES, adapter.parts(settings), settings, self.root, only="truth")
        (self.root / "truth").mkdir()
        write_published(found, self.root, self.root / "truth")
        return adapter, settings

    @staticmethod
    def parameters(name: str, **changes: Any) -> dict[str, Any]:
        entry = entry_of(name)
        assert entry is not None
        adapter = entry.pop("adapter")
        entry.pop("metric", None)
        model = load_adapter(adapter, name).Parameters
        return {"adapter": adapter, "settings": validate(model, {**entry, **changes}, name)}

    def sources(self, name: str) -> dict[str, dict[str, Any]]:
        """`sources.json` by name."""
        listed = json.loads((self.root / "artifacts" / name / "sources" / "sources.json").read_text())[
            "sources"
        ]
        return {entry["name"]: entry for entry in listed}


def gallery(manifest: Manifest) -> list[str]:
    return [manifest.image_id[row] for row in manifest.rows(gallery=True)]


def queries(manifest: Manifest) -> list[str]:
    return [manifest.image_id[row] for row in manifest.rows(query=True)]


def gldv2_with_damage(*numbers: int) -> dict[str, bytes]:
    """The index images with these numbers are no images; their archives have the MD5 of what they hold."""
    files = published.gldv2()
    for n in numbers:
        data = published.tar({f"0/0/0/{n:016x}.jpg": b"\xff\xd8 no picture"})
        files[f"{published.S3}/index/images_{n:03d}.tar"] = data
        digest = hashlib.md5(data).hexdigest()
        files[f"{published.S3}/md5sum/index/md5.images_{n:03d}.txt"] = (
            f"{digest}  images_{n:03d}.tar\n".encode()
        )
    return files


def test_damaged_distractors_are_left_out_listed_and_said_where_that_is_asked_for(project):
    project.serve(gldv2_with_damage(20, 41))
    truth, images = project.run("gldv2", damaged=2)
    assert len(gallery(images)) == 98 and f"{20:016x}" not in images.image_id
    artifact = project.root / "artifacts" / "gldv2"
    listed = json.loads((artifact / "manifest" / "damaged.json").read_text())
    assert listed["left_out"] == 2
    assert [each["image_id"] for each in listed["images"]] == [f"{20:016x}", f"{41:016x}"]
    assert all("corrupt" in each["reason"] or "JPEG" in each["reason"] for each in listed["images"])
    notes = json.loads((artifact / "ground_truth" / "benchmark.json").read_text())["notes"]
    assert any(note.startswith("2 damaged images are left out") for note in notes)
    assert len(truth.queries) == 3


@pytest.mark.parametrize(
    ("numbers", "allowed", "complaint"),
    [
        ((20, 41), 1, r"2 images are damaged; `damaged` lets 1 be left out"),
        ((20, 41), 0, r"2 of 103 images are damaged\); replace it, or let some .*`damaged: 1` in the"),
        ((5,), 9, r"0000000000000005 .*it is a query or judged"),
    ],
)
def test_damaged_images_beyond_what_is_allowed_stop_the_manifest(project, numbers, allowed, complaint):
    project.serve(gldv2_with_damage(*numbers))
    with pytest.raises(ImageError, match=complaint):
        project.run("gldv2", damaged=allowed)


def test_without_damage_the_list_is_empty_and_nothing_is_said(project):
    project.serve(published.roxford())
    project.run("roxford5k", damaged=3)
    artifact = project.root / "artifacts" / "roxford5k"
    assert json.loads((artifact / "manifest" / "damaged.json").read_text()) == {"left_out": 0, "images": []}
    assert len(json.loads((artifact / "ground_truth" / "benchmark.json").read_text())["notes"]) == 1


def test_a_repacked_archive_gives_the_same_images(project):
    project.serve(published.roxford())
    _, images = project.run("roxford5k", repack=True)
    assert set(images.archive) == {".cairn/downloads/revisitop/oxbuild_images-v1.tgz.tar"}
    assert ImageSource(images, project.root).read(3) == published.picture(3)
    listed = project.sources("roxford5k")
    assert listed["oxbuild_images-v1.tgz"]["kind"] == "original"
    assert listed["oxbuild_images-v1.tgz"]["sha256"] in listed["oxbuild_images-v1.tgz.tar"]["note"]


def test_roxford(project):
    project.serve(published.roxford())
    truth, images = project.run("roxford5k")
    assert [query.query_id for query in truth.queries] == ["oxford_002416", "oxford_000317"]
    assert truth.queries[0].box == (1.5, 2.0, 40.0, 30.25)
    assert truth.relevance["oxford_002416"] == {
        "all_souls_000000": "easy",
        "all_souls_000001": "easy",
        "all_souls_000002": "hard",
        "all_souls_000003": "junk",
    }
    assert truth.relevance["oxford_000317"] == {
        "all_souls_000000": "junk",
        "all_souls_000004": "junk",
        "all_souls_000005": "hard",
    }
    assert gallery(images) == [f"all_souls_{n:06d}" for n in range(6)]
    assert queries(images) == ["oxford_000317", "oxford_002416"]
    assert set(images.archive) == {".cairn/downloads/revisitop/oxbuild_images-v1.tgz"}
    assert ImageSource(images, project.root).read(3) == published.picture(3)
    assert (project.root / ".cairn/downloads/revisitop/oxbuild_images-v1.tgz.gzidx").is_file()
    entries = project.sources("roxford5k")
    assert set(entries) == {"ground_truth/gnd_roxford5k.pkl", "oxbuild_images-v1.tgz"}
    assert all(entry["verified"] is False and entry["licence"] for entry in entries.values())


def test_the_step_finds_what_was_fetched_and_writes_the_same(project):
    project.serve(published.roxford())
    project.run("roxford5k")
    before = (project.root / "artifacts/roxford5k/sources/sources.json").read_bytes()
    project.server.files.clear()
    (project.root / "artifacts").rename(project.root / "old")
    project.run("roxford5k")
    assert (project.root / "artifacts/roxford5k/sources/sources.json").read_bytes() == before


def test_distractors_are_shared_and_join_the_gallery(project):
    project.serve(published.roxford(distractors=True))
    truth, images = project.run("roxford5k-1m")
    assert len(gallery(images)) == 106
    assert gallery(images)[6] == "revisitop1m/jpg/01/0001.jpg"
    assert len(truth.queries) == 2
    assert "roxford5k" not in str(
        project.sources("roxford5k-1m")["revisitop1m/revisitop1m.100.tar.gz"]["path"]
    )


def test_rparis_from_two_archives(project):
    project.serve(published.rparis())
    truth, images = project.run("rparis6k")
    assert gallery(images) == ["paris_defense_000000", "paris_eiffel_000001"]
    assert truth.relevance["paris_louvre_000002"] == {"paris_defense_000000": "easy"}


def test_gldv2(project):
    files = published.gldv2()
    project.serve(files)
    truth, images = project.run("gldv2")
    assert [(query.query_id, query.split) for query in truth.queries] == [
        ("0000000000001000", "public"),
        ("0000000000001001", "private"),
        ("0000000000001003", "private"),
    ]
    assert truth.relevance["0000000000001000"] == dict.fromkeys(
        ["0000000000000003", "0000000000000063"], "positive"
    )
    assert len(gallery(images)) == 100
    assert queries(images) == [query.query_id for query in truth.queries]
    tar = project.sources("gldv2")["index-tars/images_007.tar"]
    assert tar["verified"] is True
    assert tar["checked_by"].endswith("md5sum/index/md5.images_007.txt")


def test_a_wrong_md5_of_gldv2_stops_the_step(project):
    files = published.gldv2()
    files[f"{published.S3}/md5sum/index/md5.images_042.txt"] = published.lines(f"{'0' * 32}  images_042.tar")
    project.serve(files)
    with pytest.raises(SourceError, match=r"images_042.tar: expected md5 0{32}, found [0-9a-f]{32}"):
        project.run("gldv2")


@pytest.mark.parametrize("name", ["forb", "forb-subset"])
def test_forb(project, name):
    project.serve(published.forb(subset=name == "forb-subset"))
    truth, images = project.run(name)
    assert len(truth.queries) == 8
    assert truth.relevance["logos/1"] == {"logos/database/a5.jpg": "positive"}
    assert truth.attributes["logos/1"] == {"object": "logos", "difficulty": "hard"}
    assert len(gallery(images)) == 16
    assert "logos/query/q5.jpg" in queries(images)


def test_forb_out_of_distribution_has_distractor_queries_alone(project):
    project.serve(published.forb())
    truth, images = project.run("forb", gallery="oods")
    assert len(gallery(images)) == 8
    assert all(truth.is_distractor(query.query_id) for query in truth.queries)


def test_disc21(project):
    project.serve(published.disc21())
    truth, images = project.run("disc21", training_images=True)
    assert truth.relevance == {"Q00001": {"R000003": "positive"}, "Q00002": {"R000019": "positive"}}
    assert [query.query_id for query in truth.queries if truth.is_distractor(query.query_id)] == ["Q00000"]
    assert len(gallery(images)) == 20
    assert len(images.rows(train=True)) == 20
    assert queries(images) == ["Q00000", "Q00001", "Q00002"]


def test_disc21_by_hand(project, monkeypatch):
    monkeypatch.delenv("CAIRN_MIRROR")
    folder = project.root / ".cairn/downloads/disc21"
    for address, data in published.disc21().items():
        path = (
            folder / address.removeprefix("disc21/")
            if address.startswith("disc21/")
            else folder / address.rsplit("/", 1)[-1]
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (folder / "archives" / "references_7.zip").rename(project.root / "kept")
    with pytest.raises(
        SourceError, match=r"references_7.zip is missing; accept the terms at https://ai.meta.com"
    ):
        project.run("disc21")
    (project.root / "kept").rename(folder / "archives" / "references_7.zip")
    (project.root / "artifacts").rename(project.root / "old")
    assert len(gallery(project.run("disc21")[1])) == 20


def test_inquire(project, monkeypatch):
    files = published.inquire()
    project.serve(files)
    with pytest.raises(
        SourceError, match=r"train.tar.gz: expected md5 2b1c7d7a023114c34cfccfb663c889a8, found"
    ):
        project.run("inquire")
    (project.root / "artifacts").rename(project.root / "old")
    monkeypatch.delenv("CAIRN_MIRROR")
    hand = project.root / "hand"
    for address, data in files.items():
        name = address.rsplit("/", 1)[-1]
        if name != "train.tar.gz":
            hand.mkdir(exist_ok=True)
            (hand / name).write_bytes(data)
    for n in range(3):
        path = hand / f"train/0000{n}_Animalia_Chordata/{n}0be103-954f.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(published.picture(n))
    truth, images = project.run("inquire", directory="hand")
    assert [query.text for query in truth.queries] == [
        "A mongoose standing upright alert",
        "Fishing net, on a reef",
    ]
    assert truth.relevance["29"] == {"train/00002_Animalia_Chordata/20be103-954f.jpg": "positive"}
    assert truth.attributes["3"] == {
        "supercategory": "Behavior",
        "category": "Defensive and Survival Behaviors",
        "iconic-group": "Mammals",
    }
    assert "iconic-group" not in truth.attributes["29"]
    assert len(gallery(images)) == 3
    assert set(images.archive) == {".cairn/downloads/inquire/train"}


@pytest.mark.parametrize(("asked", "count"), [("image", 2), ("text", 2), ("all", 4)])
def test_mini_ilias(project, asked, count):
    project.serve(published.ilias())
    truth, images = project.run("mini-ilias", queries=asked)
    assert len(truth.queries) == count
    assert len(gallery(images)) == 4 + 45
    assert "mini_ilias_yfcc100m-000007.tar/07deadbeef" in gallery(images)
    assert len(queries(images)) == (0 if asked == "text" else 2)
    for query in truth.queries:
        instance = query.query_id.split("/")[0]
        assert set(truth.relevance[query.query_id]) == {i for i in gallery(images) if i.startswith(instance)}
        assert (query.text is None) == (query.split == "image")
        assert query.text in (None, "a bold thing, number 0", "a bold thing, number 1")
        assert query.box is None
    assert project.sources("mini-ilias")["ilias_core.tar"]["verified"] is True


def test_ilias_takes_its_shards_from_the_list_of_checksums(project):
    project.serve(published.ilias())
    _, images = project.run("ilias", shards=1)
    assert [image for image in gallery(images) if "yfcc" in image] == ["yfcc100m_00000.tar/000abc"]
    assert project.sources("ilias")["yfcc100m/yfcc100m_00000.tar"]["verified"] is True


def test_instre(project):
    project.serve(published.instre())
    truth, images = project.run("instre")
    name = "INSTRE-S1/01a_canada_book"
    assert truth.queries[0].box == (2.0, 3.0, 30.0, 20.0)
    assert truth.relevance == {
        f"{name}/000.jpg": {f"{name}/001.jpg": "positive", f"{name}/003.jpg": "positive"}
    }
    assert gallery(images) == [f"{name}/{n:03d}.jpg" for n in (1, 2, 3)]


def test_instre_boxes_as_sizes_and_with_distractors(project):
    project.serve(published.instre() | published.ilias())
    truth, images = project.run("instre", boxes="size", distractors="mini")
    assert truth.queries[0].box == (2.0, 3.0, 32.0, 23.0)
    assert len(gallery(images)) == 3 + 45


def test_instre_boxes_read_the_wrong_way_are_noticed(project):
    gnd = {"imlist": ["a/b/c"], "qimlist": ["a/b/q"], "gnd": [{"bbx": [20.0, 3.0, 10.0, 20.0], "ok": [0]}]}
    files = published.instre(gnd)
    files["instre/instre.tar.gz"] = published.tar(
        {"a/b/c.jpg": published.picture(0), "a/b/q.jpg": published.picture(1)}
    )
    project.serve(files)
    with pytest.raises(InputError, match=r"gnd\[0\].*empty when read as corners .see the key boxes: size"):
        project.run("instre")


PAYLOAD = b"cos\nsystem\n(S'touch hacked'\ntR."


@pytest.mark.parametrize(
    ("address", "data", "complaint"),
    [
        ("gnd", PAYLOAD, "refused pickle: it names"),
        ("gnd", b"<html>moved</html>", "not a pickle"),
        ("gnd", pickle.dumps({"imlist": []}), "qimlist"),
        ("gnd", published.roxford().popitem()[1][:100], "not a pickle"),
        (
            "images",
            published.tar({"../../evil.jpg": published.picture(0)}, "w:gz"),
            "leads out of the archive",
        ),
        ("images", published.tar({"/etc/evil.jpg": published.picture(0)}, "w:gz"), "absolute"),
        ("images", published.roxford().popitem()[1][:2000], "not a readable|ends inside|are not in"),
        ("images", b"\x1f\x8b" + b"\0" * 300, "not a readable"),
        ("images", b"no archive at all", "neither a folder nor a tar"),
        (
            "images",
            published.tar({"all_souls_000000.jpg": published.picture(0)}, "w:gz"),
            "5 of 6 gallery images are not in",
        ),
        (
            "images",
            published.tar({f"{k}/all_souls_000000.jpg": published.picture(0) for k in "ab"}, "w:gz"),
            "is in .*a/all_souls_000000.jpg.* and in .*b/all_souls_000000.jpg",
        ),
    ],
)
def test_hostile_files_are_one_line(project, address, data, complaint):
    files = published.roxford()
    files[next(key for key in files if address in key)] = data
    project.serve(files)
    with pytest.raises(CairnError, match=complaint) as error:
        project.run("roxford5k")
    assert "\n" not in str(error.value)
    assert not list(project.root.rglob("hacked"))
    assert not list(project.root.rglob("evil.jpg"))


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("linkname", "/etc/passwd", "is a link or a device"),
        ("size", 1 << 32, "has 4294967296 bytes"),
    ],
)
def test_links_and_bombs_in_an_archive_are_refused(project, field, value, complaint):
    member = tarfile.TarInfo("all_souls_000000.jpg")
    member.type = tarfile.SYMTYPE if field == "linkname" else tarfile.REGTYPE
    setattr(member, field, value)
    files = published.roxford()
    address = next(key for key in files if "images" in key)
    files[address] = gzip.compress(member.tobuf() + bytes(10_240))
    project.serve(files)
    with pytest.raises(SourceError, match=complaint):
        project.run("roxford5k")


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("gldv2", {f"{published.S3}/metadata/index.csv": b"identifier\nx\n"}, r"index.csv:1: .*expected id"),
        ("gldv2", {f"{published.S3}/metadata/test.csv": b"id\nother\n"}, "is not in test.csv"),
        ("forb", {f"{published.FORB}/logos_gt.ndjson": b"{}\n"}, r"logos_gt.ndjson:1: query_id"),
        (
            "forb",
            {
                f"{published.FORB}/logos_gt.ndjson": published.lines(
                    '{"query_id": 1, "query_image": "a/b/c.jpg", "groundtruth_ids": [3]}'
                )
            },
            "image 3 does not exist; logos has 1 to 2",
        ),
        ("forb", {f"{published.FORB}/all_database_images.txt": b"a/b/c.jpg\na/b/c.jpg\n"}, "listed twice"),
        (
            "mini-ilias",
            {f"{published.ILIAS}/image_ids/positive_ids.txt": b"bold_bimp_000/pos/P000_00.jpg\n"},
            "positive_ids.txt:1",
        ),
    ],
)
def test_malformed_truth_names_file_and_line(project, name, change, complaint):
    files = {"gldv2": published.gldv2, "forb": published.forb, "mini-ilias": published.ilias}[name]()
    project.serve(files | change)
    adapter, settings = project.truth_alone(name)
    with pytest.raises(InputError, match=complaint):
        # The lists of images are read before any archive is.
        adapter.ground_truth(settings, project.root, Path("truth"))
        adapter.images(settings, project.root, Path("truth"))


def test_every_known_benchmark_has_valid_settings_and_a_metric_that_is_known(tmp_path):
    benchmarks = {name: {**(entry_of(name) or {}), "training": name} for name in known_benchmarks()}
    (tmp_path / "params.yaml").write_text(json.dumps({"benchmarks": benchmarks}))
    loaded = load_parameters(tmp_path / "params.yaml").benchmarks
    assert set(loaded) == set(known_benchmarks())
    for entry in loaded.values():
        assert parse_protocol(entry["metric"])
