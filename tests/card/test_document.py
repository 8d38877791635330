"""Reading files that want to break the reader."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.card import check_card, read_document
from cairn.card.document import MAX_DEPTH, json_path, parse_document
from cairn.errors import InputError


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[1, 2]", "JSON object"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ('{"a": {"b": 1, "b": 1}}', "'b' stands twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e999}', "beyond"),
        ('{"a": 1e999999999}', "beyond"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested deeper"),
        ('{"a": ' * 200 + "1" + "}" * 200, "nested deeper"),
        ('{"a": 1', "not JSON"),
        ('{"a": 1} x', "not JSON"),
    ],
)
def test_what_is_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        check_card(read_document(file))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_not_utf8_not_a_file_and_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results.json"
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(InputError, match="UTF-8"):
        read_document(file)
    with pytest.raises(InputError, match="not a file"):
        read_document(tmp_path)
    with pytest.raises(InputError, match="not a file"):
        read_document(tmp_path / "missing.json")
    monkeypatch.setattr("cairn.card.document.MAX_BYTES", 5)
    with pytest.raises(InputError, match="bytes"):
        read_document(file)
    monkeypatch.setattr("cairn.card.document.MAX_VALUES", 10)
    with pytest.raises(InputError, match="more than 10 values"):
        parse_document(json.dumps({"a": list(range(20))}))


def test_depth_is_counted_outside_texts() -> None:
    text = json.dumps({"a": "[" * 1000 + '"' + "{" * 1000})
    assert parse_document(text)["a"].startswith("[[[")
    nested = "1"
    for _ in range(MAX_DEPTH - 1):
        nested = f"[{nested}]"
    parse_document('{"a": ' + nested + "}")


def test_numbers_keep_what_was_written() -> None:
    assert parse_document('{"a": 87.10, "b": 3}') == {"a": Decimal("87.10"), "b": 3}
    with pytest.raises(InputError, match=r"\$\.a\[1\]"):
        check_card({"a": [1, float("nan")]})
    with pytest.raises(InputError, match="set"):
        check_card({"a": {1, 2}})
    with pytest.raises(InputError, match="keys are texts"):
        check_card({"a": {1: 2}})


def test_a_place_is_written_as_jsonpath() -> None:
    assert json_path(("a", 3, "b c", 'd"e')) == '$.a[3]["b c"]["d\\"e"]'


def test_control_characters_do_not_reach_the_terminal() -> None:
    found = check_card({"rows": {"a\x1b[31m": {"M": 187.0}, "b": {"M": 50.0}}})
    assert found and all("\x1b" not in finding.message + finding.path for finding in found)


@pytest.mark.parametrize("bounds", [[None, None], ["a", "b"], [[1], [2]], {"a": 1, "b": 2}, "ab", 3, [0.1]])
def test_an_interval_that_is_none_is_left_alone(bounds) -> None:
    images = {"flagged_images": 2529, "image_precision": 0.43, "image_precision_ci95": bounds}
    check_card({"images": {**images, "recall": "757 of 995 images found", "notes": "2,529 flagged images"}})


@pytest.mark.timeout(300)  # a pattern that backtracks would take hours
def test_a_long_hostile_text_is_read_in_time() -> None:
    texts = [
        "1.1 and " * 5000,
        "a" * 200_000,
        "(" * 20_000,
        "no cell " * 3000,
        "12 of " * 5000,
        "x-" * 10_000,
    ]
    texts += [
        "best published " * 2000,
        "level with " * 3000,
        "+1.1 over " * 3000,
        "1,1" * 8000,
        "GLD2-x's 1 " * 3000,
    ]
    check_card({"rows": {"a": {"M": 1.0}, "b": {"M": 2.0}}, "texts": texts})


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(-1e6, 1e6, allow_subnormal=False)
    | st.text(max_size=20)
    | st.sampled_from(
        ["+2.6 M over L2G", "3 of 4 images found, 75%", "minus the 3 classes", "level with b (1.0)"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=8)
            | st.sampled_from(["M", "H", "roxford5k", "system", "source", "precision", "rows"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=8), JSON, max_size=5))
def test_any_json_object_is_audited_without_a_crash(document: dict) -> None:
    first = check_card(document)
    assert first == check_card(parse_document(json.dumps(document)))
