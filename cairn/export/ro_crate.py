"""The lineage as a research object: RO-Crate 1.1 metadata with the profile Process Run Crate 0.5.

Every stage is a `CreateAction` with its inputs (`object`), parameters, output (`result`) and code (`instrument`), so
that what reads RO-Crate (Zenodo, WorkflowHub, the crates' own tools) reads where a number came from.
Sources: Soiland-Reyes et al., Packaging research artefacts with RO-Crate, Data Science 2022; Leo et al., Recording
provenance of workflow runs with RO-Crate, PLOS ONE 2024; https://w3id.org/ro/wfrun/process/0.5.
"""

import json
import mimetypes
import shutil
from pathlib import Path
from typing import Any

from cairn.errors import UsageError
from cairn.export.selection import Made, Selection
from cairn.files import atomic_directory, write_json
from cairn.lineage.lock import LOCK
from cairn.lineage.sources import Source
from cairn.lineage.tables import flattened
from cairn.results.table import RESULTS_PATH

METADATA = "ro-crate-metadata.json"
PROCESS_RUN = "https://w3id.org/ro/wfrun/process/0.5"
APACHE = "https://spdx.org/licenses/Apache-2.0"
PARQUET = "application/vnd.apache.parquet"
# What says how to read and repeat the artifacts.
DESCRIBING = {
    LOCK: ("The hash of everything that was made, and of what it was made from", "application/yaml"),
    "params.yaml": ("Which benchmarks, systems and runs there are", "application/yaml"),
    "dvc.yaml": ("The graph, for DVC", "application/yaml"),
    "LICENSE": ("The licence of the code", "text/plain"),
    "README.md": ("How to use it", "text/markdown"),
}


def write_crate(selection: Selection, folder: Path | None = None) -> Path:
    """Write the crate of `selection`; the path of its metadata file.

    Without `folder` the project itself becomes the crate: its metadata file is written beside `dvc.lock`, nothing
    is copied. With it, a folder of that name is made, with copies of everything described: ready to deposit.
    Raises UsageError where `folder` exists.
    """
    root = selection.root
    metadata = crate_metadata(selection)
    if folder is None:
        write_json(root / METADATA, metadata)
        return root / METADATA
    folder = Path(folder)
    if folder.exists():
        raise UsageError(f"{folder} exists already: give the name of a new folder")
    with atomic_directory(folder) as temporary:
        for name in _describing(root):
            shutil.copyfile(root / name, temporary / name)
        for path in sorted(_present(selection)):
            if (root / path).is_dir():
                shutil.copytree(root / path, temporary / path, dirs_exist_ok=True)
            else:
                (temporary / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, temporary / path)
        write_json(temporary / METADATA, metadata)
    return folder / METADATA


