"""AMES over shortlists: equal to pair by pair, resumable, bounded in memory, clear about what is wrong."""

import errno
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.dense_ames import DenseAmes
from cairn.cache import Cache
from cairn.errors import ArtifactError, InputError, ParameterError
from cairn.rerank import ames_pairs
from cairn.rerank.ames import Ames, AmesShape
from cairn.rerank.ames_files import network_facts, score_pairs
from cairn.rerank.ames_pairs import PairOptions, Shortlist, pair_logits
from cairn.rerank.pairs import read_pairs, rerank_all, write_pairs
from cairn.rerank.rankings import read_ranking, write_reranked
from cairn.rerank.two_stage import Cell, RankedQuery

OPTIONS = PairOptions(query_length=9, gallery_length=5, batch=4)


class Memory:
    """Local descriptors in memory, in the form of the store; image i has `counts[i]` descriptors."""

    def __init__(self, names: list[str], seed: int, room: int = 12, dim: int = 24):
        generator = np.random.default_rng(seed)
        self.path, self.dim = Path(f"{names[0]}.hdf5"), dim
        self.names = {name: row for row, name in enumerate(names)}
        self.features = generator.normal(size=(len(names), room, dim)).astype(np.float16)
        self.counts = generator.integers(1, room + 1, len(names))
        self.read: list[str] = []

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def row_of(self, name: str) -> int:
        return self.names[name]

    def batch(self, names, keypoints):
        self.read.extend(names)
        rows = [self.names[name] for name in names]
        mask = np.arange(keypoints)[None] >= self.counts[rows][:, None]
        local = np.zeros((len(rows), keypoints, self.dim), np.float32)
        room = min(keypoints, self.features.shape[1])
        local[:, :room] = self.features[rows, :room]
        local[mask] = 0
        return local, mask


@pytest.fixture(autouse=True)
def two_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CAIRN_WORKERS", "2")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def network(**changes) -> Ames:
    torch.manual_seed(0)
    sizes = {"local_dim": 24, "model_dim": 16, "layers": 2, "feedforward": 32} | changes
    built = Ames(AmesShape(**sizes))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return built.eval()


def world(n: int = 30, q: int = 3) -> tuple[Memory, Memory, list[Shortlist]]:
    queries = Memory([f"q{i}" for i in range(q)], 1)
    gallery = Memory([f"i{i}" for i in range(n)], 2)
    generator = np.random.default_rng(3)
    shortlists = [
        Shortlist(f"q{i}", tuple(f"i{j}" for j in generator.permutation(n)[: 7 + 4 * i])) for i in range(q)
    ]
    return queries, gallery, shortlists


