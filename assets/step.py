"""Declares a step once: what it makes, from what, with which parameters; both engines read the declarations."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Scope = Literal["benchmark", "run", "all"]

# Importing a step's module declares it. The order is that of the data's way through the graph.
MODULES = (
    "sources",
    "manifest",
    "ground_truth",
    "training",
    "vocabulary",
    "descriptors",
    "training_descriptors",
    "readout",
    "ranking",
    "local",
    "reranking",
    "tail",
    "scores",
    "results",
)


@dataclass(frozen=True)
class Job:
    """One execution of a step: everything it may read, and the one path it writes.

    `inputs` maps the declared names to existing paths; `output` is an empty directory that takes the place of
    the artifact when the step returns; `parameters` are the effective values (defaults filled in) that the
    `code` stage recorded; `features` is the digest of the code that turns pixels into local features.
    """

    root: Path
    benchmark: str
    system: str
    inputs: Mapping[str, Path]
    output: Path
    parameters: Mapping[str, Any]
    digest: str
    features: str


@dataclass(frozen=True)
class Step:
    """A declaration.

    `inputs` maps a name to the step whose output it is; `{training}` in front of a name (`training:manifest`)
    takes that step's output of the benchmark whose training images are used. `output` is a path template
    over `{benchmark}` and `{system}`. `parameters` are dotted keys: `benchmark.…` of the benchmark's entry in
    `params.yaml`, `system.…` of the system's. `picks` names what is looked up by name and therefore belongs
    to the step's code: the benchmark's adapter, the system's encoder, its reranker. `fan_in` names a step all
    of whose outputs are read. `sample(job, old output, items, seed)` recomputes a few items for `cairn bless`.
    """

    name: str
    function: Callable[[Job], None]
    module: str
    scope: Scope
    inputs: Mapping[str, str]
    output: str
    parameters: tuple[str, ...]
    picks: tuple[str, ...]
    kinds: frozenset[str]
    description: str
    fan_in: str | None = None
    sample: Callable[[Job, Path, int, int], dict[str, Any]] | None = None


_STEPS: dict[str, Step] = {}


def step(
    *,
    scope: Scope,
    output: str,
    inputs: Mapping[str, str] | None = None,
    parameters: tuple[str, ...] = (),
    picks: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    fan_in: str | None = None,
    sample: Callable[[Job, Path, int, int], dict[str, Any]] | None = None,
) -> Callable[[Callable[[Job], None]], Callable[[Job], None]]:
    """Declare the decorated function as a step; its docstring is what the Dagster page says about it."""

    def declare(function: Callable[[Job], None]) -> Callable[[Job], None]:
        name = function.__name__
        _STEPS[name] = Step(
            name=name,
            function=function,
            module=function.__module__,
            scope=scope,
            inputs=dict(inputs or {}),
            output=output,
            parameters=parameters,
            picks=picks,
            kinds=frozenset(kinds),
            description=" ".join((function.__doc__ or "").split()),
            fan_in=fan_in,
            sample=sample,
        )
        return function

    return declare


def steps() -> dict[str, Step]:
    """All declared steps by name, upstream first."""
    for module in MODULES:
        importlib.import_module(f"assets.{module}")
    order = {name: number for number, name in enumerate(MODULES)}
    return dict(sorted(_STEPS.items(), key=lambda item: order[item[0]]))
