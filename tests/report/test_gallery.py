"""The gallery picture: which queries, which borders, the same bytes each time."""

from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cairn.benchmarks.structure import GroundTruth, Query, write_ground_truth
from cairn.errors import ArtifactError, ImageError
from cairn.files import write_json
from cairn.images.manifest import build_manifest, list_entries, write_manifest
from cairn.report.canvas import Canvas, fit, text_width, write_on
from cairn.report.gallery import GREEN, GREY, RED, grade_color, pick_queries, write_gallery

IMAGES = 6


class Run:
    """Artifacts of a tiny run: six images, three queries, two stages."""

    def __init__(self, root: Path, stage: str | None = "geometry-k100", synthetic: bool = True) -> None:
        self.root = root
        base = root / "artifacts/toytown"
        (root / "images").mkdir(parents=True)
        for number in range(IMAGES):
            shape = (60, 90, 3) if number % 2 else (90, 60, 3)
            pixels = np.full(shape, (40 * number, 255 - 40 * number, 128), np.uint8)
            (root / f"images/i{number}.png").write_bytes(cv2.imencode(".png", pixels)[1].tobytes())
        self.manifest = base / "manifest"
        self.manifest.mkdir(parents=True)
        entries = list_entries("images", root, gallery=True, query=True)
        write_manifest(build_manifest(entries, root, workers=1), self.manifest / "manifest.parquet")
        queries = (
            Query("q0", "i0.png", (5.0, 5.0, 40.0, 60.0)),
            Query("q1", "i1.png"),
            Query(
                "q2", None, None, "a red door\x1b with a very long description that needs more than one line"
            ),
        )
        relevance = {q: {"i1.png": "easy", "i2.png": "hard", "i0.png": "junk"} for q in ("q0", "q1", "q2")}
        self.ground_truth = base / "ground_truth"
        write_ground_truth(self.ground_truth, GroundTruth(queries, relevance))
        write_json(self.ground_truth / "benchmark.json", {"name": "toytown", "synthetic": synthetic})
        self.ranking, self.reranking = base / "tiny/ranking", base / "tiny/reranking"
        self.write_ranking(self.ranking / "ranking.parquet", range(IMAGES))
        write_json(self.ranking / "ranking.json", {"stage": "global"})
        write_json(self.reranking / "reranking.json", {"stage": stage})
        self.per_query = root / "per_query.parquet"
        values = {"global": (0.9, 0.5, 0.1)}
        if stage:
            self.write_ranking(self.reranking / "reranked.parquet", reversed(range(IMAGES)))
            values[stage] = (0.9, 0.6, 0.4)
        rows = [
            {"stage": name, "slice": "medium", "metric": "map", "query_id": f"q{i}", "value": value}
            for name, each in values.items()
            for i, value in enumerate(each)
        ]
        pq.write_table(pa.Table.from_pylist(rows), self.per_query)

    def write_ranking(self, path: Path, rows) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        order = list(rows)
        records = [
            {
                "query_id": f"q{q}",
                "rank": rank,
                "image_row": row,
                "image_id": f"i{row}.png",
                "score": 1 / (1 + rank),
            }
            for q in range(3)
            for rank, row in enumerate(order)
        ]
        pq.write_table(pa.Table.from_pylist(records), path)

    def draw(self, name: str = "gallery.png", **more) -> np.ndarray:
        output = self.root / name
        write_gallery(
            self.ranking,
            self.reranking,
            self.ground_truth,
            self.manifest,
            self.per_query,
            self.root,
            output,
            **more,
        )
        return cv2.imread(str(output))


def count(pixels: np.ndarray, color: tuple[int, int, int]) -> int:
    return int((pixels == np.array(color, np.uint8)).all(axis=2).sum())


