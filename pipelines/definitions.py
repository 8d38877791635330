"""What Dagster loads: one asset per output, made through DVC, with the checks and the sensor that keep them true."""

import sys
from pathlib import Path

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from cairn.benchmarks.adapters import load_adapter
from cairn.parameters import load_parameters
from pipelines.bridge import environment, read_lock
from pipelines.checks import checks_of, protocol_of
from pipelines.code_stage import all_code_version, code_records, code_version
from pipelines.graph import Node, build_graph, effective_parameters
from pipelines.project import CODE, LOCK, PARAMETERS, enter_root
from pipelines.sync import CODE_KEY, FINGERPRINT_TAG, code_metadata, external_key, lock_metadata, sync
from pipelines.versions import data_version, fingerprint
from pipelines.watching import folder_sensor

SYNC_SECONDS = 5
OWNERS = ["team:cairn"]
CODE_DESCRIPTION = """Digests of the code and the effective parameters of every step: one JSON file per step and run.

Every other stage depends on its own file alone, so that a changed helper makes stale exactly what uses it, and a
changed comment nothing. The file lists modules with hashes, which `cairn trace` shows.
"""


# The steps whose work a benchmark's protocol decides.
PROTOCOL_STEPS = ("sources", "ground_truth", "ranking", "reranking", "scores", "tail")


def group_name(node: Node) -> str:
    """Groups are benchmarks; Dagster refuses hyphens in their names."""
    return (node.benchmark or "results").replace("-", "_")


def description(node: Node, protocol: str) -> str:
    """What a stranger should know of an asset: what it is, for what, by which protocol, where it lies. Markdown."""
    of = " / ".join(part for part in (node.benchmark, node.system) if part)
    lines = [node.step.description]
    if of:
        lines.append(f"Of **{of}**.")
    if protocol and node.step.name in PROTOCOL_STEPS:
        lines.append(f"Protocol: {protocol}.")
    made_from = ", ".join(f"`{path}`" for path in (*node.inputs.values(), *node.externals.values()))
    if made_from:
        lines.append(f"Made from {made_from}.")
    lines.append(
        f"Files: `{node.output}`; DVC stage `{node.stage}`; code `{node.step.module.replace('.', '/')}.py`."
    )
    return "\n\n".join(lines)


def stage_asset(
    root: Path, node: Node, nodes: dict[str, Node], version: str, protocol: str
) -> dg.AssetsDefinition:
    """The asset whose materialisation runs the node's DVC stage in a child process."""
    deps = [dg.AssetKey(nodes[stage].asset) for stages in node.upstream.values() for stage in stages]
    deps += [external_key(node, name) for name in node.externals]

    @dg.asset(
        key=dg.AssetKey(node.asset),
        deps=deps,
        group_name=group_name(node),
        kinds={*node.step.kinds, "dvc"},
        code_version=version,
        description=description(node, protocol),
        owners=OWNERS,
        metadata={"dvc_stage": node.stage, "path": dg.MetadataValue.path(str(root / node.output))},
    )
    def made_by_dvc(context: dg.AssetExecutionContext):
        yield from run_stage(context, root, node.stage, node)

    return made_by_dvc


def run_stage(context: dg.AssetExecutionContext, root: Path, stage: str, node: Node | None):
    """Run one stage through DVC in a child process, then report what `dvc.lock` says of it."""
    command = [sys.executable, "-m", "pipelines", "materialize", stage]
    if context.run.tags.get("dvc/force") == "true":
        command.append("--force")
    client = dg.PipesSubprocessClient(cwd=str(root), env=environment(), termination_timeout_seconds=10)
    client.run(context=context, command=command).get_results()
    entry = read_lock(root).get(stage, {})
    if node is None:
        yield dg.MaterializeResult(
            data_version=dg.DataVersion(entry["outs"][0]["md5"]),
            tags={FINGERPRINT_TAG: fingerprint(entry)},
            metadata=code_metadata(root, entry),
        )
        return
    yield dg.MaterializeResult(
        data_version=dg.DataVersion(data_version(node, entry)),
        tags={FINGERPRINT_TAG: fingerprint(entry)},
        metadata=lock_metadata(root, node, entry),
    )


def code_asset(root: Path, version: str) -> dg.AssetsDefinition:
    """The `code` stage: shown on its own, since every asset carries its digest as code version."""

    @dg.asset(
        key=CODE_KEY,
        group_name="code",
        kinds={"python", "dvc"},
        code_version=version,
        owners=OWNERS,
        description=CODE_DESCRIPTION,
        metadata={"path": dg.MetadataValue.path(str(root / CODE))},
    )
    def code(context: dg.AssetExecutionContext):
        yield from run_stage(context, root, "code", None)

    return code


