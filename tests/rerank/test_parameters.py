"""Parameters of the second stage: what is refused, and which code and files belong to which step."""

import pytest

from cairn.errors import ParameterError
from cairn.rerank import RerankParameters, local_files, parts, reranker_code
from cairn.validation import validated

FILES = {"queries": "q.hdf5", "gallery": ["g.hdf5", "d.hdf5"]}


def checked(**rerank: object) -> RerankParameters:
    return validated(RerankParameters, rerank, "systems.mine.rerank")


@pytest.mark.parametrize(
    ("rerank", "told"),
    [
        ({"method": "ransac"}, r"systems\.mine\.rerank\.method = 'ransac'"),
        ({"method": "ames", "amse": {}}, r"rerank\.amse is not a known key \(did you mean 'ames'"),
        ({"method": "aqe", "after": {"method": "superglobal"}}, "after is for the methods geometry and ames"),
        (
            {"method": "ames", "shortlist": 500, "after": {"method": "superglobal"}},
            r"after\.shortlist = 400 is less than shortlist = 500",
        ),
        ({"method": "ames", "ames": {"mix": 1.5}}, r"rerank\.ames\.mix = 1\.5"),
        ({"method": "ames", "ames": {"files": FILES}}, r"systems\.mine\.rerank\.ames\.checkpoint is missing"),
        (
            {"method": "ames", "ames": {"files": FILES, "dinov2": {"model": "m"}, "checkpoint": "c"}},
            "dinov2 and files exclude one another",
        ),
        (
            {"method": "ames", "ames": {"files": {**FILES, "gallery": []}, "checkpoint": "c"}},
            r"rerank\.ames\.files\.gallery",
        ),
        ({"method": "ames", "ames": {"training": {"heads": 3}}}, "heads = 3 must divide model_dim = 64"),
    ],
)
def test_what_is_refused_is_named(rerank: dict, told: str):
    with pytest.raises(ParameterError, match=told):
        parts(checked(**rerank), "systems.mine.rerank")


def test_shortlists_default_to_the_methods_own():
    expected = {"geometry": 100, "superglobal": 400, "aqe": 400, "k-reciprocal": 400, "ames": 1600}
    assert {method: checked(method=method).k for method in expected} == expected
    assert checked(method="ames", shortlist=7).k == 7


def test_each_step_has_the_code_and_the_files_it_uses():
    ames = {"checkpoint": "c.pt", "files": FILES}
    of = parts(checked(method="ames", ames=ames, after={"method": "superglobal", "shortlist": 1600}))
    reranking = reranker_code(of["rerank"])
    assert reranking.modules == ("cairn.rerank.ames_method", "cairn.rerank.by_descriptors")
    assert reranking.files == ("c.pt",)
    local = reranker_code(of["local"], "local")
    assert local.modules == ("cairn.rerank.by_descriptors", "cairn.rerank.local.borrowed")
    assert local.files == local_files(of["local"]) == ("q.hdf5", "g.hdf5", "d.hdf5")
    assert local.features == ("cairn.rerank.local.borrowed",) and of["reranker_training"] is None
    trained = parts(checked(method="ames"))
    assert reranker_code(trained["reranker_training"], "reranker_training").modules == (
        "cairn.rerank.ames_recipe",
    )
    assert (
        reranker_code({"method": "none"}).modules == reranker_code({"method": "none"}, "local").modules == ()
    )
    xfeat = parts(checked(method="geometry", geometry={"local": "xfeat"}))
    assert reranker_code(xfeat["local"], "local").features == ("cairn.rerank.local.xfeat",)
