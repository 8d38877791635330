"""Geometric verification: matches and scores by hand, homographies that are known, implausible ones."""

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.cache import Cache
from cairn.encoders.rootsift import RootSift
from cairn.errors import ArtifactError
from cairn.rerank import (
    IMAGES_FILE,
    QUERIES_FILE,
    Geometry,
    RerankParameters,
    geometry,
    load_reranker,
    reranker_code,
)
from cairn.rerank.geometry import (
    UNVERIFIED,
    inliers,
    matches,
    mixed_score,
    plausible,
    reordered,
    rerank,
    stage,
)
from cairn.rerank.two_stage import RankedQuery
from cairn.store.local import write_local

PLAIN = Geometry()


def picture(seed: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, (40, 50), np.uint8)
    return cv2.resize(noise, (300, 240), interpolation=cv2.INTER_CUBIC)


def unit(*rows: tuple[float, ...]) -> np.ndarray:
    array = np.array(rows, np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


def test_matches_by_hand():
    query = unit((1, 0, 0), (0, 1, 0), (0.9, 0.1, 0))
    image = unit((0, 1, 0.1), (1, 0.02, 0), (0, 0, 1))
    # Rows 0 and 2 of the query are both nearest to row 1 of the image, whose nearest is row 0: mutual.
    rows, columns = matches(query, image, 0.85)
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_a_match_needs_a_clearly_worse_second():
    image = unit((1, 0.10, 0), (1, 0.101, 0))
    assert len(matches(unit((1, 0, 0)), image, 0.85)[0]) == 0  # two are equally near
    assert len(matches(unit((1, 0.1, 0)), unit((1, 0.1, 0), (0, 1, 0)), 0.85)[0]) == 1
    assert len(matches(unit((1, 0, 0)), unit((1, 0, 0)), 0.85)[0]) == 0  # no second at all
    assert len(matches(np.zeros((0, 3), np.float32), image, 0.85)[0]) == 0
    # Distances: to the first √(2 − 2·0.8) = 0.632, to the second √(2 − 2·0.6) = 0.894; their ratio is 0.707.
    first_and_second = np.array([[0.8, 0.6], [0.6, 0.8]], np.float32)
    query = np.array([[1, 0]], np.float32)
    assert len(matches(query, first_and_second, 0.70)[0]) == 0
    assert len(matches(query, first_and_second, 0.71)[0]) == 1


def test_mixed_score_by_hand():
    parameters = Geometry(weight=2, saturation=30, minimum=6)
    mixed = mixed_score(np.full(4, 0.5, np.float32), np.array([0, 5, 6, 35]), parameters)
    assert mixed.tolist() == pytest.approx([0.5, 0.5, 0.5 + 2 / 31, 0.5 + 1], abs=1e-6)


@given(st.lists(st.integers(0, 500), min_size=2, max_size=20))
def test_more_inliers_never_lower_a_score(counts: list[int]):
    mixed = mixed_score(np.zeros(len(counts), np.float32), np.array(counts), PLAIN)
    order = np.argsort(counts, kind="stable")
    assert (np.diff(mixed[order]) >= 0).all() and (mixed >= 0).all() and (mixed <= PLAIN.weight).all()


def ranked(scores: list[float], rows: list[int]) -> RankedQuery:
    names = tuple(f"i{row}" for row in rows)
    count = len(rows)
    return RankedQuery("q", names, np.array(rows), np.arange(count), np.array(scores, np.float32), count)


def test_reordering_moves_the_shortlist_only_and_breaks_ties_by_row():
    query = ranked([0.9, 0.8, 0.7, 0.6], [7, 5, 3, 1])
    new = reordered(query, np.array([0, 1, 2]), np.array([0.9, 1.5, 1.5], np.float32))
    assert [query.image_ids[position] for position in new.order] == ["i3", "i5", "i7", "i1"]
    assert new.rank.tolist() == [0, 1, 2, 3]
    assert new.score.tolist() == pytest.approx([1.5, 1.5, 0.9, 0.6])


@pytest.mark.parametrize("angle", [0, 25, 140])
def test_a_known_homography_has_many_inliers_and_another_image_none(angle: int):
    turn = np.vstack([cv2.getRotationMatrix2D((150, 120), angle, 0.8), [0, 0, 1]])
    turn = np.array([[1, 0, 0], [0, 1, 0], [4e-4, 2e-4, 1]]) @ turn
    extract = RootSift(400, None, 0.02)
    one = extract(picture(0))
    other = extract(cv2.warpPerspective(picture(0), turn, (300, 240)))
    assert inliers(one, other, PLAIN) > 40
    assert inliers(one, extract(picture(1)), PLAIN) < PLAIN.minimum  # by chance a few agree
    assert inliers(one, extract(np.zeros((50, 50), np.uint8)), PLAIN) == 0
    assert inliers(extract(np.zeros((50, 50), np.uint8)), one, PLAIN) == 0
    assert inliers(one, one, PLAIN) == inliers(one, one, PLAIN) > 100


def test_a_mirrored_image_is_not_a_view():
    extract = RootSift(400, None, 0.02)
    assert inliers(extract(picture(0)), extract(picture(0)[:, ::-1].copy()), PLAIN) < PLAIN.minimum


def test_plausible_by_hand():
    points = np.array([[0, 0], [10, 0], [0, 10], [10, 10]], float)
    assert plausible(np.eye(3), points)
    assert plausible(-np.eye(3), points)  # a homography's sign is free
    assert not plausible(np.diag([-1.0, 1, 1]), points)  # mirrored
    assert plausible(np.diag([7.9, 7.9, 1]), points) and not plausible(np.diag([8.1, 8.1, 1]), points)
    assert plausible(np.diag([0.09, 0.09, 1]), points) and not plausible(np.diag([0.07, 0.07, 1]), points)
    assert plausible(np.diag([4.9, 1, 1]), points) and not plausible(np.diag([5.1, 1, 1]), points)
    horizon = np.array([[1, 0, 0], [0, 1, 0], [-0.2, 0, 1]])  # points with x > 5 lie behind it
    assert not plausible(horizon, points)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Local features of three queries, each a crop of one of six images."""
    folder = tmp_path_factory.mktemp("local")
    extract = RootSift(300, None, 0.02)
    images = {f"i{seed}": extract(picture(seed)) for seed in range(6)}
    queries = {f"q{seed}": extract(picture(seed)[20:220, 30:280].copy()) for seed in range(3)}
    for name, features in ((QUERIES_FILE, queries), (IMAGES_FILE, images)):
        write_local(
            folder / name,
            list(features),
            features.values(),
            dim=128,
            keypoints=300,
            dtype="uint8",
            metadata={},
        )
    return folder


def rankings() -> list[RankedQuery]:
    names = tuple(f"i{row}" for row in range(5, -1, -1))
    scores = np.linspace(0.5, 0.3, 6).astype(np.float32)
    return [
        RankedQuery(f"q{query}", names, np.arange(5, -1, -1), np.arange(6), scores, 6) for query in range(3)
    ]


def test_reranking_puts_the_verified_image_first_with_any_number_of_processes(stored):
    parameters = RerankParameters(method="geometry", shortlist=5)
    alone = list(rerank(rankings(), stored, parameters, processes=1))
    for number, (query, (new, extra)) in enumerate(zip(rankings(), alone, strict=True)):
        assert extra["inliers"].dtype == np.int32 and extra["inliers"][5] == UNVERIFIED
        if number:  # i0, the match of q0, stands behind the shortlist
            assert query.image_ids[new.order[0]] == f"i{number}"
            assert extra["inliers"][5 - number] > 30
        else:
            assert new.order.tolist() == list(range(6))
    for (one, extra), (other, more) in zip(
        alone, rerank(rankings(), stored, parameters, processes=2), strict=True
    ):
        assert np.array_equal(one.order, other.order) and np.array_equal(one.score, other.score)
        assert np.array_equal(extra["inliers"], more["inliers"])


def test_an_interrupted_verification_goes_on(stored, tmp_path, monkeypatch):
    parameters = RerankParameters(method="geometry", shortlist=5)
    whole = list(rerank(rankings(), stored, parameters, processes=1))
    cache = Cache(tmp_path)
    started = rerank(rankings(), stored, parameters, processes=1, cache=cache, code="c")
    next(started)
    next(started)
    del started  # as an interruption leaves it
    done, original = [], geometry._verify
    monkeypatch.setattr(geometry, "_verify", lambda task: done.append(task[0]) or original(task))

    def again(code: str = "c", **changes: float) -> list[str]:
        done.clear()
        asked = RerankParameters(method="geometry", shortlist=5, geometry=Geometry.model_validate(changes))
        found = list(rerank(rankings(), stored, asked, processes=1, cache=cache, code=code))
        if not changes:
            for (one, extra), (other, more) in zip(whole, found, strict=True):
                assert np.array_equal(one.order, other.order) and np.array_equal(one.score, other.score)
                assert np.array_equal(extra["inliers"], more["inliers"])
        return list(done)

    assert again() == ["q2"] and again() == []
    # How inliers count is no part of what is kept; what decides them is.
    assert again(weight=2.0) == []
    assert again(ratio=0.8) == again(code="d") == ["q0", "q1", "q2"]
    # An entry that is not what it should be is made again.
    for entry in tmp_path.glob("??/*"):
        cache.put(entry.name, b"short")
    assert again(code="d") == ["q0", "q1", "q2"]


def test_missing_features_and_short_rankings_are_told(stored):
    query = RankedQuery("q0", ("absent",), np.array([0]), np.array([0]), np.ones(1, np.float32), 1)
    with pytest.raises(ArtifactError, match="no local descriptors of absent"):
        list(rerank([query], stored, RerankParameters(method="geometry"), processes=1))
    cut = RankedQuery("q0", ("i0", "i1"), np.array([0, 1]), np.array([0, 5]), np.ones(2, np.float32), 6)
    with pytest.raises(ArtifactError, match=r"raise search\.top to at least 3"):
        list(rerank([cut], stored, RerankParameters(method="geometry", shortlist=3)))


def test_methods_are_found_by_name():
    assert load_reranker("none") is None and reranker_code({"method": "none"}).modules == ()
    assert reranker_code({"method": "geometry"}).modules == ("cairn.rerank.geometry",)
    assert stage(RerankParameters(method="geometry", shortlist=40)) == "geometry-k40"
