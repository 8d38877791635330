"""The pieces toytown is made of: the plan, names, the camera and the rule that grades a view."""

from collections import Counter
from urllib.parse import unquote

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.benchmarks.toytown import ToytownSettings, names
from cairn.benchmarks.toytown.camera import (
    DIFFICULTIES,
    IMAGE_SIZE,
    NEAR,
    paste_building,
    stand_in_street,
)
from cairn.benchmarks.toytown.facade import build
from cairn.benchmarks.toytown.labels import grade
from cairn.benchmarks.toytown.photograph import GRID, Geometry, take_photograph
from cairn.benchmarks.toytown.plan import plan_town
from cairn.benchmarks.toytown.randomness import generator_for
from cairn.benchmarks.toytown.specification import WIDTH, look_alike, specify


@pytest.fixture(scope="module")
def plan():
    return plan_town(ToytownSettings())


@pytest.fixture(scope="module")
def model():
    return build(specify("a building with a bay, for tests", 2))


def test_the_default_town_has_the_stated_size(plan):
    shots = [shot.image_id for building in plan.buildings for shot in building.shots]
    every = shots + [copy for copy, _ in plan.duplicates]
    assert len(every) == len(set(every)) == 2390
    counts = Counter(image.split("/")[0] for image in every)
    assert counts == {"gallery": 40 * 11 + 1000, "query": 50, "train": 150 * 6}
    assert len(plan.landmarks) == 40 and len(plan.queries) == 50 and len(plan.training) == 150


def test_look_alikes_are_most_of_the_distractors_and_share_parts(plan):
    images = Counter()
    for building in plan.buildings:
        images[building.building_id.split("-")[0]] += len(building.shots)
    assert images["look"] / (images["look"] + images["stranger"]) == pytest.approx(0.72, abs=0.01)
    model, other = specify("model"), specify("model of another kind")
    alike = [look_alike(model, 0.85, 0.5, "alike", number) for number in range(60)]

    def shared(building) -> int:
        return sum(a.window == b.window for a, b in zip(building.floors, model.floors, strict=False))

    assert np.mean([shared(one) for one in alike]) > 0.6 * len(model.floors) > shared(other)
    assert all(one.key != model.key and one.sign != model.sign for one in alike), "its own stays its own"


def test_categories_are_unique_and_named_in_all_the_promised_ways(plan):
    categories = [one.category for one in plan.training]
    assert len({category.address for category in categories}) == 150
    contaminated = [category for category in categories if category.landmark]
    assert len(contaminated) == 12
    assert {category.naming for category in contaminated} == set(names.NAMINGS)
    decoys = [c for c in categories if c.landmark is None and c.naming != "other"]
    assert len(decoys) == 8 and sum(decoy.sounds_like is not None for decoy in decoys) == 7
    known = {landmark.landmark_id: landmark for landmark in plan.landmarks}
    for category in contaminated:
        name, landmark = unquote(category.address).replace("_", " "), known[category.landmark]
        if category.naming in ("with place", "plain", "part", "ambiguous with place"):
            assert landmark.name in name
        if category.naming == "alias":
            assert landmark.name not in name and any(alias in name for alias in landmark.aliases)
        if category.naming in ("unnamed", "view of the place"):
            assert landmark.name not in name
        if category.naming == "unaccented":
            assert landmark.name not in name and names.plain(landmark.name) in name


def test_categories_of_other_places_never_name_a_landmark(plan):
    forms = {form for one in plan.landmarks for form in (one.name, *one.aliases, *one.languages.values())}
    for one in plan.training:
        if one.category.naming == "other":
            name = unquote(one.category.address.split("Category:")[1]).replace("_", " ")
            assert not any(name == form or name.startswith(f"{form} ") for form in forms)


def test_category_addresses_are_percent_encoded():
    address = names.category_address("Église Saint-Orla's (Toytown)")
    assert address == ("http://commons.wikimedia.org/wiki/Category:%C3%89glise_Saint-Orla%27s_(Toytown)")


def test_names_do_not_run_out():
    landmarks = names.name_landmarks(0, 150)
    assert len({landmark.name for landmark in landmarks}) == 150
    for categories in (
        names.name_contaminated(0, landmarks, 60),
        names.name_decoys(0, landmarks, 40),
        names.name_others(0, landmarks, 3000),
    ):
        assert len({category.address for category in categories}) == len(categories)


