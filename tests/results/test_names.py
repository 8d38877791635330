"""Names of numbers: written, read, and singled out by a few fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import LineageError
from cairn.results import NumberName, resolve
from cairn.results.names import plain

NAMES = [
    NumberName.parse(text)
    for text in (
        "toytown/rootsift-vlad/-/-/global/easy/map",
        "toytown/rootsift-vlad/-/-/global/hard/map",
        "toytown/rootsift-vlad/-/-/geometry-k100/easy/map",
        "toytown/rootsift-vlad/-/-/geometry-k100/hard/map",
        "toytown/tiny/-/-/global/hard/map",
        "rparis6k-1m/dinov2-l/decon/0/ames-k1600-l0.55-t0.3/hard/map",
        "rparis6k-1m/dinov2-l/decon/1/global/hard/map",
    )
]

# Short enough that seven of them stay below LONGEST_NAME.
field = st.from_regex(r"[a-z0-9]{1,12}([.-][a-z0-9]{1,12}){0,3}", fullmatch=True) | st.just("-")


@given(st.tuples(*[field] * 7))
def test_a_name_survives_being_written_and_read(fields):
    name = NumberName(*fields)
    assert NumberName.parse(str(name)) == name


@given(st.tuples(*[field] * 7), st.sets(st.integers(0, 6), min_size=1))
def test_any_fields_of_a_lone_name_find_it(fields, kept):
    name = NumberName(*fields)
    assert resolve("/".join(fields[i] for i in sorted(kept)), [name]) == name


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [
        (
            "toytown/rootsift-vlad/-/-/geometry-k100/hard/map",
            "toytown/rootsift-vlad/-/-/geometry-k100/hard/map",
        ),
        ("toytown/rootsift-vlad/geometry-k100/hard", "toytown/rootsift-vlad/-/-/geometry-k100/hard/map"),
        # No stage named: the system's own number, not the re-ranked one.
        ("toytown/rootsift-vlad/hard/map", "toytown/rootsift-vlad/-/-/global/hard/map"),
        ("tiny", "toytown/tiny/-/-/global/hard/map"),
        ("tiny/", "toytown/tiny/-/-/global/hard/map"),
        # The reviewer's: no seed, a stage by its first word.
        (
            "rparis6k-1m/dinov2-l/decon/ames/hard/map",
            "rparis6k-1m/dinov2-l/decon/0/ames-k1600-l0.55-t0.3/hard/map",
        ),
        ("decon/1", "rparis6k-1m/dinov2-l/decon/1/global/hard/map"),
    ],
)
def test_fields_in_order_single_out_one_number(given_text, expected):
    assert str(resolve(given_text, NAMES)) == expected


def test_an_ambiguous_name_lists_its_candidates():
    with pytest.raises(LineageError) as caught:
        resolve("toytown/rootsift-vlad/map", NAMES)
    message = str(caught.value)
    assert "fits 4 numbers" in message
    assert [line.strip() for line in message.splitlines()[1:]] == sorted(str(name) for name in NAMES[:4])


def test_candidates_that_differ_in_more_than_the_stage_stay_ambiguous():
    with pytest.raises(LineageError, match="fits 3 numbers"):
        resolve("toytown/hard", NAMES)


def test_many_candidates_are_cut_off_with_a_count():
    names = [NumberName("toytown", f"system-{i}", "-", "-", "global", "hard", "map") for i in range(50)]
    with pytest.raises(LineageError, match="30 more"):
        resolve("toytown", names)


def test_fields_out_of_order_are_not_found():
    with pytest.raises(LineageError, match="the fields go in the order"):
        resolve("hard/toytown", NAMES)


def test_a_typing_error_gets_a_suggestion():
    with pytest.raises(LineageError, match="did you mean rootsift-vlad"):
        resolve("toytown/rootsift-vald/hard", NAMES)


def test_no_numbers_at_all_says_how_to_get_some():
    with pytest.raises(LineageError, match="cairn run"):
        resolve("toytown", [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "///////",
        "../../etc/passwd",
        "toytown/../hard",
        "\x1b[31mred",
        "[bold]",
        "a" * 100_000,
        "é",
        "tiny\n",
        "\0",
    ],
)
def test_hostile_names_are_refused_on_one_printable_line(text):
    if text == "tiny\n":  # white space around a name is forgiven
        assert resolve(text, NAMES).system == "tiny"
        return
    with pytest.raises(LineageError) as caught:
        resolve(text, NAMES)
    first = str(caught.value).splitlines()[0]
    assert first.isprintable()
    assert len(first) < 400


@pytest.mark.parametrize("bad", ["", "a/b", "a b", "a\n", "../x", ".hidden", "-x", None, "--"])
def test_a_field_that_no_path_or_table_should_hold_is_refused(bad):
    with pytest.raises(LineageError):
        NumberName("toytown", bad, "-", "-", "global", "hard", "map")


def test_parse_wants_seven_fields():
    with pytest.raises(LineageError, match="has 3 fields"):
        NumberName.parse("a/b/c")


def test_plain_spells_out_control_characters():
    assert plain("a\x1b[31m\nb·c") == "a\\x1b[31m\\nb·c"


def test_options_around_the_search_are_part_of_the_first_stage():
    names = [
        NumberName.parse(f"toytown/s/-/-/{stage}/hard/map")
        for stage in ("global-aqe-n10", "geometry-k100-on-aqe-n10")
    ]
    assert resolve("toytown/s/hard/map", names) == names[0]
    plain = NumberName.parse("toytown/s/-/-/global/hard/map")
    assert resolve("toytown/s/global/hard/map", [plain, *names]) == plain
