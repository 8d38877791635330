"""Whether each entry of `dvc.lock` says of its path what is so: kind of hash, size, number of files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cairn.lineage.hashing import Content, directory_md5, recorded_files
from cairn.lineage.lock import LOCK, Recorded, Stage
from cairn.lineage.scope import Finding, Scope

KIND = "md5"
"""The only kind of hash that DVC records for files of this machine."""
MEND = f"`git checkout {LOCK}` or `cairn run`"


@dataclass(frozen=True)
class Entry:
    """One item of `deps` or `outs` of a stage, and the names of the numbers that rest on it."""

    stage: Stage
    key: str
    item: Recorded
    numbers: tuple[str, ...]


def check_entries(scope: Scope) -> tuple[list[Finding], list[str]]:
    """The hash's kind, the size and the number of files of every entry, against what has the recorded hash.

    One whose hash is another than that of what lies here is a finding elsewhere (`check_outputs`, `check_chain`,
    `check_sources`); its sizes are then compared with those that `dvc.lock` gives for the same hash.
    """
    findings = []
    for entry in _entries(scope):
        wrong = list(_wrong(scope, entry))
        if not wrong:
            continue
        path = entry.item.path
        said = ", ".join(f"{name} is {recorded}, expected {expected}" for name, recorded, expected in wrong)
        message = f"{LOCK}, stage {entry.stage.name}, {entry.key}: of {path} {said}: {MEND}"
        _, recorded, expected = wrong[0]
        findings.append(Finding("entry", path, LOCK, recorded, expected, message, entry.numbers))
    return findings, folder_notes(scope)


def folder_notes(scope: Scope) -> list[str]:
    """Folders of outputs (`artifacts/scores`) that the results table was made from in another version.

    A system that was taken out of `params.yaml` may have left its scores there, here or where the table was made:
    those of the recorded stages alone will do, and where one of them is not here nothing can be told.
    """
    notes = []
    for stage in [scope.graph.producer[path] for path in scope.table] if scope.complete else []:
        for item in stage.inputs:
            inside = [output for output in scope.graph.made_by(item.path) if output != item.path]
            content = scope.content.get(item.path)
            if not inside or content is None or not all(scope.intact(output) for output in inside):
                continue
            if item.md5 not in (content.md5, _digest_of(content, item.path, inside)):
                notes.append(
                    f"{LOCK} records version {(item.md5 or 'none')[:12]} of {item.path} for {stage.name}, here lies "
                    f"{(content.md5 or 'none')[:12]}: the table may lack numbers; `cairn run`"
                )
    return notes


def _entries(scope: Scope) -> Iterator[Entry]:
    for stage in scope.every_stage:
        code = stage is scope.code_stage
        outputs = list(scope.users_of_code) if code else [output.path for output in stage.outputs]
        for item in stage.outputs:
            yield Entry(stage, "outs", item, scope.tainted(outputs if code else [item.path]))
        for item in stage.inputs:
            if code:
                yield Entry(stage, "deps", item, scope.tainted(outputs))
                continue
            users = [output for output in outputs if item.path in {e.input.path for e in scope.edges(output)}]
            if users:
                numbers = {name for output in users for name in scope.tainted_through(output, item.path)}
                yield Entry(stage, "deps", item, tuple(sorted(numbers)))


def _wrong(scope: Scope, entry: Entry) -> Iterator[tuple[str, str, str]]:
    """What the entry says otherwise: name of the field, as recorded, as expected."""
    item = entry.item
    if item.md5 is None:
        if entry.key == "deps":  # an output without a hash is not intact: `check_outputs`
            made, here = scope.graph.outputs.get(item.path), scope.content.get(item.path)
            yield KIND, "absent", (made and made.md5) or (here and here.md5) or "a hash"
        return
    if item.hash != KIND:
        yield "hash", item.hash or "absent", KIND
    size, files = _facts(scope, item)
    if item.size is None or (size is not None and item.size != size):
        yield "size", _text(item.size), _text(size, "a number of bytes")
    if item.is_directory and (item.files is None or (files is not None and item.files != files)):
        yield "nfiles", _text(item.files), _text(files, "a number of files")
    elif not item.is_directory and item.files is not None:
        yield "nfiles", str(item.files), "none for a single file"


def _facts(scope: Scope, item: Recorded) -> tuple[int | None, int | None]:
    """Bytes and files of what has the item's hash: as it lies here, or as DVC's cache and its own stage say."""
    content = scope.content.get(item.path)
    if content is not None and content.md5 == item.md5 and not content.unreadable:
        return content.size, len(content.files)
    made = scope.graph.outputs.get(item.path)
    size = made.size if made is not None and made is not item and made.md5 == item.md5 else None
    listing = recorded_files(scope.root, item.md5)
    return size, None if listing is None else len(listing)


def _digest_of(content: Content, folder: str, outputs: Sequence[str]) -> str:
    """The hash that `folder` has with nothing in it but `outputs`."""
    prefixes = tuple(f"{output.removeprefix(folder + '/')}/" for output in outputs)
    return directory_md5({path: md5 for path, md5 in content.files.items() if path.startswith(prefixes)})


def _text(value: int | None, otherwise: str = "absent") -> str:
    return otherwise if value is None else str(value)
