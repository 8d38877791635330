"""FAISS indexes: the same file each time, the right neighbours, honest recall."""

from pathlib import Path

import faiss
import numpy as np
import pytest
from pydantic import ValidationError

from cairn.errors import ParameterError
from cairn.search import Index, SearchParameters
from cairn.search.index import build_index, index_facts, inverted_lists, write_index
from tests.search.test_exact import Matrix, real_numbers


@pytest.mark.parametrize("parameters", [Index(), Index(kind="ivf-flat", lists=9, probes=3)])
def test_files_are_the_same_each_time_and_ids_are_manifest_rows(tmp_path: Path, parameters: Index):
    rows = real_numbers(400, 24)
    order = np.random.default_rng(0).permutation(400)
    for name in ("one", "two"):
        write_index(build_index(Matrix(rows), order, parameters), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    index = faiss.read_index(str(tmp_path / "one"))
    assert index.ntotal == 400
    # Every image finds itself first, under the number of its manifest row.
    assert index.search(rows[order[:50]].astype(np.float32), 1)[1][:, 0].tolist() == list(range(50))


def test_recall_is_the_share_of_exact_neighbours():
    rows, queries = real_numbers(1000, 16), real_numbers(20, 16, 1)
    exact = [
        np.argsort(-line, kind="stable") for line in queries.astype(np.float32) @ rows.astype(np.float32).T
    ]
    flat = build_index(Matrix(rows), np.arange(1000), Index())
    facts = index_facts(flat, Index(), queries, [line[:150] for line in exact])
    assert facts["recall"] == {"1": 1.0, "10": 1.0, "100": 1.0, "150": 1.0}
    parameters = Index(kind="ivf-flat", lists=40, probes=2)
    facts = index_facts(build_index(Matrix(rows), np.arange(1000), parameters), parameters, queries, exact)
    assert (facts["lists"], facts["probes"]) == (40, 2)
    assert 0.05 < facts["recall"]["10"] < 0.95
    wrong = [line[::-1] for line in exact]
    assert index_facts(flat, Index(), queries, wrong)["recall"]["10"] == 0


def test_more_lists_than_images_or_probes_than_lists_are_refused():
    with pytest.raises(ParameterError, match=r"search\.index\.lists = 7: the gallery has 5 images"):
        build_index(Matrix(real_numbers(5, 4)), np.arange(5), Index(kind="ivf-flat", lists=7, probes=2))
    with pytest.raises(ValidationError, match="more than the 3 lists"):
        Index(kind="ivf-flat", lists=3, probes=4)
    assert inverted_lists(Index(kind="ivf-flat"), 3) == 3
    assert inverted_lists(Index(kind="ivf-flat"), 10_000) == 400
    with pytest.raises(ValidationError):
        SearchParameters(top=0)
