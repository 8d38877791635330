"""`cairn fetch`: download, verify and index a benchmark's files ahead of a run."""

import json
from enum import StrEnum
from typing import Annotated, Any

import typer


class Only(StrEnum):
    """What to fetch where not everything."""

    truth = "truth"
    images = "images"


def fetch(
    benchmark: Annotated[
        str, typer.Argument(help="A benchmark of params.yaml, or a known name like roxford5k.")
    ],
    only: Annotated[
        Only | None, typer.Option("--only", help="Only the ground truth, or only images.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Download a benchmark's files, resumed where they broke off, and verify them.

    Files land in .cairn/downloads/; a run finds them there. CAIRN_MIRROR=PREFIX takes them from a mirror, the keys
    `directory` and `mirror` of a benchmark in params.yaml from a folder or a mirror of its own.

    Example: `cairn fetch roxford5k --only truth`
    """
    from cairn.benchmarks.fetching import fetch_benchmark
    from pipelines.project import find_root

    root = find_root()
    adapter, settings = _benchmark(benchmark, root)
    answer = fetch_benchmark(benchmark, adapter, settings, root, only.value if only else None)
    if as_json:
        print(json.dumps(answer, indent=1, ensure_ascii=False, sort_keys=True))
    else:
        _print(answer)


def _benchmark(name: str, root: Any) -> tuple[str, dict[str, Any]]:
    import difflib

    from cairn.benchmarks.adapters import load_adapter
    from cairn.benchmarks.known import entry_of, known_benchmarks
    from cairn.errors import UsageError
    from cairn.parameters import load_parameters, validate
    from pipelines.project import PARAMETERS

    listed = load_parameters(root / PARAMETERS).benchmarks
    if name in listed:
        return listed[name]["adapter"], dict(listed[name]["settings"])
    entry = entry_of(name)
    if entry is None:
        names = sorted({*listed, *known_benchmarks()})
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise UsageError(f"no benchmark {name!r}{hint}; there are: {', '.join(names)}")
    adapter = entry.pop("adapter")
    entry.pop("metric", None)
    module = load_adapter(adapter, name)
    return adapter, validate(module.Parameters, entry, f"benchmark {name}")


def _print(answer: dict[str, Any]) -> None:
    for file in answer["files"]:
        checked = "verified" if file["verified"] else f"unverified ({file['checked_by']})"
        print(f"{file['path']}  {file['size']:,} bytes  sha256 {file['sha256'][:12]}…  {checked}")
    unverified = sum(not file["verified"] for file in answer["files"])
    count = len(answer["files"])
    print(
        f"{count} file{'' if count == 1 else 's'} in {answer['folder']}, "
        f"{unverified} without a published checksum"
    )