@pytest.mark.parametrize("variant", [{}, {"binarized": True}])
def test_equals_the_dense_network_pair_by_pair(variant: dict):
    built, (queries, gallery, shortlists) = network(**variant), world()
    logits = pair_logits(built, queries, gallery, shortlists, OPTIONS)
    dense = DenseAmes(built)
    for shortlist, found in zip(shortlists, logits, strict=True):
        assert found.dtype == np.float32
        query, query_mask = map(torch.from_numpy, queries.batch([shortlist.query_id], 9))
        for image, value in zip(shortlist.image_ids, found, strict=True):
            local, mask = map(torch.from_numpy, gallery.batch([image], 5))
            with torch.inference_mode():
                assert value == pytest.approx(dense(query, query_mask, local, mask).item(), abs=5e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("variant", [{}, {"binarized": True}])
def test_half_precision_is_near_float32(dtype: str, variant: dict):
    built, world_ = network(**variant), world()
    exact = np.concatenate(pair_logits(built, *world_, OPTIONS))
    half = np.concatenate(pair_logits(built, *world_, replace(OPTIONS, dtype=dtype)))
    difference = np.abs(exact - half)
    # A bit of a binarised descriptor may flip, so single logits can move further.
    assert np.median(difference) < (0.01 if dtype == "float16" else 0.05) and difference.max() < 0.5
    assert next(built.parameters()).dtype == torch.float32


def test_each_image_is_read_once_in_file_order():
    built, (queries, gallery, shortlists) = network(), world()
    pair_logits(built, queries, gallery, shortlists, OPTIONS)
    wanted = {image for shortlist in shortlists for image in shortlist.image_ids}
    assert gallery.read == sorted(wanted, key=gallery.row_of)
    assert queries.read == ["q0", "q1", "q2"]


def test_logits_do_not_depend_on_workers_nor_on_a_scratch_folder(tmp_path: Path, monkeypatch):
    built, world_ = network(), world()
    expected = pair_logits(built, *world_, OPTIONS)
    monkeypatch.setenv("CAIRN_WORKERS", "1")
    cache = Cache(tmp_path / "cache")
    for scratch in (None, cache, cache):
        found = pair_logits(built, *world_, OPTIONS, scratch, workspace=tmp_path)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    assert torch.get_num_threads() >= 1 and not list(tmp_path.glob("tokens-*"))


def test_an_interrupted_run_resumes_with_finished_queries(tmp_path: Path, monkeypatch):
    built, (queries, gallery, shortlists) = network(), world()
    cache, v1 = Cache(tmp_path / "cache"), ["v1"] * 3
    expected = pair_logits(built, queries, gallery, shortlists, OPTIONS)
    original, calls = Ames.match, []

    def breaks(self, *arguments):
        calls.append(1)
        # The third query's second batch never comes: 2 + 3 batches belong to the first two.
        if len(calls) > 6:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setenv("CAIRN_WORKERS", "1")
    monkeypatch.setattr(Ames, "match", breaks)
    with pytest.raises(KeyboardInterrupt):
        pair_logits(built, queries, gallery, shortlists, OPTIONS, cache, v1)
    blocks = sorted(cache.folder.glob("??/*"))
    assert len(blocks) == 2 and not list(tmp_path.glob("tokens-*"))

    monkeypatch.setattr(Ames, "match", original)
    gallery.read.clear()
    queries.read.clear()
    resumed = pair_logits(built, queries, gallery, shortlists, OPTIONS, cache, v1)
    assert queries.read == ["q2"] and set(gallery.read) == set(shortlists[2].image_ids)
    for one, other in zip(resumed, expected, strict=True):
        np.testing.assert_array_equal(one, other)

    # A damaged block is computed again; another key, option or network finds nothing.
    blocks[0].write_bytes(b"damaged")
    for one, other in zip(
        pair_logits(built, queries, gallery, shortlists, OPTIONS, cache, v1), expected, strict=True
    ):
        np.testing.assert_array_equal(one, other)
    for changed in (
        (built, queries, gallery, shortlists, OPTIONS, cache, ["v2"] * 3),
        (built, queries, gallery, shortlists, PairOptions(9, 4, batch=4), cache, v1),
        (network(heads=1), queries, gallery, shortlists, OPTIONS, cache, v1),
    ):
        queries.read.clear()
        pair_logits(*changed)
        # The weights of one and of two heads are the same numbers, their results are not.
        assert queries.read == ["q0", "q1", "q2"], changed[-1]


def test_what_is_wrong_is_named():
    built, (queries, gallery, shortlists) = network(), world()
    stranger = [Shortlist("q0", ("i1", "nowhere"))]
    with pytest.raises(ArtifactError, match=r"i0.hdf5: no local descriptors of image nowhere.*query q0"):
        pair_logits(built, queries, gallery, stranger, OPTIONS)
    with pytest.raises(ArtifactError, match=r"q0.hdf5: no local descriptors of query q9"):
        pair_logits(built, queries, gallery, [Shortlist("q9", ("i1",))], OPTIONS)
    with pytest.raises(InputError, match=r"q0.hdf5: local descriptors of 24 dimensions.*takes 32"):
        pair_logits(network(local_dim=32), queries, gallery, shortlists, OPTIONS)
    one = [Shortlist("q0", ("i4",))]
    gallery.counts[4] = 0
    with pytest.raises(InputError, match=r"i0.hdf5: image i4: every local descriptor is masked"):
        pair_logits(built, queries, gallery, one, OPTIONS)
    gallery.counts[4] = 3
    gallery.features[4] = 0
    with pytest.raises(ArtifactError, match=r"i0.hdf5: image i4: all its local descriptors are zero"):
        pair_logits(built, queries, gallery, one, OPTIONS)
    gallery.features[4, 0] = np.nan
    with pytest.raises(InputError, match=r"i0.hdf5: image i4: a local descriptor is not finite"):
        pair_logits(built, queries, gallery, one, OPTIONS)
    queries.counts[0] = 0
    with pytest.raises(InputError, match=r"q0.hdf5: image q0: every local descriptor is masked"):
        pair_logits(built, queries, gallery, [Shortlist("q0", ("i1",))], OPTIONS)
    with pytest.raises(ParameterError, match="float8"):
        PairOptions(dtype="float8")


def test_room_for_the_tokens_is_taken_before_they_are_written(tmp_path: Path, monkeypatch):
    """A full disk is an error then; a write to a page without a block of its own would end the process."""
    taken = []

    def full(file: int, start: int, size: int) -> None:
        taken.append(size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    queries, gallery, shortlists = world()
    with pytest.raises(OSError, match="No space left"):
        pair_logits(network(), queries, gallery, shortlists, OPTIONS, workspace=tmp_path)
    images = {image for shortlist in shortlists for image in shortlist.image_ids}
    assert taken == [len(images) * OPTIONS.gallery_length * network().shape.model_dim * 2]
    assert not list(tmp_path.iterdir())


def test_an_empty_shortlist_has_no_logits():
    queries, gallery, shortlists = world()
    logits = pair_logits(network(), queries, gallery, [Shortlist("q0", ()), shortlists[1]], OPTIONS)
    assert [len(values) for values in logits] == [0, len(shortlists[1].image_ids)]


def ranked_world(queries: Memory, gallery: Memory) -> tuple[list[RankedQuery], dict[str, dict[str, str]]]:
    generator = np.random.default_rng(5)
    n = len(gallery.names)
    ranked, relevance = [], {}
    for name in queries.names:
        order = generator.permutation(n)
        score = np.sort(generator.random(n).astype(np.float32))[::-1]
        ranked.append(RankedQuery(name, tuple(f"i{i}" for i in order), order, np.arange(n), score, n))
        relevance[name] = {f"i{i}": g for i, g in zip(order[:6], ["junk", "easy", "hard"] * 2, strict=True)}
    return ranked, relevance


def test_from_ranking_to_files_and_back(tmp_path: Path, monkeypatch):
    built, (queries, gallery, _) = network(), world()
    ranked, relevance = ranked_world(queries, gallery)
    cell = Cell("ames", 8)
    logits = score_pairs(built, ranked, relevance, queries, gallery, 8, OPTIONS)
    facts = network_facts(built, OPTIONS)
    hard = rerank_all(ranked, relevance, logits, cell, "hard")
    for name in ("one", "two"):
        write_pairs(tmp_path / name / "pairs.parquet", ranked, logits, **facts)
        write_reranked(tmp_path / name / "reranked.parquet", ranked, hard, cell.slug)
    for name in ("pairs", "reranked"):
        one, two = ((tmp_path / folder / f"{name}.parquet").read_bytes() for folder in ("one", "two"))
        assert one == two

    # Every other cell follows from the file of pairs alone.
    monkeypatch.setattr(ames_pairs, "pair_logits", None)
    again = read_pairs(tmp_path / "one" / "pairs.parquet", ranked)
    for other in (cell, *cell.diagnostics((0.2, 0.55), (0.3, 2.0))):
        for setting in ("easy", "medium", "hard", "unaware"):
            direct = rerank_all(ranked, relevance, logits, other, setting)
            for a, b in zip(direct, rerank_all(ranked, relevance, again, other, setting), strict=True):
                np.testing.assert_array_equal(a.order, b.order)

    stored = read_ranking(tmp_path / "one" / "reranked.parquet", 30)
    for query, before, new in zip(stored, ranked, hard, strict=True):
        assert query.image_ids == tuple(before.image_ids[i] for i in new.order)
        np.testing.assert_array_equal(query.rank, new.rank)
    with pytest.raises(ArtifactError, match="scored for another one"):
        cut = RankedQuery("q0", ("i1",), np.array([1]), np.array([0]), np.ones(1, np.float32), 30)
        read_pairs(tmp_path / "one" / "pairs.parquet", [cut])


def test_rankings_that_make_no_sense_are_named(tmp_path: Path):
    built, (queries, gallery, _) = network(), world()
    ranked, relevance = ranked_world(queries, gallery)
    logits = score_pairs(built, ranked, relevance, queries, gallery, 4, OPTIONS)
    cell = Cell("ames", 4)
    unaware = rerank_all(ranked, relevance, logits, cell, "unaware")
    write_reranked(tmp_path / "reranked.parquet", ranked, unaware, cell.slug)
    with pytest.raises(
        ArtifactError, match=r"reranked.parquet: ranks of query q0 .*within 29 gallery images"
    ):
        read_ranking(tmp_path / "reranked.parquet", 29)
    with pytest.raises(ArtifactError, match="no such file"):
        read_ranking(tmp_path / "none.parquet", 30)


MEMORY_PROBE = """
import resource, sys
import numpy as np, torch
sys.path.insert(0, "tests/rerank")
from test_ames_pairs import Memory, Shortlist, PairOptions, network, pair_logits
n, q = int(sys.argv[1]), int(sys.argv[2])
queries, gallery = Memory([f"q{i}" for i in range(q)], 1), Memory([f"i{i}" for i in range(n)], 2, room=2)
shortlists = [Shortlist(f"q{i}", tuple(gallery.names)) for i in range(q)]
torch.set_num_threads(1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pair_logits(network(layers=1), queries, gallery, shortlists, PairOptions(4, 2, batch=64))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_shortlists():
    grown = []
    for n, q in ((200, 2), (2000, 8)):
        run = subprocess.run(
            [sys.executable, "-c", MEMORY_PROBE, str(n), str(q)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": "."},
            cwd=Path(__file__).resolve().parents[2],
        )
        assert run.returncode == 0, run.stderr
        grown.append(int(run.stdout) / 1024)
    # 40 times the pairs; activations of 16,000 pairs at once would take 80 MiB more.
    assert grown[1] - grown[0] < 30, grown
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0
