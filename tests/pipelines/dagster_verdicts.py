"""Answers, line by line, what Dagster, `cairn status` and `dvc status` say of the project in this directory.

For every line on standard input one line of JSON comes back. One process serves many questions: the definitions
are built anew for each, as Dagster does when it reloads a code location.
"""

import contextlib
import json
import sys
from pathlib import Path


def main() -> None:
    root = Path.cwd()
    sys.path.insert(0, str(root))
    answers = sys.stdout
    for _ in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            answer = verdicts(root)
        print(json.dumps(answer), file=answers, flush=True)


def verdicts(root: Path) -> dict:
    """`dagster`, `cairn` and `dvc`: the assets each calls stale, sorted."""
    import dagster as dg
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    from cairn.parameters import load_parameters
    from pipelines.bridge import reproduce, status
    from pipelines.definitions import build_definitions
    from pipelines.graph import build_graph
    from pipelines.stale import stale_assets
    from pipelines.sync import sync

    nodes = build_graph(load_parameters(root / "params.yaml"))
    by_cairn = sorted(stale_assets(root)["stale"])
    reproduce(root, "code")
    by_dvc = sorted("/".join(nodes[stage].asset) if stage in nodes else stage for stage in status(root))
    with dg.DagsterInstance.get() as instance:
        sync(root, instance, nodes)
        graph = build_definitions(root).resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        by_dagster = sorted(
            "/".join(node.asset)
            for node in nodes.values()
            if resolver.get_status(dg.AssetKey(node.asset)).value != "FRESH"
        )
    return {"dagster": by_dagster, "cairn": by_cairn, "dvc": by_dvc}


if __name__ == "__main__":
    main()
