"""The printed results table."""

import io

from rich.console import Console

from cairn.results import NumberName, Result
from cairn.results.show import print_results, stage_title


def printed(results, **options) -> list[str]:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    print_results(results, console, **options)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


def number(name: str, value: float, **more) -> Result:
    return Result(NumberName.parse(name), value, 50, 1480, **more)


TOYTOWN = [
    number(f"toytown/rootsift-vlad/-/-/{stage}/{piece}/map", value, low=value - 0.05, high=value + 0.05)
    for stage, values in {"global": (0.612, 0.487, 0.2304), "geometry-k100": (0.7, 0.6, 0.4)}.items()
    for piece, value in zip(("easy", "medium", "hard"), values, strict=True)
]


def test_the_table_of_the_readme():
    lines = printed(TOYTOWN, synthetic={"toytown"})
    assert lines[0].split() == ["toytown", "(synthetic)", "E", "M", "H"]
    assert lines[2].split() == ["rootsift-vlad", "61.2", "48.7", "23.0"]
    assert lines[3].split() == ["+", "geometric", "rerank", "70.0", "60.0", "40.0"]
    assert len(lines) == 4


def test_intervals_on_demand():
    text = "\n".join(printed(TOYTOWN, intervals=True))
    assert "56.2–66.2" in text
    assert "(synthetic)" not in text


def test_stages_are_ordered_by_number_and_told_apart():
    rows = [
        number(f"toytown/s/-/-/{stage}/all/map", 0.5)
        for stage in ("geometry-k1600", "geometry-k100", "global")
    ]
    lines = printed(rows)
    assert lines[0].split() == ["toytown", "mAP"]
    assert [line.rsplit(" ", 1)[0].strip() for line in lines[2:]] == [
        "s",
        "+ geometric rerank (k100)",
        "+ geometric rerank (k1600)",
    ]


def test_each_benchmark_gets_its_own_table_and_a_missing_cell_a_dash():
    lines = printed([*TOYTOWN[:2], number("places/s/-/-/global/all/micro-ap", 0.25)])
    assert lines[0].split() == ["places", "µAP"]
    assert any(line.split()[:1] == ["toytown"] for line in lines)
    holes = printed([*TOYTOWN, number("toytown/x/-/-/global/easy/map", 0.1)])
    assert holes[-1].split() == ["x", "10.0", "–", "–"]


def test_markup_in_a_name_is_shown_not_obeyed():
    assert stage_title("unknown-thing") == "unknown-thing"
    rows = [number("toytown/a.b@c+d/-/-/global/hard/map", 0.5)]
    assert "a.b@c+d" in "\n".join(printed(rows))


def test_options_around_the_search_stand_beside_the_system():
    rows = [
        number(f"toytown/s/-/-/{stage}/all/map", 0.5)
        for stage in ("geometry-k100-on-centred.gallery-aqe-n10", "global-centred.gallery-aqe-n10")
    ]
    lines = printed(rows)
    assert lines[2].startswith("s (centred.gallery-aqe-n10) ")
    assert lines[3].startswith("+ geometric rerank ")
