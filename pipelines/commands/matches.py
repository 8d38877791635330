"""`cairn matches`: the picture of what a query and an image have in common."""

from pathlib import Path
from typing import Annotated

import typer


def matches(
    run: Annotated[str, typer.Argument(help="BENCHMARK/SYSTEM, or the name of a run in params.yaml.")],
    query: Annotated[str, typer.Argument(help="A query's id.")],
    image: Annotated[str, typer.Argument(help="The id of an image in the query's shortlist.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the picture (PNG).")] = Path(
        "matches.png"
    ),
) -> None:
    """Draw a query and an image side by side with the inliers of geometric verification.

    For runs whose second stage looks at local features (docs/reranking.md). `cairn sql` finds pairs: SELECT * FROM
    rerankings WHERE inliers > 20.

    Example: `cairn matches toytown/rootsift-vlad QUERY IMAGE -o matches.png`
    """
    from cairn.benchmarks.structure import read_ground_truth
    from cairn.encoders import load_encoder
    from cairn.errors import ArtifactError, UsageError
    from cairn.images.manifest import read_manifest
    from cairn.parameters import load_parameters
    from cairn.report.matches import draw_matches
    from cairn.rerank import load_local, local_source
    from cairn.rerank.parameters import Geometry
    from pipelines.commands.run import matching_runs
    from pipelines.project import PARAMETERS, enter_root

    here = Path.cwd()
    root = enter_root()
    parameters = load_parameters(root / PARAMETERS)
    keys = matching_runs(run, parameters.runs)
    if len(keys) > 1:
        raise UsageError(f"{run!r} is {len(keys)} runs: {', '.join(keys)}; name one of them")
    benchmark, name = (parameters.runs[keys[0]][part] for part in ("benchmark", "system"))
    system = parameters.systems[name]
    folder = root / "artifacts" / benchmark
    local = folder / name / "local"
    if not local.is_dir():
        raise ArtifactError(f"{benchmark}/{name} has not been run yet: `cairn run {benchmark}/{name}`")
    settings = Geometry.model_validate(system["rerank"].get("geometry", {}))
    source = local_source(system["local"])
    if source == "encoder":
        features = load_encoder(system["encoder"], system["settings"], root).features
    else:
        features = load_local(source).encoder(settings.features).features if source == "xfeat" else None
    target = here / output
    try:
        count = draw_matches(
            local,
            read_manifest(folder / "manifest" / "manifest.parquet"),
            read_ground_truth(folder / "manifest" / "queries"),
            root,
            query,
            image,
            settings,
            getattr(features, "longest", None),
            target,
            title=f"{benchmark}/{name}",
        )
    except OSError as error:
        raise UsageError(f"{target}: cannot be written ({error.strerror})") from None
    print(f"{target}: {count} inliers")