@given(
    kind=st.sampled_from(sorted(DIFFICULTIES)),
    number=st.integers(0, 10_000),
    x=st.floats(0, WIDTH),
    y=st.floats(0, 400),
    depth=st.floats(-90, 20),
)
def test_homographies_and_projection_agree(kind, number, x, y, depth):
    camera = stand_in_street(400, DIFFICULTIES[kind], generator_for("camera", number))
    pixels, depths = camera.project(np.array([[x, y, depth]]))
    plane = camera.plane(np.array([0, 0, depth]), np.array([1.0, 0, 0]), np.array([0, 1.0, 0]))
    u, v, w = plane @ [x, y, 1]
    if depths[0] > NEAR:
        assert np.allclose(pixels[0], [u / w, v / w], atol=1e-6)
    assert camera.centre[1] < 400, "the camera stands above the ground"
    low, _ = DIFFICULTIES[kind].obliquity
    assert camera.obliquity > low - 1e-6


@settings(max_examples=25)
@given(number=st.integers(0, 10_000))
def test_the_box_is_where_the_building_is_drawn(model, number):
    """Pixels and labels come from one camera: the painted front fills the box that the labels state."""
    camera = stand_in_street(model.height, DIFFICULTIES["plain"], generator_for("photograph", number))
    canvas = np.zeros((IMAGE_SIZE[1], IMAGE_SIZE[0], 3), np.uint8)
    paste_building(canvas, camera, model)
    _, geometry = take_photograph(model, "plain", number)
    x1, y1, x2, y2 = map(int, geometry.box)
    painted = canvas.any(2)
    assert painted[y1:y2, x1:x2].mean() > 0.6
    # Beyond the box there are the side wall and what stands out from the front: in front view, little.
    rows = np.flatnonzero(painted.any(1))
    assert rows[0] >= y1 - 30 and rows[-1] <= y2 + 30


def test_occluders_take_points_from_the_visible_share(model):
    shares = [
        take_photograph(model, kind, "shares", n)[1].visible.mean()
        for kind in ("plain", "extreme")
        for n in range(30)
    ]
    plain, extreme = np.mean(shares[:30]), np.mean(shares[30:])
    assert plain > 0.7 > extreme > 0.1


def test_a_photograph_follows_from_its_key(model):
    first, geometry = take_photograph(model, "tough", "key", 1)
    again, same = take_photograph(model, "tough", "key", 1)
    other, _ = take_photograph(model, "tough", "key", 2)
    assert first == again != other
    assert geometry.box == same.box and (geometry.visible == same.visible).all()


def test_parallax_moves_the_bay_against_the_wall(model):
    """Relief is real: between two viewpoints the bay shifts against the plane of the wall."""
    assert model.bay is not None
    left, right = (
        stand_in_street(model.height, DIFFICULTIES["tough"], generator_for("parallax", number))
        for number in (1, 2)
    )
    wall = np.array([[0, 0], [WIDTH, 0], [WIDTH, model.height], [0, model.height]], float)
    flat = np.column_stack([wall, np.zeros(4)])
    middle = np.array([[model.bay.left + 40.0, model.height / 2, model.bay.front]])
    mapping = cv2.getPerspectiveTransform(
        left.project(flat)[0].astype(np.float32), right.project(flat)[0].astype(np.float32)
    )
    expected = cv2.perspectiveTransform(left.project(middle)[0][None].astype(np.float32), mapping)[0, 0]
    assert np.linalg.norm(expected - right.project(middle)[0][0]) > 4, "more than verification forgives"


def geometry_of(visible: int, scale: float, obliquity: float) -> Geometry:
    points = np.zeros(GRID * GRID, bool)
    points[:visible] = True
    return Geometry(points, obliquity, scale, (0, 0, 10, 10))


ORDER = {"junk": 0, "hard": 1, "easy": 2}


@given(
    visible=st.tuples(st.integers(0, GRID * GRID), st.integers(0, GRID * GRID)).map(sorted),
    scale=st.floats(0.1, 3),
    obliquity=st.tuples(st.floats(0, 89), st.floats(0, 89)).map(sorted),
)
def test_seeing_more_and_straighter_never_makes_a_view_worse(visible, scale, obliquity):
    query = geometry_of(GRID * GRID, 1.0, 0.0)
    better = geometry_of(visible[1], scale, obliquity[0])
    worse = geometry_of(visible[0], scale, obliquity[1])
    assert ORDER[grade(query, better)] >= ORDER[grade(query, worse)]


def test_grades_at_the_borders():
    query = geometry_of(400, 1.0, 0.0)
    assert grade(query, query) == "easy"
    assert grade(query, geometry_of(99, 1.0, 0.0)) == "junk"
    assert grade(query, geometry_of(100, 1.0, 0.0)) == "hard"
    assert grade(query, geometry_of(400, 1.0, 61.0)) == "junk"
    assert grade(query, geometry_of(400, 0.2, 0.0)) == "junk"
    assert grade(query, geometry_of(400, 2.0, 0.0)) == "hard"
