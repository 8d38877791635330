"""Prints, as JSON, what Dagster says of every asset of the project in the working directory (after a sync)."""

import json
import sys
from pathlib import Path


def main() -> None:
    import dagster as dg
    from dagster._core.definitions.data_version import CachingStaleStatusResolver
    from dagster._core.loader import LoadingContextForTest

    sys.path.insert(0, str(Path.cwd()))
    from cairn.parameters import load_parameters
    from pipelines.definitions import defs
    from pipelines.graph import build_graph
    from pipelines.sync import sync

    root = Path.cwd()
    nodes = build_graph(load_parameters(root / "params.yaml"))
    with dg.DagsterInstance.get() as instance:
        sync(root, instance, nodes)
        resolver = CachingStaleStatusResolver(
            instance, defs.resolve_asset_graph(), LoadingContextForTest(instance)
        )
        verdicts = {
            "/".join(node.asset): resolver.get_status(dg.AssetKey(node.asset)).value
            for node in nodes.values()
        }
        causes = {
            "/".join(node.asset): [
                f"{cause.category.value}: {cause.reason}"
                for cause in resolver.get_stale_causes(dg.AssetKey(node.asset))
            ]
            for node in nodes.values()
        }
    print(json.dumps({"verdicts": verdicts, "causes": causes}))


if __name__ == "__main__":
    main()
