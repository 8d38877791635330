"""Flip one value of one published row: the card's rows and sentences about it change, and nothing else."""

from dataclasses import replace
from decimal import Decimal

import pytest

from cairn.card import building


def test_published_rows_change_what_is_said_of_them_alone(compared):
    """Flip one value of one published row: the card's rows and sentences about it change, and nothing else."""

    from tests.card.project import add_published_run, believable
    from tests.lineage.project import build_project

    root = build_project(compared)
    believable(root)
    add_published_run(root)
    before = building.build_card(root)
    rows = building.published_rows()
    place = next(i for i, row in enumerate(rows) if "L2G" in row.system)
    values = {b: dict(v) for b, v in rows[place].values.items()}
    values["rparis6k-1m"]["hard"] += Decimal("0.1")
    changed = [*rows[:place], replace(rows[place], values=values), *rows[place + 1 :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "published_rows", lambda: changed)
        after = building.build_card(compared)
    assert {key for key in before if before[key] != after[key]} == {"published_comparison", "claims"}
    said = [
        (one["sentence"], other["sentence"])
        for claim, now in zip(before["claims"], after["claims"], strict=True)
        for one, other in zip(claim["statements"], now["statements"], strict=True)
        if one != other
    ]
    assert said and all("rparis6k-1m Hard" in one and "L2G" in one for one, _ in said)
    unchanged = [
        (one, other)
        for one, other in zip(
            before["published_comparison"]["rows"], after["published_comparison"]["rows"], strict=True
        )
        if one != other
    ]
    assert [one["system"] for one, _ in unchanged] == [rows[place].system]
