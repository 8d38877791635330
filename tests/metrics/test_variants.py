"""The named deviations deviate as their names say, and the page that shows them is up to date."""

import numpy as np
import pytest

from cairn.errors import InputError
from cairn.metrics import audit, variants
from tests.conftest import REPOSITORY


def test_forb():
    query, correct, n_positives = np.zeros(3, int), np.array([True, False, True]), np.array([3])
    assert variants.forb_over_hits(query, correct, n_positives, 2)[0] == 1
    assert variants.forb_over_hits(query, correct, n_positives, 3)[0] == pytest.approx((1 + 2 / 3) / 2)
    levels = np.linspace(1, 0, 11)
    scores = np.array([0.95, 0.9, 0.5])
    # At rate 0.1 the threshold is 0.9: one of three positives, first.
    assert variants.forb_one_rate(query, scores, correct, n_positives, levels, 5)[0] == pytest.approx(1 / 3)


def test_disc21():
    score, correct = np.array([0.5, 0.5, 0.5]), np.array([False, True, False])
    assert variants.disc21_file_order(score, correct, 1) == 1 / 2
    assert variants.disc21_true_first(score, correct, 1) == 1


def test_inquire_and_the_others():
    query, value = np.zeros(3, int), np.array([3.0, 2, 1])
    relevant = np.array([False, True, False])
    over_hits = variants.inquire_over_hits(query, value, relevant, np.array([10]), 3)
    assert over_hits[0] == 1 / 2
    place = np.array([0, 1, 2])
    wide = variants.gldv2_all_positives(query, place, relevant, np.array([200]))
    assert wide[0] == pytest.approx(1 / 2 / 200)
    assert variants.revisitop_rectangular(np.array([0]), np.array([1]), np.array([1]))[0] == 1 / 2


def test_every_variant_is_measured_and_the_page_is_up_to_date(shared):
    golden = shared / "golden"
    measured = {finding.variant for finding in audit.findings(golden)}
    assert measured == {variant.name for variant in variants.VARIANTS}
    assert all(finding.official != finding.deviation for finding in audit.findings(golden))
    committed = (REPOSITORY / "docs" / "metric-definitions.md").read_text("utf-8")
    current = audit.page(golden)
    if audit.golden_digest(golden) not in committed:  # other golden cases: the definitions alone can agree
        committed, current = (page.split("## Deviations")[0] for page in (committed, current))
    assert committed == current, "run python -m cairn.metrics.audit (see its docstring)"


def test_without_golden_cases(tmp_path):
    with pytest.raises(InputError, match="the golden cases are not there"):
        audit.main([str(tmp_path), str(tmp_path / "page.md")])
    assert list(tmp_path.iterdir()) == []
