"""The graph: edges by containment, upstream and downstream."""

import yaml
from hypothesis import given
from hypothesis import strategies as st

from cairn.lineage.graph import Graph, load_graph
from cairn.lineage.lock import Recorded, Stage

MD5 = "0" * 32


def graph_of(edges: dict[str, list[str]], root) -> Graph:
    stages = {
        f"make-{output}": Stage(
            f"make-{output}",
            "",
            tuple(Recorded(path, MD5) for path in inputs),
            (Recorded(output, MD5),),
            {},
        )
        for output, inputs in edges.items()
    }
    return Graph(root, stages)


def test_edges_go_by_containment_in_either_direction(tmp_path):
    graph = graph_of(
        {"a/b": [], "a/bc": [], "uses-parent": ["a"], "uses-part": ["a/b/part.txt"], "uses-it": ["a/b"]},
        tmp_path,
    )
    assert graph.made_by("a") == ("a/b", "a/bc")
    assert graph.made_by("a/b/part.txt") == ("a/b",)
    assert graph.made_by("elsewhere") == ()
    assert graph.downstream(["a/b"]) == {"a/b", "uses-parent", "uses-part", "uses-it"}
    assert graph.downstream(["a/bc"]) == {"a/bc", "uses-parent"}
    assert graph.upstream(["uses-parent"]) == {"uses-parent", "a/b", "a/bc"}


@st.composite
def acyclic(draw):
    count = draw(st.integers(1, 12))
    return {
        f"n{i}": [f"n{j}" for j in draw(st.sets(st.integers(0, i - 1)) if i else st.just(set()))]
        for i in range(count)
    }


@given(acyclic())
def test_up_and_down_are_each_others_reverse_and_the_order_is_one(edges):
    graph = graph_of(edges, None)
    for node in edges:
        order = graph.order([node])
        for place, path in enumerate(order):
            assert set(edges[path]) <= set(order[:place])
        for other in edges:
            assert (other in graph.upstream([node])) == (node in graph.downstream([other]))


def test_a_chain_deeper_than_pythons_stack_is_followed(tmp_path):
    edges = {"n0": [], **{f"n{i}": [f"n{i - 1}"] for i in range(1, 3000)}}
    assert len(graph_of(edges, tmp_path).order(["n2999"])) == 3000


def test_the_code_file_of_now_is_told_from_the_code_recorded(project):
    graph = load_graph(project)
    stage = graph.stages["reranking@toytown-rootsift-vlad"]
    (code,) = graph.code(stage)
    assert code.current
    assert code.parameters == {"k": 100}
    assert "cairn/files.py" in code.modules
    lock = yaml.safe_load((project / "dvc.lock").read_text())
    lock["stages"][stage.name]["params"][code.path]["digest"] = "older"
    (project / "dvc.lock").write_text(yaml.safe_dump(lock))
    graph = load_graph(project)
    (code,) = graph.code(graph.stages[stage.name])
    assert (code.digest, code.current, code.present) == ("older", False, True)
    (project / code.path).unlink()
    graph = load_graph(project)
    (code,) = graph.code(graph.stages[stage.name])
    assert (code.current, code.present, code.modules) == (False, False, {})
