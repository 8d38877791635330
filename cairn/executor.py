"""Where the parts of a large step are computed: one after another in this process, or over a Ray cluster.

One small interface: `stream(function, shared, items)`, where `function(shared, some items)` yields one result per
item. `local` calls it once with all items; `ray` has every worker call it with the item that is next. Results come
in the order of the items, so what is written does not depend on the executor.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Executor(Protocol):
    """Computes the results of items."""

    @property
    def parts(self) -> int:
        """Into how many items a step should divide what can be divided at will."""
        ...

    def stream(
        self, function: Callable[[S, Iterable[T]], Iterator[R]], shared: S, items: Iterable[T]
    ) -> Iterator[R]:
        """Yield the result of every item in order. `function`, `shared` and items can be pickled."""
        ...


class LocalExecutor:
    """In this process, which may start worker processes and threads of its own."""

    parts = 1

    def stream(
        self, function: Callable[[S, Iterable[T]], Iterator[R]], shared: S, items: Iterable[T]
    ) -> Iterator[R]:
        """As `Executor.stream`."""
        yield from function(shared, items)


@contextlib.contextmanager
def open_executor(root: Path) -> Iterator[Executor]:
    """The executor of the project at `root` (see `cairn.settings`); a cluster that was started here ends with it.

    ParameterError where the settings cannot be met.
    """
    from cairn.settings import local_settings

    settings = local_settings(root)
    if settings.executor == "local":
        yield LocalExecutor()
        return
    from cairn.ray_executor import RayExecutor

    with contextlib.closing(RayExecutor(settings.ray)) as executor:
        yield executor


def device_of(root: Path) -> str:
    """The device of exact search of the project at `root`."""
    from cairn.settings import local_settings

    return local_settings(root).device


def share(function: Callable[[Any, list[Any]], Iterator[Any]], shared: Any, item: Any) -> Any:
    """The result of one item: what a worker does."""
    (result,) = function(shared, [item])
    return result