def test_the_same_artifacts_give_the_same_bytes(tmp_path):
    run = Run(tmp_path)
    run.draw("a.png")
    run.draw("b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_borders_tell_positive_negative_and_junk(tmp_path):
    pixels = Run(tmp_path).draw()
    green, red, grey = (count(pixels, color) for color in (GREEN, RED, GREY))
    # Three queries, two stages each; of six images two are positive, three negative, one junk.
    assert red > green > grey > 0


def test_without_reranking_there_is_one_strip_per_query(tmp_path):
    one = Run(tmp_path / "one", stage=None).draw()
    two = Run(tmp_path / "two").draw()
    assert one.shape[0] < two.shape[0]
    assert one.shape[1] == two.shape[1]


def test_synthetic_is_written_into_the_picture(tmp_path):
    drawn = Run(tmp_path / "a", synthetic=True).draw()
    real = Run(tmp_path / "b", synthetic=False).draw()
    head = slice(0, 45)
    assert (drawn[head] < 128).sum() > (real[head] < 128).sum() > 0
    np.testing.assert_array_equal(drawn[90:], real[90:])


def test_the_query_box_is_drawn_where_it_is(tmp_path):
    run = Run(tmp_path)
    with_box = run.draw()
    queries = (Query("q0", "i0.png"), Query("q1", "i1.png"), Query("q2", None, None, "a red door"))
    write_ground_truth(run.ground_truth, GroundTruth(queries, {"q0": {"i1.png": "easy"}}))
    write_json(run.ground_truth / "benchmark.json", {"name": "toytown", "synthetic": True})
    without = run.draw()
    box = (0, 190, 255)
    assert count(with_box, box) > count(without, box) + 200


@pytest.mark.parametrize(
    ("grade", "color"), [("positive", GREEN), ("easy", GREEN), ("hard", GREEN), ("junk", GREY), (None, RED)]
)
def test_grade_colors(grade, color):
    assert grade_color(grade) == color


def test_best_median_worst_and_most_gained():
    values = {
        "global": {"a": 0.9, "b": 0.5, "c": 0.1, "d": 0.2, "e": 0.3},
        "geometry-k100": {"a": 0.9, "b": 0.6, "c": 0.1, "d": 0.7, "e": 0.3},
    }
    assert pick_queries(values, ["global", "geometry-k100"], list("abcdef")) == [
        ("best", "a"),
        ("median", "b"),
        ("worst", "c"),
        ("gains most from geometric rerank", "d"),
    ]


def test_one_query_is_shown_once_and_ties_go_by_order():
    assert pick_queries({"global": {"x": 0.5}}, ["global"], ["x"]) == [("best, median, worst", "x")]
    even = {"global": dict.fromkeys("cab", 0.5)}
    assert [query for _, query in pick_queries(even, ["global"], list("abc"))] == ["a", "b", "c"]
    assert pick_queries({}, ["global"], list("abcd")) == [("query", q) for q in "abc"]


def test_a_ranking_of_other_images_is_refused(tmp_path):
    run = Run(tmp_path)
    table = pq.read_table(run.ranking / "ranking.parquet")
    wrong = pa.array([99] * len(table), pa.int64())
    pq.write_table(table.set_column(2, "image_row", wrong), run.ranking / "ranking.parquet")
    with pytest.raises(ArtifactError, match="the manifest has not"):
        run.draw()
    assert not (tmp_path / "gallery.png").exists()


def test_a_changed_image_is_refused(tmp_path):
    run = Run(tmp_path)
    file = tmp_path / "images/i3.png"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(ImageError, match=r"i3\.png"):
        run.draw()


def test_fit_keeps_proportions():
    picture = fit(np.zeros((100, 400, 3), np.uint8), 80, 60)
    assert picture.pixels.shape == (20, 80, 3)
    assert picture.scale == 0.2
    assert fit(np.zeros((1, 5000, 3), np.uint8), 80, 60).pixels.shape == (1, 80, 3)


def test_words_stay_inside_their_width():
    canvas = Canvas(400, 200)
    write_on(canvas, "word " * 100, 20, 30, 150, (0, 0, 0), 14)
    dark = np.argwhere((canvas.pixels < 128).any(axis=2))
    assert dark[:, 1].max() <= 20 + 150 + text_width(" …", 14)
    assert len(dark) > 0
