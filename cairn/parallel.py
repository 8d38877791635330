"""Spawned worker processes with results in order (fork after torch or faiss have run deadlocks)."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def workers() -> int:
    """Worker processes to use: CAIRN_WORKERS, else the processors this process may run on."""
    asked = os.environ.get("CAIRN_WORKERS")
    if asked:
        return max(1, int(asked))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def map_processes(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    chunksize: int = 1,
    initializer: Callable[..., None] | None = None,
    initargs: tuple[Any, ...] = (),
    processes: int | None = None,
    ahead: int | None = None,
) -> Iterator[R]:
    """Yield `function(item)` for every item, in order, from spawned processes (in this one where 1 is asked).

    `ahead` bounds how many results may wait to be taken: without it, fast workers fill the memory with what a
    slow consumer has not asked for.
    Results must not depend on `processes`: the number of workers is never part of an artifact.
    """
    processes = processes or workers()
    if processes == 1:
        if initializer:
            initializer(*initargs)
        yield from map(function, items)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(processes, get_context("spawn"), _begin, (initializer, initargs)) as pool:
        if ahead is None:
            yield from pool.map(function, items, chunksize=chunksize)
        else:
            yield from _bounded(pool, function, items, chunksize, max(ahead, 2 * processes * chunksize))


def in_thread(items: Iterable[T], ahead: int) -> Iterator[T]:
    """Yield `items`, which another thread takes from their iterator up to `ahead` before they are asked for.

    What the iterator raises is raised here. The thread ends when this generator is closed.
    """
    import queue
    import threading

    ready: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
    stop = threading.Event()

    def put(kind: str, value: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((kind, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def take() -> None:
        iterator = iter(items)
        try:
            for item in iterator:
                if not put("item", item):
                    break
            else:
                put("end", None)
        except BaseException as error:  # raised again where the items are used
            put("error", error)
        finally:
            if hasattr(iterator, "close"):
                iterator.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        while True:
            kind, value = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise value
            yield value
    finally:
        stop.set()
        thread.join()


def _bounded(
    pool: Any, function: Callable[[T], R], items: Iterable[T], chunksize: int, ahead: int
) -> Iterator[R]:
    """As pool.map, with at most `ahead` items handed out and not yet taken."""
    from collections import deque
    from itertools import islice

    waiting: deque[Any] = deque()
    stream = iter(items)
    try:
        while True:
            while len(waiting) * chunksize < ahead and (chunk := list(islice(stream, chunksize))):
                waiting.append(pool.submit(_each, function, chunk))
            if not waiting:
                return
            yield from waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _each(function: Callable[[T], R], chunk: list[T]) -> list[R]:
    return [function(item) for item in chunk]


def _begin(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    """Start a worker that ends when its parent does: a parent killed with SIGKILL cannot end it, and it would
    wait for work for ever."""
    import threading

    from cairn.memory import reuse_buffers

    reuse_buffers()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer:
        initializer(*initargs)


def _end_with_parent() -> None:
    from multiprocessing import connection, parent_process

    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