def crate_metadata(selection: Selection) -> dict[str, Any]:
    """The JSON-LD of the crate; the same lock, table and commit give the same."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.model.softwareapplication import SoftwareApplication
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")
    root = crate.root_dataset
    benchmarks = ", ".join(selection.titles.values())
    crate.name = f"Image retrieval results: {benchmarks}"
    crate.description = (
        f"{len(selection.numbers):,} numbers with every artifact, parameter, code version and source they rest on, "
        "as recorded by Cairn and DVC."
    )
    crate.datePublished = selection.date
    files = _describing(selection.root)
    root["license"] = {"@id": "LICENSE" if "LICENSE" in files else APACHE}
    if selection.revision.commit:
        root["identifier"] = f"git commit {selection.revision.commit}"
    profile = ContextEntity(
        crate, PROCESS_RUN, {"@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"}
    )
    crate.add(profile)
    root["conformsTo"] = {"@id": PROCESS_RUN}
    for name in files:
        title, kind = DESCRIBING[name]
        crate.add_file(selection.root / name, name, properties={"name": title, "encodingFormat": kind})
    present = _present(selection)
    known = {item.path: _artifact(crate, selection, item, item.path in present) for item in selection.made}
    seen: dict[tuple[str, str], Any] = {}
    for item in selection.made:
        action = ContextEntity(
            crate,
            f"#stage-{item.stage.name}",
            {
                "@type": "CreateAction",
                "name": item.stage.name,
                "description": item.stage.command,
                "actionStatus": "http://schema.org/CompletedActionStatus",
            },
        )
        crate.add(action)
        used = [known[path] for edge in item.edges for path in edge.made_by if path in known]
        for source in item.sources:
            key = (item.path, source.name)
            if key not in seen:
                seen[key] = _source(crate, selection, item, source)
            used.append(seen[key])
        for code in item.code:
            used += [
                crate.add(
                    ContextEntity(
                        crate,
                        f"#parameter-{item.stage.name}-{name}",
                        {"@type": "PropertyValue", "name": name, "value": _value(value)},
                    )
                )
                for name, value in flattened(code.parameters)
            ]
            instrument = SoftwareApplication(
                crate,
                f"urn:cairn:code:{code.digest or item.stage.name}",
                {
                    "name": f"Cairn, step {item.stage.name.split('@')[0]}",
                    "softwareVersion": code.digest or "unknown",
                    "softwareRequirements": [f"{n} {v}" for n, v in code.packages.items()],
                    "description": "digest over the syntax trees of: " + ", ".join(sorted(code.modules)),
                },
            )
            crate.add(instrument)
            action["instrument"] = instrument
        if "instrument" not in action:
            action["instrument"] = crate.add(SoftwareApplication(crate, "#cairn", {"name": "Cairn"}))
        action["object"] = used
        action["result"] = [known[item.path]]
        root.append_to("mentions", action)
    _numbers(crate, selection, known)
    return _single(crate.metadata.generate())


def _artifact(crate: Any, selection: Selection, item: Made, present: bool) -> Any:
    """The data entity of an output; one that is not on this machine is described but not listed as a part."""
    from rocrate.model.contextentity import ContextEntity

    step = item.stage.name.split("@")[0]
    facts = {
        "name": item.path,
        "description": f"what the step {step} made",
        "identifier": f"md5 {item.recorded.md5}",
        **({"contentSize": str(item.recorded.size)} if item.recorded.size is not None else {}),
    }
    if not present:
        return crate.add(ContextEntity(crate, f"#artifact-{item.path}", {"@type": "Dataset", **facts}))
    place = selection.root / item.path
    if place.is_dir():
        return crate.add_dataset(None, item.path, properties=facts)
    return crate.add_file(
        place, item.path, properties={**facts, "encodingFormat": "application/octet-stream"}
    )


def _source(crate: Any, selection: Selection, item: Made, source: Source) -> Any:
    """A source: a file with an address is that address; a user's own is named, since it lies outside the crate."""
    from rocrate.model.contextentity import ContextEntity

    facts: dict[str, Any] = {
        "name": source.name,
        "identifier": [f"{name} {value}" for name, value in source.checksums.items()] or "no checksum",
        **({"contentSize": str(source.size)} if source.size is not None else {}),
        **({"dateCreated": source.retrieved} if source.retrieved else {}),
        **({"copyrightNotice": source.licence} if source.licence else {}),
    }
    said = [text for text in (source.note, source.problem) if text]
    if said:
        facts["description"] = "; ".join(said)
    kind = mimetypes.guess_type(source.location.split("?")[0])[0] or "application/octet-stream"
    inside = f"{item.path}/{source.location}"
    if source.location.startswith(("https://", "http://")):
        return crate.add_file(source.location, properties={**facts, "encodingFormat": kind})
    if (
        "://" not in source.location
        and (selection.root / inside).is_file()
        and item.path in _present(selection)
    ):
        return crate.add_file(selection.root / inside, inside, properties={**facts, "encodingFormat": kind})
    name = f"#source-{item.path}-{source.name}"
    return crate.add(
        ContextEntity(crate, name, {"@type": "CreativeWork", **facts, "alternateName": source.location})
    )


def _numbers(crate: Any, selection: Selection, known: dict[str, Any]) -> None:
    from rocrate.model.contextentity import ContextEntity

    table = known.get(RESULTS_PATH) or next(
        (e for p, e in known.items() if RESULTS_PATH.startswith(p + "/")), None
    )
    if (selection.root / RESULTS_PATH).is_file():
        facts = {"name": "Every number, one row each", "encodingFormat": PARQUET}
        table = crate.add_file(selection.root / RESULTS_PATH, RESULTS_PATH, properties=facts)
    for row in selection.numbers:
        facts = {"@type": "PropertyValue", "name": str(row.name), "value": row.value, "unitText": row.unit}
        if row.low is not None and row.high is not None:
            facts |= {"minValue": row.low, "maxValue": row.high}
        number = crate.add(ContextEntity(crate, f"#number-{row.name}", facts))
        if row.source_artifact in known:
            known[row.source_artifact].append_to("variableMeasured", number)
        elif table is not None:
            table.append_to("variableMeasured", number)


def _single(value: Any) -> Any:
    """Lists of one as that one, which RO-Crate 1.1 recommends; the graph itself stays a list."""
    if isinstance(value, dict):
        return {
            key: [*map(_single, item)] if key == "@graph" else _single(item) for key, item in value.items()
        }
    if isinstance(value, list):
        return _single(value[0]) if len(value) == 1 else [_single(item) for item in value]
    return value


def _describing(root: Path) -> list[str]:
    return [name for name in DESCRIBING if (root / name).is_file()]


def _present(selection: Selection) -> set[str]:
    return {item.path for item in selection.made if (selection.root / item.path).exists()}


def _value(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, sort_keys=True)
