"""`dvc.lock` is read as a file from outside."""

import io

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cairn.errors import LineageError
from cairn.lineage.graph import load_graph
from cairn.lineage.lock import read_lock

MD5 = "0" * 32


SCHEMA = "schema: '2.0'\n"


def locked(tmp_path, text: str):
    (tmp_path / "dvc.lock").write_text(SCHEMA + text if text.startswith("stages") else text)
    return tmp_path


def stage(tmp_path, **entry):
    return locked(tmp_path, yaml.safe_dump({"schema": "2.0", "stages": {"s@toy": entry}}))


def test_what_dvc_wrote_is_read(project):
    stages = read_lock(project)
    folder = stages["sources-folder@places"]
    assert folder.command == "python -m pipelines step sources places"
    images = folder.inputs[0]
    assert (images.path, images.files, images.is_directory) == ("../brought/images", 4, True)
    record = stages["descriptors@toytown-rootsift-vlad"].parameters
    assert list(record) == ["artifacts/code/descriptors/toytown-rootsift-vlad.json"]


def test_missing_lock_says_what_to_do(tmp_path):
    with pytest.raises(LineageError, match="cairn run"):
        read_lock(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "a: [1, 2",
        "\t- x",
        "stages: !!python/object/apply:os.system ['true']",
        "\x00",
        "",
        "[]",
        "just words",
        "stages: []",
        "stages: {a: 1}",
        "stages: {a: {outs: {}}}",
        "stages: {a: {outs: [1]}}",
        "stages: {a: {outs: [{hash: md5}]}}",
        "stages: {a: {deps: [{path: 3}]}}",
        "stages: {a: {params: []}}",
        "stages: {a: {dezs: []}}",
        "stages: {a: {cmd: x}, a: {cmd: y}}",
        "stages: {a: {outs: [{path: x, size: 1, size: 2}]}}",
        "stages: {a: {outs: [{path: x, md5: nonsense}]}}",
        "stages: {a: {outs: [{path: x, md5: [1]}]}}",
    ],
)
def test_anything_else_is_one_clear_line(tmp_path, text):
    with pytest.raises(LineageError) as caught:
        read_lock(locked(tmp_path, text))
    message = str(caught.value)
    assert "dvc.lock" in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize("schema", ["", "schema: '1.0'\n", "schema: 2.0\n"])
def test_another_schema_is_refused(tmp_path, schema):
    with pytest.raises(
        LineageError, match=r"dvc\.lock: schema is .*, expected '2\.0'; `git checkout dvc\.lock`"
    ):
        read_lock(locked(tmp_path, f"{schema or '# none'}\nstages: {{}}"))


@pytest.mark.parametrize(
    "path",
    [
        "../outside",
        "/etc/passwd",
        "artifacts/../../x",
        "artifacts//x",
        "./x",
        ".",
        "",
        "..",
        "a\0b",
        "artifacts/./x",
    ],
)
def test_outputs_outside_the_project_are_refused(tmp_path, path):
    with pytest.raises(LineageError) as caught:
        read_lock(stage(tmp_path, outs=[{"path": path, "md5": MD5}]))
    assert str(caught.value).isprintable()


def test_inputs_may_lie_above_the_project_but_have_one_name_only(tmp_path):
    read_lock(
        stage(tmp_path, deps=[{"path": "../shared/images", "md5": MD5}, {"path": "/data/x", "md5": MD5}])
    )
    with pytest.raises(LineageError, match="not a path as DVC writes it"):
        read_lock(stage(tmp_path, deps=[{"path": "artifacts/x/../y", "md5": MD5}]))


def test_code_files_outside_the_project_are_refused(tmp_path):
    with pytest.raises(LineageError, match="outside the project"):
        read_lock(stage(tmp_path, params={"artifacts/code/../../../x.json": {"digest": "d"}}))


def test_aliases_that_unfold_without_end_are_refused(tmp_path):
    layers = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    layers += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(LineageError, match="unfold"):
        read_lock(locked(tmp_path, "\n".join([*layers, "stages: {}"])))
    with pytest.raises(LineageError):
        read_lock(locked(tmp_path, "stages: &s {a: *s}"))


def test_nesting_without_end_is_refused(tmp_path):
    with pytest.raises(LineageError):
        read_lock(locked(tmp_path, "stages: " + "[" * 5000 + "]" * 5000))


def test_a_circle_and_two_makers_of_one_output_are_refused(tmp_path):
    def entry(out, dep):
        return {"outs": [{"path": out, "md5": MD5}], "deps": [{"path": dep, "md5": MD5}]}

    circle = {"schema": "2.0", "stages": {"a": entry("x", "y"), "b": entry("y", "x")}}
    graph = load_graph(locked(tmp_path, yaml.safe_dump(circle)))
    with pytest.raises(LineageError, match="made from itself"):
        graph.order(["x"])
    twice = {"schema": "2.0", "stages": {"a": entry("x", "z"), "b": entry("x", "z")}}
    with pytest.raises(LineageError, match="both make"):
        load_graph(locked(tmp_path, yaml.safe_dump(twice)))


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text("aeyno0123:.-+_~<=fx", max_size=6)
)
NAMES = st.text("abyn", min_size=1, max_size=3)


@given(st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=3), max_size=4))
def test_parameters_come_back_as_dvc_wrote_them(tmp_path_factory, values):
    """DVC writes YAML 1.2: `1e-05` is a number there, `off` and `1:30` are texts."""
    from ruamel.yaml import YAML

    file = "artifacts/code/a/b.json"
    text = io.StringIO()
    YAML().dump({"stages": {"s@toy": {"cmd": "x", "params": {file: {"parameters": values}}}}}, text)
    folder = locked(tmp_path_factory.getbasetemp(), text.getvalue())
    assert read_lock(folder)["s@toy"].parameters[file]["parameters"] == values
