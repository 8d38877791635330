"""The words of the page: what metrics, slices, stages and series are called, and which of them lead."""

from collections.abc import Iterable

from cairn.results.names import FIRST_STAGE, NONE, is_first
from cairn.results.show import HEADLINES, METRIC_TITLES, SLICE_TITLES, slice_key, stage_title
from cairn.results.table import Result

TAIL = "tail-"
"""What the stages of tail estimates begin with."""
MEAN = "mean-of-"
"""What stands for the seed where a value is the mean over several."""
# The slice that a leaderboard is sorted by: the hardest that a benchmark has.
TELLING_SLICES = ("hard", "all", "medium", "easy", "overall")
# How the field writes the families of metrics that have no title in a terminal's table.
FAMILIES = {"mp": "mP", "t-map": "t-mAP", "ndcg": "nDCG", "mrr": "MRR", "map-trapezoid": "mAP (trapezoid)"}


def metric_title(metric: str) -> str:
    """`map@100` → `mAP@100`; a metric without a title of its own stays as it is."""
    family, at, depth = metric.partition("@")
    return METRIC_TITLES.get(metric) or {**METRIC_TITLES, **FAMILIES}.get(family, family) + at + depth


def slice_title(name: str) -> str:
    """What stands over a column: `Easy`, `all`."""
    return name.capitalize() if name in SLICE_TITLES else name


def series_title(result: Result) -> str:
    """System, head, seed and stage in one line: `rootsift-vlad + geometric rerank (k100)`."""
    name = result.name
    seed = f"({name.seed.replace('-', ' ')})" if name.seed.startswith(MEAN) else name.seed
    system = " ".join([name.system, *(part for part in (name.head, seed) if part != NONE)])
    return with_stage(system, name.stage)


def with_stage(system: str, stage: str) -> str:
    """A system at a stage: `rootsift-vlad`, `rootsift-vlad (aqe-n10)`, `rootsift-vlad + geometric rerank (k100)`."""
    if not is_first(stage):
        return f"{system} + {stage_words(stage)}"
    options = _options(stage)
    return f"{system} ({options})" if options else system


def stage_words(stage: str) -> str:
    """A stage as words, with its cell or options where it has any: `geometric rerank (k100)`."""
    if is_first(stage):
        options = _options(stage)
        return f"first ranking ({options})" if options else "first ranking"
    title, cell = stage_title(stage), stage.partition("-")[2]
    return f"{title} ({cell})" if title != stage and cell else title


def _options(stage: str) -> str:
    # What stands around the search: `aqe-n10` of `global-aqe-n10`.
    return stage.removeprefix(FIRST_STAGE).removeprefix("-")


def headline(metrics: Iterable[str]) -> str:
    """The metric a benchmark is known by: the first of HEADLINES, then any mAP, else the first by name."""
    there = sorted(set(metrics))
    chosen = next((name for name in HEADLINES if name in there), None)
    return chosen or next((name for name in there if name.startswith("map@")), there[0])


def telling_slice(slices: Iterable[str]) -> str:
    """The slice a leaderboard is sorted by: the hardest that there is."""
    there = sorted(set(slices), key=slice_key)
    return next((name for name in TELLING_SLICES if name in there), there[0])
