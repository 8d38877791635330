"""What an export holds: the chosen numbers and every artifact, stage and source under them."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cairn.errors import ArtifactError
from cairn.lineage.graph import Code, Edge, Graph, load_graph, load_numbers
from cairn.lineage.lock import LOCK, Recorded, Stage
from cairn.lineage.revision import Revision, git, read_revision
from cairn.lineage.sources import Source, sources_of
from cairn.results.names import resolve
from cairn.results.table import RESULTS_PATH, Result, benchmark_facts


@dataclass(frozen=True)
class Made:
    """One output with the stage that made it: its inputs that are artifacts, its sources, its code."""

    path: str
    recorded: Recorded
    stage: Stage
    edges: tuple[Edge, ...]
    sources: tuple[Source, ...]
    code: tuple[Code, ...]


@dataclass(frozen=True)
class Selection:
    """`made` from the sources to the results table; `titles`: benchmark → what it is called."""

    root: Path
    numbers: tuple[Result, ...]
    made: tuple[Made, ...]
    titles: Mapping[str, str]
    revision: Revision
    date: datetime

    @property
    def outputs(self) -> set[str]:
        """The paths of everything that is made."""
        return {item.path for item in self.made}


def select(root: Path, names: Sequence[str] = ()) -> Selection:
    """The numbers called `names` (all where there are none) with what they rest on.

    Raises LineageError or ArtifactError where there is no graph, no table, no such number, or no number at all.
    """
    root = Path(root)
    graph, numbers = load_graph(root), load_numbers(root)
    known = [result.name for result in numbers]
    wanted = {resolve(name, known) for name in names} or set(known)
    chosen = tuple(result for result in numbers if result.name in wanted)
    if not chosen:
        raise ArtifactError(f"{root / RESULTS_PATH}: there are no numbers yet: `cairn run` makes them")
    needed = {path for result in chosen for path in graph.way_back(result)}
    table = graph.made_by(RESULTS_PATH)
    order = [path for path in graph.order(needed) if path in needed] + list(table)
    revision = read_revision(root)
    return Selection(
        root=root,
        numbers=chosen,
        made=tuple(_made(graph, path, needed) for path in order),
        titles={
            b: str(benchmark_facts(root, b).get("title", b))
            for b in sorted({r.name.benchmark for r in chosen})
        },
        revision=revision,
        date=_date(root, revision),
    )


def _made(graph: Graph, path: str, needed: set[str]) -> Made:
    stage = graph.producer[path]
    edges = tuple(edge for edge in graph.edges(stage) if not edge.made_by or needed & set(edge.made_by))
    sources = tuple(s for s in sources_of(graph, stage, path) if s.location != path)
    return Made(path, graph.outputs[path], stage, edges, sources, graph.code(stage))


def _date(root: Path, revision: Revision) -> datetime:
    """When the lock was committed; when it was written, where it is not committed. Never the moment of the export."""
    if revision.commit is not None:
        try:
            text = (git(root, "show", "-s", "--format=%cI", revision.commit) or "").strip()
            return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, FileNotFoundError, subprocess.TimeoutExpired):
            pass
    return datetime.fromtimestamp(int((root / LOCK).stat().st_mtime), UTC)