def benchmark_job(name: str) -> UnresolvedAssetJobDefinition:
    """The job that brings all of one benchmark up to date."""
    group = name.replace("-", "_")
    return dg.define_asset_job(
        f"run_{group}",
        dg.AssetSelection.groups(group) | dg.AssetSelection.assets("results"),
        description=f"Everything of {name}, each of its runs included, and the table of all results; through DVC.",
    )


def descriptors_check(root: Path, node: Node) -> dg.AssetChecksDefinition:
    """An asset check: the descriptors are one per image, finite, of norm 1, reproducible, and made as configured."""

    @dg.asset_check(
        asset=dg.AssetKey(node.asset),
        name="descriptors_are_sound",
        description="Counts, finite values, unit norms, duplicates, a sample described again, metadata.",
        blocking=True,
    )
    def descriptors_are_sound() -> dg.AssetCheckResult:
        from assets.descriptors import checks
        from cairn.errors import CairnError

        parameters = effective_parameters(node, load_parameters(root / PARAMETERS))
        try:
            found = checks(root, node.inputs, parameters, root / node.output)
        except (CairnError, OSError, ValueError) as error:  # a damaged file is a finding, not a crash
            said = str(error).splitlines()[0]
            return dg.AssetCheckResult(passed=False, metadata={"error": said}, description=said)
        failed = [f"{check.name}: {check.found}" for check in found if not check.passed]
        return dg.AssetCheckResult(
            passed=not failed,
            description="; ".join(failed) or None,
            metadata={check.name: ("" if check.passed else "FAILED: ") + check.found for check in found},
        )

    return descriptors_are_sound


def lock_sensor(root: Path, nodes: dict[str, Node]) -> dg.SensorDefinition:
    """Every few seconds: copy what `dvc.lock` and the user's own files say into the event log."""

    @dg.sensor(
        name="dvc_lock_sync",
        minimum_interval_seconds=SYNC_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Shows a terminal `dvc repro` on this page: reads {LOCK} every {SYNC_SECONDS} seconds.",
    )
    def dvc_lock_sync(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        reported = sync(root, context.instance, nodes)
        return dg.SkipReason(
            f"{len(reported)} materialisations taken from {LOCK}" if reported else "nothing new"
        )

    return dvc_lock_sync


def build_definitions(root: Path) -> dg.Definitions:
    """All assets, external files, checks, jobs and the sensor of a project."""
    parameters = load_parameters(root / PARAMETERS)
    nodes = build_graph(parameters)
    records = code_records(root, parameters)
    protocols = {
        name: protocol_of(load_adapter(entry["adapter"], f"benchmarks.{name}.adapter"))
        for name, entry in parameters.benchmarks.items()
    }
    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [code_asset(root, all_code_version(records.values()))]
    brought: dict[dg.AssetKey, dg.AssetSpec] = {}
    for node in nodes.values():
        version = code_version(records[node.code])
        assets.append(stage_asset(root, node, nodes, version, protocols.get(node.benchmark, "")))
        for name, path in node.externals.items():
            # Two steps of a system may read one path.
            brought[external_key(node, name)] = dg.AssetSpec(
                external_key(node, name),
                group_name=group_name(node),
                description=f"The user's own {name} of {'/'.join(node.asset[:-1])}: {path}",
                owners=OWNERS,
                kinds={"file"},
                metadata={"path": dg.MetadataValue.path(str((root / path).resolve()))},
            )
    jobs = {name: benchmark_job(name) for name in parameters.benchmarks}
    watched = [node for node in nodes.values() if node.externals and node.step.name == "sources"]
    return dg.Definitions(
        assets=[*assets, *brought.values()],
        asset_checks=[
            *(check for node in nodes.values() for check in checks_of(root, node)),
            *(descriptors_check(root, node) for node in nodes.values() if node.step.name == "descriptors"),
        ],
        jobs=list(jobs.values()),
        sensors=[
            lock_sensor(root, nodes),
            *(folder_sensor(root, node, jobs[node.benchmark]) for node in watched),
        ],
        # Two stages side by side fill two cores; each stage starts its own workers.
        executor=dg.multiprocess_executor.configured({"max_concurrent": 2, "start_method": {"spawn": {}}}),
    )


defs = build_definitions(enter_root())
