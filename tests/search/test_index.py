"""FAISS indexes: the same file each time, the right neighbours, honest recall, ranges that are told."""

from pathlib import Path

import faiss
import numpy as np
import pytest

from cairn.errors import ParameterError
from cairn.search import Index, SearchParameters
from cairn.search.index import (
    build_index,
    index_facts,
    inverted_lists,
    search_index,
    subquantizers,
    write_index,
)
from cairn.validation import validated
from tests.search.test_exact import Matrix, real_numbers

KINDS = [
    Index(),
    Index(kind="ivf-flat", lists=9, probes=3),
    Index(kind="ivf-pq", lists=4, probes=4, subquantizers=12, bits=8),
    Index(kind="hnsw", links=8, ef_construction=40, ef_search=40),
]


@pytest.mark.parametrize("parameters", KINDS, ids=lambda parameters: parameters.kind)
def test_files_are_the_same_each_time_and_ids_are_manifest_rows(tmp_path: Path, parameters: Index):
    rows = real_numbers(400, 24)
    order = np.random.default_rng(0).permutation(400)
    for name in ("one", "two"):
        write_index(build_index(Matrix(rows), order, parameters), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    index = faiss.read_index(str(tmp_path / "one"))
    assert index.ntotal == 400
    # Every image finds itself first, under the number of its manifest row.
    first = index.search(rows[order[:50]].astype(np.float32), 1)[1][:, 0]
    if parameters.kind == "ivf-pq":  # by codes that are not exact
        assert (first == np.arange(50)).mean() > 0.9
    else:
        assert first.tolist() == list(range(50))


@pytest.mark.parametrize("parameters", KINDS, ids=lambda parameters: parameters.kind)
def test_what_is_missing_is_not_in_it_and_the_others_keep_their_numbers(tmp_path: Path, parameters: Index):
    rows = -np.abs(real_numbers(400, 24))
    order = np.random.default_rng(0).permutation(400)
    missing = np.sort(np.random.default_rng(1).permutation(400)[:30])
    rows[missing] = 0
    gone = np.isin(order, missing)
    index = build_index(Matrix(rows), order, parameters, missing)
    write_index(index, tmp_path / "one")
    read = faiss.read_index(str(tmp_path / "one"))
    assert read.ntotal == index.ntotal == 370
    queries, kept = np.abs(real_numbers(20, 24, 1)), np.flatnonzero(~gone)
    found = search_index(index, parameters, queries, 100)
    assert found.max() > 370, "ids are rows of the manifest, not places among those that are there"
    assert not np.isin(found, np.flatnonzero(gone)).any(), "zeros would be nearer than all others"
    np.testing.assert_array_equal(search_index(read, parameters, queries, 100), found)
    alone = build_index(Matrix(rows[order[kept]]), np.arange(370), parameters)
    there = search_index(alone, parameters, queries, 100)
    np.testing.assert_array_equal(found, np.where(there < 0, -1, kept[there]))
    exact = [kept[line] for line in neighbours(rows[order[kept]], queries)]
    facts = index_facts(index, parameters, queries, exact)
    assert facts == index_facts(alone, parameters, queries, neighbours(rows[order[kept]], queries))
    assert facts["vectors"] == 370


def neighbours(rows: np.ndarray, queries: np.ndarray) -> list[np.ndarray]:
    return [
        np.argsort(-line, kind="stable") for line in queries.astype(np.float32) @ rows.astype(np.float32).T
    ]


def test_recall_is_the_share_of_exact_neighbours():
    rows, queries = real_numbers(1000, 16), real_numbers(20, 16, 1)
    exact = neighbours(rows, queries)
    flat = build_index(Matrix(rows), np.arange(1000), Index())
    facts = index_facts(flat, Index(), queries, [line[:150] for line in exact])
    assert facts["recall"] == {"1": 1.0, "10": 1.0, "100": 1.0, "150": 1.0}
    parameters = Index(kind="ivf-flat", lists=40, probes=2)
    facts = index_facts(build_index(Matrix(rows), np.arange(1000), parameters), parameters, queries, exact)
    assert (facts["lists"], facts["probes"]) == (40, 2)
    assert 0.05 < facts["recall"]["10"] < 0.95
    wrong = [line[::-1] for line in exact]
    assert index_facts(flat, Index(), queries, wrong)["recall"]["10"] == 0


@pytest.mark.parametrize(
    ("weak", "strong"),
    [
        (
            Index(kind="ivf-pq", lists=4, probes=4, subquantizers=2, bits=4),
            Index(kind="ivf-pq", lists=4, probes=4, subquantizers=16, bits=8),
        ),
        (
            Index(kind="hnsw", links=2, ef_construction=4, ef_search=1),
            Index(kind="hnsw", links=32, ef_construction=200, ef_search=256),
        ),
        (Index(kind="ivf-pq", lists=40, probes=1), Index(kind="ivf-pq", lists=40, probes=40)),
    ],
    ids=["codes", "graph", "probes"],
)
def test_more_effort_finds_more(weak: Index, strong: Index):
    rows, queries = real_numbers(1500, 16), real_numbers(20, 16, 1)
    exact = neighbours(rows, queries)
    recall = []
    for parameters in (weak, strong):
        measured: dict[str, float] = {}
        index = build_index(Matrix(rows), np.arange(1500), parameters)
        facts = index_facts(index, parameters, queries, [line[:10] for line in exact], measured)
        recall.append(facts["recall"]["10"])
        assert facts["kind"] == parameters.kind and "queries_per_second" not in facts
        assert measured["queries_per_second"] > 0 and measured["searched_k"] == 10
    assert recall[1] > recall[0] + 0.1


def test_a_graph_is_searched_for_as_many_as_are_asked_for():
    rows = real_numbers(500, 16)
    parameters = Index(kind="hnsw", links=16, ef_search=1)
    index = build_index(Matrix(rows), np.arange(500), parameters)
    assert (search_index(index, parameters, rows[:3], 100) >= 0).all()


def refused(values: dict) -> str:
    with pytest.raises(ParameterError) as caught:
        validated(SearchParameters, {"index": values}, "search")
    return str(caught.value)


def test_what_is_out_of_range_is_refused_with_what_is_allowed():
    gallery = Matrix(real_numbers(5, 4))
    with pytest.raises(ParameterError, match=r"search\.index\.lists = 7: the gallery has 5 images"):
        build_index(gallery, np.arange(5), Index(kind="ivf-flat", lists=7, probes=2))
    with pytest.raises(
        ParameterError, match=r"probes = 100: there are 5 lists over 5 images; 1 to 5 are allowed"
    ):
        build_index(gallery, np.arange(5), Index(kind="ivf-flat", probes=100))
    with pytest.raises(ParameterError, match=r"subquantizers = 3: .* a divisor is allowed: 1, 2, 4"):
        build_index(gallery, np.arange(5), Index(kind="ivf-pq", subquantizers=3))
    with pytest.raises(ParameterError, match="gallery has 5 images; at least 16"):
        build_index(gallery, np.arange(5), Index(kind="ivf-pq"))
    with pytest.raises(ParameterError, match=r"bits = 8: .* gallery of 100 images; 4 to 6 are allowed"):
        build_index(Matrix(real_numbers(100, 4)), np.arange(100), Index(kind="ivf-pq"))
    assert "more than the 3 lists" in refused({"kind": "ivf-flat", "lists": 3, "probes": 4})
    assert "search.index.bits = 3: Input should be greater than or equal to 4" in refused(
        {"kind": "ivf-pq", "bits": 3}
    )
    assert "links is no parameter of kind ivf-pq, which has: lists, probes" in refused(
        {"kind": "ivf-pq", "links": 8}
    )
    assert "device gpu is allowed for the kinds flat" in refused({"kind": "hnsw", "device": "gpu"})
    assert "kind cagra needs device: gpu" in refused({"kind": "cagra"})
    assert "on a GPU 8 is allowed" in refused({"kind": "ivf-pq", "device": "gpu", "bits": 6})
    assert "more than the intermediate_degree" in refused(
        {"kind": "cagra", "device": "gpu", "graph_degree": 200}
    )
    assert "'none', 'flat', 'ivf-flat', 'ivf-pq', 'hnsw' or 'cagra'" in refused({"kind": "ivf"})
    with pytest.raises(ParameterError, match="top = 100001"):
        validated(SearchParameters, {"top": 100_001}, "search")


def test_what_is_recorded_is_what_matters_to_the_kind_and_reads_back():
    assert Index().model_dump() == {"kind": "flat"}
    for parameters in KINDS:
        assert Index(**parameters.model_dump()) == parameters
    assert Index(kind="cagra", device="gpu").model_dump()["device"] == "gpu"


def test_derived_parameters():
    assert inverted_lists(Index(kind="ivf-flat"), 3) == 3
    assert inverted_lists(Index(kind="ivf-flat"), 10_000) == 400
    assert [subquantizers(Index(kind="ivf-pq"), dim) for dim in (4, 24, 512, 577)] == [1, 3, 64, 1]


GPU = [Index(kind=kind, device="gpu") for kind in ("flat", "ivf-flat", "ivf-pq", "cagra")]


@pytest.mark.parametrize("parameters", GPU, ids=lambda parameters: parameters.kind)
def test_without_a_gpu_the_reason_is_told(parameters: Index):
    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus():
        pytest.skip("this machine has a GPU that FAISS can use: what is said without one cannot be seen here")
    with pytest.raises(ParameterError, match=r"search\.index\.device = gpu .*(no GPU indexes|finds no GPU)"):
        build_index(Matrix(real_numbers(400, 16)), np.arange(400), parameters)


@pytest.mark.gpu
@pytest.mark.parametrize("parameters", GPU, ids=lambda parameters: parameters.kind)
def test_on_a_gpu(tmp_path: Path, parameters: Index):
    if not hasattr(faiss, "StandardGpuResources") or not faiss.get_num_gpus():
        pytest.skip("needs an NVIDIA GPU and a FAISS built with GPU indexes: `make install GPU=1`")
    if parameters.kind == "cagra" and not hasattr(faiss, "GpuIndexCagra"):
        pytest.skip("this FAISS was built without cuVS")
    rows, queries = real_numbers(5000, 64), real_numbers(20, 64, 1)
    index = build_index(Matrix(rows), np.arange(5000), parameters)
    facts = index_facts(index, parameters, queries, [line[:10] for line in neighbours(rows, queries)])
    assert facts["device"] == "gpu"
    assert (
        facts["recall"]["10"] > {"flat": 0.99, "ivf-flat": 0.3, "ivf-pq": 0.1, "cagra": 0.8}[parameters.kind]
    )
    write_index(index, tmp_path / "index")
    assert faiss.read_index(str(tmp_path / "index")).ntotal == 5000
