"""The executors: settings, and a Ray cluster of two workers that writes what one process writes."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cairn.cache import Cache
from cairn.errors import ArtifactError, CairnError, ParameterError
from cairn.executor import LocalExecutor, open_executor
from cairn.search.exact import NotFiniteError, exact_search
from cairn.settings import FILE, RaySettings, local_settings
from cairn.store import shards
from cairn.store.descriptors import open_shards, write_shard
from cairn.store.shards import shard_name
from cairn.systems.descriptors import extract_descriptors
from cairn.systems.ranking import search
from cairn.systems.vocabulary import learn_vocabulary
from tests.search.test_exact import real_numbers, same
from tests.systems.conftest import PARAMETERS, Town, town
from tests.systems.test_steps import VLAD, contents

__all__ = ["town"]  # a fixture


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CAIRN_EXECUTOR", "CAIRN_DEVICE", "CAIRN_RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / FILE
    path.parent.mkdir()
    return path


def test_settings_come_from_the_file_then_from_the_environment(
    settings_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert local_settings(tmp_path).executor == "local"
    with open_executor(tmp_path) as executor:
        assert isinstance(executor, LocalExecutor)
    settings_file.write_text("executor: ray\ndevice: cuda:1\nray: {workers: 3, cpus: 2}\n")
    settings = local_settings(tmp_path)
    assert (settings.executor, settings.device, settings.ray) == (
        "ray",
        "cuda:1",
        RaySettings(workers=3, cpus=2),
    )
    monkeypatch.setenv("CAIRN_EXECUTOR", "local")
    monkeypatch.setenv("CAIRN_RAY_ADDRESS", "auto")
    settings = local_settings(tmp_path)
    assert (settings.executor, settings.ray.address, settings.ray.workers) == ("local", "auto", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("executor: slurm", r"local\.yaml\.executor = 'slurm': Input should be 'local' or 'ray'"),
        ("executors: ray", r"executors is not a known key \(did you mean 'executor'\?\)"),
        ("ray: {workers: 0}", r"ray\.workers = 0: Input should be greater than or equal to 1"),
        ("device: tpu", r"device = 'tpu'"),
        ("- ray", "a mapping is expected"),
        ("executor: [", "not valid YAML"),
    ],
)
def test_wrong_settings_are_named(settings_file: Path, tmp_path: Path, text: str, message: str):
    settings_file.write_text(text)
    with pytest.raises(ParameterError, match=message) as caught:
        local_settings(tmp_path)
    assert "\n" not in str(caught.value)


def squares(shared: int, items: Iterable[int]) -> Iterator[tuple[int, int]]:
    for item in items:
        if item < 0:
            raise ArtifactError(f"{item} is negative")
        yield os.getpid(), shared + item**2


def dies_once(flag: str, items: Iterable[int]) -> Iterator[int]:
    for item in items:
        if item == 3 and not Path(flag).exists():
            Path(flag).touch()
            os._exit(1)
        yield item


@pytest.fixture(scope="module")
def cluster():
    pytest.importorskip("ray", reason="Ray is not installed; requirements-dev.lock has it")
    from cairn.ray_executor import RayExecutor

    executor = RayExecutor(RaySettings(workers=2))
    yield executor
    executor.close()


def test_results_come_in_order_from_both_workers(cluster):
    found = list(cluster.stream(squares, 7, range(40)))
    assert [value for _, value in found] == [7 + item**2 for item in range(40)]
    processes = {process for process, _ in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert list(cluster.stream(squares, 7, [])) == []


def test_an_error_of_a_worker_is_the_callers(cluster):
    with pytest.raises(ArtifactError, match=r"^-1 is negative$"):
        list(cluster.stream(squares, 0, [1, 2, -1, 4]))
    assert [value for _, value in cluster.stream(squares, 0, [2])] == [4]


def test_a_lost_worker_costs_the_items_it_had(cluster, tmp_path: Path):
    assert list(cluster.stream(dies_once, str(tmp_path / "flag"), range(8))) == list(range(8))
    assert (tmp_path / "flag").exists()


def test_the_steps_write_the_same_bytes(cluster, town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shards, "SMALL_SHARD", 8)  # several shards for each worker
    manifest, truth, root = town.manifest, town.truth, town.root
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    learn_vocabulary(manifest, root, VLAD, PARAMETERS, vocabulary, cache=None, features_code="f")
    written = []
    for name, executor in (("local", None), ("ray", cluster)):
        output = tmp_path / name
        (output / "ranking").mkdir(parents=True)
        arguments = (manifest, truth, root, vocabulary, VLAD, PARAMETERS, output / "descriptors")
        cache = Cache(tmp_path / f"cache-{name}")
        extract_descriptors(*arguments, cache=cache, code="c", features_code="f", executor=executor)
        search(output / "descriptors", manifest, truth, {"top": 30}, output / "ranking", executor=executor)
        written.append(contents(output))
    assert written[0] == written[1]
    assert len(written[0]) == 5 + 2 + 3  # shards, queries and facts; ranking, facts and index
    # What a worker described is in the cache of the one who asked: the next run describes nothing.
    again = tmp_path / "again"
    arguments = (manifest, truth, root, vocabulary, VLAD, PARAMETERS, again)
    extract_descriptors(*arguments, cache=cache, code="c", features_code="f", executor=Refuses())
    assert contents(again) == contents(tmp_path / "ray" / "descriptors")


def test_a_network_describes_on_the_workers(
    cluster, town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(shards, "shard_count", lambda images: 3)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(48, 16))
    torch.jit.script(model).save(str(tmp_path / "mine.ts"))
    monkeypatch.setenv("CAIRN_DEVICE", "cpu")
    keys = {"model": str(tmp_path / "mine.ts"), "preprocessing": {"resize": "shorter", "size": 32}}
    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    learn_vocabulary(town.manifest, town.root, "torchscript", keys, vocabulary, cache=None, features_code="")
    for name, executor in (("local", None), ("ray", cluster)):
        extract_descriptors(
            *(town.manifest, town.truth, town.root, vocabulary, "torchscript", keys, tmp_path / name),
            **{"cache": None, "code": "c", "features_code": "", "executor": executor},
        )
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


def test_a_worker_works_in_the_folder_of_the_project(cluster):
    assert list(cluster.stream(folders, None, range(2))) == [str(Path.cwd())] * 2


def test_a_worker_that_cannot_see_the_project_says_so(tmp_path: Path):
    from cairn.ray_executor import _Worker

    with pytest.raises(CairnError, match=r"cannot open the project's folder .* at the same path on every"):
        _Worker(str(tmp_path / "gone")).ready()


def test_descriptors_of_two_kinds_of_devices_are_not_mixed(town: Town, tmp_path: Path):
    class Elsewhere(LocalExecutor):
        def stream(self, function, shared, items):
            for one in super().stream(function, shared, items):
                yield replace(one, device="cuda H200 float16")

    vocabulary = tmp_path / "vocabulary"
    vocabulary.mkdir()
    histogram = "colour-histogram"
    learn_vocabulary(town.manifest, town.root, histogram, {}, vocabulary, cache=None, features_code="")
    with pytest.raises(CairnError, match=r"computes on cuda H200 float16, and this machine would on cpu"):
        extract_descriptors(
            *(town.manifest, town.truth, town.root, vocabulary, histogram, {}, tmp_path / "out"),
            **{"cache": None, "code": "c", "features_code": "", "executor": Elsewhere()},
        )


def folders(_shared: None, items: Iterable[int]) -> Iterator[str]:
    for _ in items:
        yield str(Path.cwd())


class Refuses:
    """An executor that must not be asked for anything."""

    parts = 1

    def stream(self, function, shared, items):
        assert not list(items)
        yield from ()


def test_exact_search_finds_the_same(cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows, queries = real_numbers(9000, 64), real_numbers(75, 64, 1)
    rows[5000:5100] = rows[100:200]  # exact ties between parts
    for number, start in enumerate(range(0, 9000, 3500)):
        part = rows[start : start + 3500]
        write_shard(tmp_path / shard_name(number), [str(start + n) for n in range(len(part))], part, {})
    manifest_rows = np.random.default_rng(2).permutation(9000)
    judged = [np.arange(query, 9000, 97) for query in range(75)]
    monkeypatch.chdir(tmp_path)  # a relative path means another place to a worker
    gallery = open_shards(Path())
    arguments = (queries, gallery, manifest_rows, 1600, judged)
    local = exact_search(*arguments, threads=1)
    shared = exact_search(*arguments, executor=cluster)  # two tiles, one for each worker
    assert same(local, shared) and same(local, exact_search(*arguments, threads=3))


def test_a_score_that_is_not_finite_is_named_from_afar(cluster, tmp_path: Path):
    queries = np.zeros((80, 4), np.float32)
    queries[75] = 2
    rows = np.ones((20_000, 4), np.float32)
    rows[17_000] = 3e38
    write_shard(tmp_path / shard_name(0), [str(n) for n in range(20_000)], rows, {})
    with pytest.raises(NotFiniteError, match="query 75, gallery row 17000"):
        exact_search(queries, open_shards(tmp_path), np.arange(20_000), 5, [[]] * 80, executor=cluster)


def test_more_workers_than_the_cluster_has_processors_are_refused(cluster):
    from cairn.ray_executor import RayExecutor

    other = RayExecutor(RaySettings(workers=50))
    with pytest.raises(ParameterError, match=r"ray\.workers = 50 .* at most 2 such workers are allowed"):
        _ = other.parts
    other.close()
    assert len(list(cluster.stream(squares, 0, range(3)))) == 3


def test_an_address_where_no_cluster_is(monkeypatch: pytest.MonkeyPatch):
    import cairn.ray_executor as module

    def refuse(**_options):
        raise ConnectionError("Could not find any running Ray instance.\nMore")

    pytest.importorskip("ray", reason="Ray is not installed; requirements-dev.lock has it")
    executor = module.RayExecutor(RaySettings(address="auto"))
    monkeypatch.setattr(executor._ray, "is_initialized", lambda: False)
    monkeypatch.setattr(executor._ray, "init", refuse)
    with pytest.raises(
        CairnError, match=r"ray\.address = 'auto': Could not find any running Ray instance\.$"
    ):
        _ = executor.parts


def test_a_cluster_that_does_not_start_here_is_one_line(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("ray", reason="Ray is not installed; requirements-dev.lock has it")
    from cairn.ray_executor import RayExecutor

    asked = {}

    def late(**options):
        asked.update(options)
        raise Exception("The current node timed out during startup.\nMore")

    executor = RayExecutor(RaySettings(workers=2))
    monkeypatch.setattr(executor._ray, "is_initialized", lambda: False)
    monkeypatch.setattr(executor._ray, "init", late)
    with pytest.raises(
        CairnError, match=r"^Ray: a cluster could not be started on this machine \(.*startup\.\)$"
    ):
        _ = executor.parts
    assert asked["address"] == "local"  # never a cluster that happens to run on this machine
