"""Runs assets and their checks in the Dagster instance of the project in this directory, one request after another.

For every line of JSON on standard input, `{"select": SELECTION, "checks_only": bool}`, one line comes back: whether the
run succeeded, the assets it materialised, and of each check whether it passed, its severity and what it said.
"""

import contextlib
import json
import sys
from pathlib import Path


def main() -> None:
    root = Path.cwd()
    sys.path.insert(0, str(root))
    answers = sys.stdout
    for line in sys.stdin:
        with contextlib.redirect_stdout(sys.stderr):
            answer = run(root, **json.loads(line))
        print(json.dumps(answer), file=answers, flush=True)


def run(root: Path, select: list[str], checks_only: bool = False) -> dict:
    import dagster as dg

    from pipelines.definitions import build_definitions

    definitions = build_definitions(root)
    keys = [dg.AssetKey(asset.split("/")) for asset in select]
    chosen = dg.AssetSelection.checks_for_assets(*keys) if checks_only else dg.AssetSelection.assets(*keys)
    with dg.DagsterInstance.get() as instance:
        result = dg.materialize(
            [*definitions.assets, *definitions.asset_checks],
            instance=instance,
            selection=chosen,
            raise_on_error=False,
        )
        return {
            "success": result.success,
            "made": sorted("/".join(m.asset_key.path) for m in result.get_asset_materialization_events()),
            "checks": {
                f"{'/'.join(check.asset_key.path)}:{check.check_name}": {
                    "passed": check.passed,
                    "severity": check.severity.value,
                    "said": {name: str(value.value) for name, value in check.metadata.items()},
                }
                for check in result.get_asset_check_evaluations()
            },
        }


if __name__ == "__main__":
    main()
