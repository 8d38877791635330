"""`params.yaml` is checked, and an error names the key and what is allowed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import CairnError, ParameterError
from cairn.parameters import IDENTIFIER, identifier, load_parameters

GOOD = """
benchmarks:
  toytown: {adapter: toytown, training: toytown}
systems:
  vlad: {encoder: rootsift-vlad}
runs:
  toytown-vlad: {benchmark: toytown, system: vlad}
"""


def load(tmp_path: Path, text: str):
    path = tmp_path / "params.yaml"
    path.write_text(text, "utf-8")
    return load_parameters(path)


def test_defaults_are_filled_in(tmp_path: Path):
    parameters = load(tmp_path, GOOD)
    assert parameters.benchmarks["toytown"]["metric"] == "revisitop"
    assert parameters.benchmarks["toytown"]["settings"]["landmarks"] == 40
    assert set(parameters.systems["vlad"]["learning"]) <= set(parameters.systems["vlad"]["settings"])
    assert parameters.runs == {"toytown-vlad": {"benchmark": "toytown", "system": "vlad"}}


def test_a_known_benchmark_needs_its_name_alone(tmp_path: Path):
    plain = load(tmp_path, GOOD)
    assert plain.implied == frozenset()
    text = GOOD.replace("systems:", "  roxford5k: {}\n  gldv2:\n  disc21: {training_images: true}\nsystems:")
    text += "  town-too: {benchmark: instre-mini-ilias, system: vlad}\n"
    parameters = load(tmp_path, text)
    assert parameters.implied == {"roxford5k", "gldv2", "disc21", "instre-mini-ilias"}
    found = parameters.benchmarks
    assert found["roxford5k"]["adapter"] == "revisitop"
    assert found["roxford5k"]["settings"]["dataset"] == "roxford5k"
    # As for a folder: what is learned is learned on toytown where that is listed, else on the benchmark's own images.
    assert found["gldv2"]["training"] == "toytown" and found["disc21"]["training"] == "disc21"
    assert found["instre-mini-ilias"]["metric"] == "ilias"
    alone = load(tmp_path, "benchmarks: {rparis6k: {directory: /data}}\nsystems: {}\nruns: {}\n").benchmarks
    assert (
        alone["rparis6k"]["training"] == "rparis6k" and alone["rparis6k"]["settings"]["directory"] == "/data"
    )


def test_what_an_entry_says_is_not_overridden(tmp_path: Path):
    known = "  roxford5k: {adapter: toytown, training: toytown}\n  forb: {adapter: forb, training: forb}\nsystems:"
    parameters = load(tmp_path, GOOD.replace("systems:", known))
    assert parameters.implied == frozenset()
    assert parameters.benchmarks["roxford5k"]["adapter"] == "toytown"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("adapter: toytown, training: toytown", "", ["benchmarks.toytown.adapter is missing"]),
        ("{adapter: toytown, training: toytown}", "", ["benchmarks.toytown.adapter is missing"]),
        ("systems:", "  roxford5k: {datset: x}\nsystems:", ["benchmarks.roxford5k.datset", "dataset"]),
        ("runs:", "rnus:", ["rnus", "did you mean 'runs'", "benchmarks, systems, runs"]),
        ("toytown-vlad:", "toytown.vlad:", ["'toytown.vlad'", "'toytown-vlad' would do"]),
        ("toytown-vlad:", "Toytown+1M:", ["'Toytown+1M'", "lower-case"]),
        ("system: vlad", "system: vald", ["runs.toytown-vlad.system", "'vald'", "did you mean 'vlad'"]),
        ("benchmark: toytown,", "benchmark: oxford,", ["runs.toytown-vlad.benchmark", "toytown"]),
        ("encoder: rootsift-vlad", "encoder: rootsift-vald", ["systems.vlad.encoder", "rootsift-vlad"]),
        ("{encoder: rootsift-vlad}", "{}", ["systems.vlad.encoder is missing"]),
        (
            "encoder: rootsift-vlad",
            "encoder: 'python:cairn.encoders.pca:lern_pca'",
            ["systems.vlad.encoder", "no function lern_pca", "did you mean 'learn_pca'"],
        ),
        ("{encoder: rootsift-vlad}", "{encoder: 3}", ["systems.vlad.encoder = 3"]),
        ("encoder: rootsift-vlad", "encoder: rootsift-vlad, wrods: 3", ["systems.vlad.wrods", "allowed"]),
        (
            "encoder: rootsift-vlad",
            "encoder: rootsift-vlad, rerank: {shortlist: -1}",
            ["rerank.shortlist", "-1"],
        ),
        (
            "encoder: rootsift-vlad",
            "encoder: rootsift-vlad, rerank: {methd: geometry}",
            ["rerank.methd", "method"],
        ),
        ("encoder: rootsift-vlad", "encoder: rootsift-vlad, search: 5", ["systems.vlad.search = 5"]),
        ("adapter: toytown,", "adapter: toytwon,", ["benchmarks.toytown.adapter", "did you mean 'toytown'"]),
        ("training: toytown", "training: other", ["benchmarks.toytown.training", "'other'"]),
        ("training: toytown", "training: toytown, metric: mapp", ["benchmarks.toytown.metric", "mapp"]),
        ("training: toytown", "training: toytown, landmarks: many", ["benchmarks.toytown.landmarks", "many"]),
        ("training: toytown", "training: toytown, landmark: 3", ["benchmarks.toytown.landmark", "landmarks"]),
        ("runs:", "runs:\n  again: {benchmark: toytown, system: vlad}", ["repeats runs."]),
        ("systems:", "systems:\n  vlad: {encoder: colour-histogram}", ["appears twice", "line"]),
        ("systems:", "systems: [", ["line", "YAML"]),
        ("vlad: {encoder", "1: {encoder", ["not text"]),
    ],
)
def test_an_error_names_the_key_and_what_is_allowed(tmp_path: Path, old: str, new: str, named: list[str]):
    assert old in GOOD
    with pytest.raises(ParameterError) as caught:
        load(tmp_path, GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert "\n" not in message
    for part in named:
        assert part in message


def test_an_unknown_key_lists_the_keys_of_its_own_place(tmp_path: Path):
    with pytest.raises(ParameterError) as caught:
        load(tmp_path, GOOD.replace("encoder: rootsift-vlad", "encoder: rootsift-vlad, pca: {dim: 8}"))
    assert str(caught.value).endswith("allowed: dimension, whiten")
    with pytest.raises(ParameterError) as caught:
        load(tmp_path, GOOD.replace("encoder: rootsift-vlad", "encoder: rootsift-vlad, pcaa: {dimension: 8}"))
    allowed = str(caught.value).partition("allowed: ")[2].split(", ")
    assert {"encoder", "search", "rerank", "pca", "vlad"} <= set(allowed)


@pytest.mark.parametrize(
    ("system", "named"),
    [
        ("{encoder: colour-histogram, rerank: {method: geometry}}", "add `geometry: {local: xfeat}`"),
        (
            "{encoder: efficientnet-lite0, rerank: {method: geometry}}",
            "encoder efficientnet-lite0 has no local",
        ),
        ("{encoder: colour-histogram, rerank: {method: ames}}", "add `ames: {checkpoint: …, dinov2: …}`"),
        (
            "{encoder: colour-histogram, rerank: {method: geometry, after: {method: aqe}}}",
            "method = 'geometry': the encoder colour-histogram has no local features",
        ),
    ],
)
def test_a_second_stage_without_local_features_is_refused(tmp_path: Path, system: str, named: str):
    with pytest.raises(ParameterError) as caught:
        load(tmp_path, GOOD.replace("{encoder: rootsift-vlad}", system))
    message = str(caught.value)
    assert message.startswith("params.yaml: systems.vlad.rerank.method = ") and "\n" not in message
    assert named in message and "(rootsift-bovw or rootsift-vlad)" in message


@pytest.mark.parametrize(
    "system",
    [
        "{encoder: colour-histogram, rerank: {method: geometry, geometry: {local: xfeat}}}",
        "{encoder: colour-histogram, rerank: {method: ames, ames: {checkpoint: c, dinov2: {model: m}}}}",
        "{encoder: colour-histogram, rerank: {method: aqe}}",
        "{encoder: rootsift-bovw, rerank: {method: geometry}}",
    ],
)
def test_a_second_stage_whose_local_features_come_from_elsewhere(tmp_path: Path, system: str):
    found = load(tmp_path, GOOD.replace("{encoder: rootsift-vlad}", system)).systems["vlad"]
    assert found["rerank"]["method"] in system


def test_a_missing_file_says_so(tmp_path: Path):
    with pytest.raises(ParameterError, match="does not exist"):
        load_parameters(tmp_path / "params.yaml")


def test_bytes_that_are_not_text(tmp_path: Path):
    (tmp_path / "params.yaml").write_bytes(b"runs: \xff\xfe")
    with pytest.raises(ParameterError, match="UTF-8"):
        load_parameters(tmp_path / "params.yaml")


@given(st.text(max_size=200))
def test_any_text_gives_parameters_or_one_clear_error(tmp_path_factory, text: str):
    path = tmp_path_factory.mktemp("text") / "params.yaml"
    path.write_text(text, "utf-8", newline="")
    try:
        load_parameters(path)
    except CairnError as error:
        assert str(error)


@given(st.from_regex(IDENTIFIER, fullmatch=True))
def test_identifiers_are_taken_as_they_are_or_refused_with_a_reason(name: str):
    try:
        assert identifier(name, "here") == name
    except ParameterError as error:
        assert "too long" in str(error) or "as text" in str(error) or "not allowed" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("  toytown-vlad:", "  no:", "not text"),
        ("  toytown-vlad:", "  'no':", "as text"),
        ("  toytown-vlad:", "  all:", "taken"),
        ("  vlad: {encoder", "  manifest: {encoder", "taken"),
        ("  toytown: {adapter", "  scores: {adapter", "taken"),
        ("  toytown-vlad:", f"  {'x' * 65}:", "too long"),
        ("runs:\n  toytown-vlad: {benchmark: toytown, system: vlad}", "runs: []", "runs"),
        ("runs:\n  toytown-vlad: {benchmark: toytown, system: vlad}", "runs: " + "[" * 5000, "params.yaml"),
    ],
)
def test_names_that_would_break_something_are_refused(tmp_path: Path, old: str, new: str, named: str):
    assert old in GOOD
    with pytest.raises(ParameterError, match=named):
        load(tmp_path, GOOD.replace(old, new, 1))
