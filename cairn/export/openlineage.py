"""The lineage as OpenLineage events, one START and one COMPLETE per stage, in a file that Marquez and others read.

Source: the OpenLineage specification 2-0-2 (https://openlineage.io/spec/2-0-2/OpenLineage.json).
"""

import json
import uuid
from pathlib import Path
from typing import Any

from cairn.export.selection import Made, Selection
from cairn.files import atomic
from cairn.lineage.tables import flattened

NAMESPACE = "cairn"
PRODUCER = "urn:cairn:export"
# Runs are called by what they made, so that the same lock gives the same events.
_RUNS = uuid.UUID("6f0c9d1e-2d0b-5d61-9d8a-4f3c1b7a5e20")


def write_events(selection: Selection, path: Path) -> int:
    """Write the events of `selection` to `path`, one JSON object a line, upstream first; how many there are.

    Their time is that of the commit that holds `dvc.lock` (of the file, where none does): DVC keeps no other.
    """
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState, set_producer
    from openlineage.client.transport.file import FileConfig, FileTransport

    set_producer(PRODUCER)
    count = 0
    with atomic(Path(path)) as temporary:
        client = OpenLineageClient(transport=FileTransport(FileConfig(str(temporary), append=True)))
        for item in selection.made:
            run = Run(
                str(uuid.uuid5(_RUNS, f"{item.stage.name} {item.recorded.md5}")), facets=_run_facets(item)
            )
            job = Job(NAMESPACE, item.stage.name, facets=_job_facets(selection, item))
            for state in (RunState.START, RunState.COMPLETE):
                done = state is RunState.COMPLETE
                client.emit(
                    RunEvent(
                        eventType=state,
                        eventTime=selection.date.isoformat(),
                        run=run,
                        job=job,
                        inputs=_inputs(selection, item),
                        outputs=[_output(item)] if done else [],
                        producer=PRODUCER,
                    )
                )
                count += 1
    return count


def _inputs(selection: Selection, item: Made) -> list[Any]:
    from openlineage.client.event_v2 import InputDataset

    found = []
    for edge in item.edges:
        for origin in edge.made_by:
            if origin in selection.outputs:
                found.append(InputDataset(NAMESPACE, origin, facets=_version(edge.input.md5)))
    for source in item.sources:
        digest = source.checksums.get("sha256") or source.checksums.get("md5")
        found.append(InputDataset(f"{NAMESPACE}/sources", source.location, facets=_version(digest)))
    return found


def _output(item: Made) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    size = statistics.OutputStatisticsOutputDatasetFacet(
        size=item.recorded.size, fileCount=item.recorded.files
    )
    return OutputDataset(
        NAMESPACE, item.path, facets=_version(item.recorded.md5), outputFacets={"outputStatistics": size}
    )


def _version(digest: str | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    return {} if digest is None else {"version": dataset_version_dataset.DatasetVersionDatasetFacet(digest)}


def _run_facets(item: Made) -> dict[str, Any]:
    from openlineage.client.facet_v2 import execution_parameters_run as parameters

    given = [
        parameters.ExecutionParameter(
            key=name, name=name, value=value if isinstance(value, str) else json.dumps(value)
        )
        for code in item.code
        for name, value in flattened(code.parameters)
    ]
    return {"executionParameters": parameters.ExecutionParametersRunFacet(parameters=given)} if given else {}


def _job_facets(selection: Selection, item: Made) -> dict[str, Any]:
    from openlineage.client.facet_v2 import job_type_job, source_code_job

    facets: dict[str, Any] = {
        "jobType": job_type_job.JobTypeJobFacet(processingType="BATCH", integration="DVC", jobType="STAGE")
    }
    for code in item.code:
        # The digest over syntax trees, and of each module: what `cairn trace` shows.
        listed = json.dumps(
            {"digest": code.digest, "commit": selection.revision.commit, "modules": dict(code.modules)}
        )
        facets["sourceCode"] = source_code_job.SourceCodeJobFacet(language="digests", sourceCode=listed)
    return facets
