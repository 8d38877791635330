"""Training sets: counts that close, the published counts explained, which uses saw flagged images."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.contamination.training_sets import (
    TrainingUse,
    audit_uses,
    contaminated_systems,
    matched_set,
    reconcile,
    standard_and_decon,
    training_set,
    write_training_set,
)
from cairn.errors import InputError
from tests.contamination.cases import training


@given(
    st.dictionaries(st.integers(0, 60), st.integers(1, 9), min_size=3, max_size=40),
    st.integers(1, 5),
    st.data(),
)
def test_counts_close_at_every_step(counts: dict[int, int], minimum: int, data: st.DataObject) -> None:
    images = training(counts)
    flagged = data.draw(st.frozensets(st.sampled_from(sorted(counts))))
    try:
        standard, decon = standard_and_decon(images, flagged, minimum)
    except InputError:
        return
    for one in (standard, decon):
        for before, after in zip(one.steps, one.steps[1:], strict=False):
            assert before.classes == after.classes + after.dropped_classes
            assert before.images == after.images + after.dropped_images
        assert one.classes == len(one.class_ids)
        assert one.images == sum(counts[each] for each in one.class_ids)
        assert all(counts[each] >= minimum for each in one.class_ids)
    assert not flagged & set(decon.class_ids)
    assert set(decon.class_ids) | flagged >= set(standard.class_ids)
    assert reconcile(images, standard, decon, flagged).closes


def test_published_counts_are_explained_by_classes_of_two_images(shared: Path) -> None:
    """87 classes / 2,529 images are flagged, and the published sets differ by 85 / 2,525."""
    published = json.loads((shared / "published_results.json").read_text("utf-8"))["training_protocols"]
    # Class sizes that fit the published totals: 4,750 classes of two images, the others of three and more.
    sizes = dict.fromkeys(range(4_750), 2)
    others = 81_313 - 4_750
    rest = 1_580_470 - 2 * 4_750
    sizes |= {4_750 + k: 3 for k in range(others)}
    flagged = {0, 1, *range(4_750, 4_835)}
    for k in range(85):
        sizes[4_750 + k] = 29 + (k < 2_525 - 29 * 85)
    left = rest - sum(sizes[one] for one in range(4_750, 81_313))
    sizes[81_312] += left
    images = training_counts(sizes)
    standard, decon = standard_and_decon(images, flagged, 3)
    assert (standard.classes, standard.images) == (
        published["standard"]["train_classes"],
        published["standard"]["train_images"],
    )
    assert (decon.classes, decon.images) == (
        published["decon"]["train_classes"],
        published["decon"]["train_images"],
    )
    assert str(reconcile(images, standard, decon, flagged)) == (
        "87 classes with 2,529 images are flagged = 2 with 4 that have too few images anyway + "
        "85 with 2,525 by which the sets differ"
    )


def training_counts(sizes: dict[int, int]):
    """A training set of which only the counts matter: 1.6 million made-up ids would be slow."""
    from dataclasses import replace

    return replace(
        training({0: 1}),
        class_ids=tuple(sizes),
        images=("",) * len(sizes),
        counts=tuple(sizes.values()),
    )


def test_control_is_of_decons_size_and_innocent() -> None:
    images = training(dict.fromkeys(range(30), 3) | {99: 1})
    flagged = {1, 2, 3, 99}
    control = matched_set(images, flagged, 2, seed=0)
    _, decon = standard_and_decon(images, flagged, 2)
    assert control.classes == decon.classes and control.images == decon.images
    assert {1, 2, 3} <= set(control.class_ids)
    assert control == matched_set(images, flagged, 2, seed=0) != matched_set(images, flagged, 2, seed=1)


def test_file_and_mistakes(tmp_path: Path) -> None:
    images = training({1: 3, 2: 1})
    write_training_set(tmp_path / "decon.json", training_set(images, "decon", 2, [2]))
    value = json.loads((tmp_path / "decon.json").read_text("utf-8"))
    assert value["class_ids"] == [1] and value["excluded"] == [2]
    assert value["steps"][1] == {
        "step": "excluded classes",
        "dropped": {"classes": 1, "images": 1},
        "left": {"classes": 1, "images": 3},
    }
    with pytest.raises(InputError, match="1 excluded classes are not in it, such as 7"):
        training_set(images, "decon", 2, [7])
    with pytest.raises(InputError, match="no class is left for standard"):
        training_set(images, "standard", 4)
    with pytest.raises(InputError, match="expected at least 1"):
        training_set(images, "standard", 0)


def test_uses_that_saw_flagged_images() -> None:
    uses = [
        TrainingUse("vlad", "vocabulary", ["a", "b", "c"], "toytown"),
        TrainingUse("vlad", "whitening", ["d"], "toytown, decon"),
        TrainingUse("histogram", "vocabulary", [], "nothing is learned"),
        TrainingUse("dinov2", "backbone", None, "LVD-142M, seeded with both benchmarks"),
    ]
    audited = audit_uses(uses, {"b", "c", "z"})
    assert [one.verdict for one in audited] == [
        "saw 2 flagged images", "saw no flagged image", "learns nothing from images", "unknown",
    ]  # fmt: skip
    assert contaminated_systems(audited) == {"vlad": ("vocabulary",), "dinov2": ("backbone (unknown)",)}
    assert audited[0].as_json()["flagged_images_seen"] == 2


def test_names_of_systems_stay_whole() -> None:
    import io

    from rich.console import Console

    from cairn.contamination.show import uses_table

    name = "toytown/rootsift-vlad-whitened"
    origin = "toytown, all (centre, components, words)"
    written = io.StringIO()
    uses = audit_uses([TrainingUse(name, "centring and whitening", ["a"], origin)], {"a"})
    Console(file=written, width=120).print(uses_table(uses))
    assert f" {name} " in written.getvalue()


def test_counts_where_no_flagged_class_was_too_small() -> None:
    images = training(dict.fromkeys(range(5), 3))
    standard, decon = standard_and_decon(images, {1, 2}, 2)
    found = str(reconcile(images, standard, decon, {1, 2}))
    assert found == "2 classes with 6 images are flagged, and the sets differ by just these"
