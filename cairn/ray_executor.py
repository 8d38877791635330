"""The executor on a Ray cluster: one actor per GPU (or processor), each with one item at a time.

Actors hold what all items share once, and stay for the whole step. A lost node costs the items that it was at: they
are given to another. Some processors stay free beside the actors: a cluster whose actors take every one of them
waits for ever, without a word, for the next thing it is asked to start.
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from cairn.errors import CairnError, ParameterError
from cairn.executor import share
from cairn.progress import say
from cairn.settings import FILE, RaySettings

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")

SPARE = 1
"""Processors of a cluster that no actor takes."""
QUEUED = 2
"""Items that an actor has at once, so that it need not wait while a result is written."""
AHEAD = 4
"""Items per actor that are under way or wait for their turn to be yielded."""
PARTS = 4
"""Parts per actor, so that all end at about the same time."""
RETRIES = 3
PATIENCE = 60
"""Seconds after which it is told that actors have not started yet."""


class RayExecutor:
    """See `cairn.executor.Executor`. ParameterError where Ray is not installed or the cluster is too small."""

    def __init__(self, settings: RaySettings) -> None:
        try:
            import ray
        except ImportError:
            raise ParameterError(
                f"{FILE}: executor = 'ray': Ray is not installed; install the extra `ray`"
            ) from None
        self._ray: Any = ray
        self._settings = settings
        self._started = False
        self._actors: list[Any] = []

    @property
    def parts(self) -> int:
        """Several per actor."""
        return PARTS * len(self._workers())

    def stream(
        self, function: Callable[[S, Iterable[T]], Iterator[R]], shared: S, items: Iterable[T]
    ) -> Iterator[R]:
        """As `Executor.stream`; an error of a worker is raised here as it was there."""
        ray = self._ray
        actors = self._workers()
        held = ray.put(shared)
        number = self._number = getattr(self, "_number", 0) + 1
        free, waiting, running = deque(actors * QUEUED), deque(), {}
        remaining, exhausted = iter(items), False
        try:
            while waiting or not exhausted:
                while free and not exhausted and len(waiting) < AHEAD * len(actors):
                    try:
                        item = next(remaining)
                    except StopIteration:
                        exhausted = True
                        break
                    actor = free.popleft()
                    # Inside a list, so that Ray does not unpack what is shared for every item.
                    reference = actor.do.remote(function, number, [held], item)
                    waiting.append(reference)
                    running[reference] = actor
                while waiting and waiting[0] not in running:
                    yield ray.get(waiting.popleft())
                if running:
                    done, _ = ray.wait(list(running), num_returns=1, fetch_local=False)
                    free.extend(running.pop(reference) for reference in done)
        except ray.exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, CairnError):
                raise cause from None
            raise
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[0]
            raise CairnError(
                f"Ray: a worker was lost more than {RETRIES} times ({reason}); where its memory ran out, set fewer "
                f"ray.workers in {FILE}"
            ) from error
        finally:
            for reference in running:
                ray.cancel(reference, recursive=False)

    def close(self) -> None:
        """End the actors, and the cluster where it was started here."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._started:
            self._ray.shutdown()
            self._started = False

    def _workers(self) -> list[Any]:
        if self._actors:
            return self._actors
        ray, settings = self._ray, self._settings
        if not ray.is_initialized():
            self._start()
        resources = ray.cluster_resources()
        cpus, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        count = settings.workers or gpus or max(1, cpus - SPARE)
        each = settings.cpus or (max(1, (cpus - SPARE) // count) if gpus else 1)
        if count * each > cpus - SPARE:
            raise ParameterError(
                f"{FILE}: ray.workers = {count} with {each} processors each: the cluster has {cpus}, of which "
                f"{SPARE} must stay free; at most {max(0, (cpus - SPARE) // each)} such workers are allowed"
            )
        one_gpu = 1 if gpus else 0
        if count * one_gpu > gpus:
            raise ParameterError(
                f"{FILE}: ray.workers = {count}: the cluster has {gpus} GPUs, one for each; at most so many are allowed"
            )
        environment = {"CAIRN_WORKERS": str(each), "OMP_NUM_THREADS": str(each)}
        if asked := os.environ.get("CAIRN_DEVICE"):
            environment["CAIRN_DEVICE"] = asked.partition(":")[0]  # a worker sees one GPU
        actor = ray.remote(_Worker).options(
            num_cpus=each,
            num_gpus=one_gpu,
            max_restarts=RETRIES,
            max_task_retries=RETRIES,
            runtime_env={"env_vars": environment | _import_path()},
        )
        self._actors = [actor.remote(str(Path.cwd())) for _ in range(count)]
        ready = [actor.ready.remote() for actor in self._actors]
        while ready:
            started, ready = ray.wait(ready, num_returns=len(ready), timeout=PATIENCE)
            for reference in started:
                try:
                    ray.get(reference)  # raises what keeps a worker from starting
                except ray.exceptions.RayTaskError as error:
                    raise getattr(error, "cause", None) or error from None
            if ready:
                say(f"Ray: {len(ready)} of {count} workers have not started yet; is the cluster busy?")
        return self._actors

    def _start(self) -> None:
        ray, settings = self._ray, self._settings
        options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
        if settings.address is None:
            from cairn.parallel import workers

            wanted = (settings.workers or 1) * (settings.cpus or 1) if settings.workers else workers()
            # Logical processors: enough for the actors and the spare one on however small a machine. `local` is
            # a cluster of its own, whatever another user's `ray start` or RAY_ADDRESS offers.
            options |= {"address": "local", "num_cpus": wanted + SPARE, "include_dashboard": False}
        else:
            options["address"] = settings.address
        try:
            ray.init(**options)
        except Exception as error:  # Ray raises a plain Exception where its processes do not start in time
            reason = str(error).strip().splitlines()[0]
            if settings.address is None:
                raise CairnError(f"Ray: a cluster could not be started on this machine ({reason})") from None
            raise ParameterError(f"{FILE}: ray.address = {settings.address!r}: {reason}") from None
        self._started = True


def _import_path() -> dict[str, str]:
    """Workers find the same modules as this process."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


class _Worker:
    """Lives in a process of the cluster."""

    def __init__(self, folder: str) -> None:
        self._number, self._shared = 0, None
        try:  # paths in params.yaml are relative to the project, which every machine sees at the same place
            os.chdir(folder)
        except OSError as error:
            self._lost = f"Ray: a worker cannot open the project's folder {folder} ({error.strerror})"
        else:
            self._lost = None

    def ready(self) -> bool:
        """Whether it is there. CairnError where the project is not."""
        if self._lost is not None:
            raise CairnError(f"{self._lost}; the project must lie at the same path on every machine")
        return True

    def do(self, function: Any, number: int, held: list[Any], item: Any) -> Any:
        """The result of one item; `held` is a reference to what all items of call `number` share."""
        if number != self._number:
            import ray

            self._shared = None  # before the next one takes its memory
            self._shared, self._number = ray.get(held[0]), number
        return share(function, self._shared, item)
