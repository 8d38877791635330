"""The single checks of a verification: each returns what differs, and what is worth a note."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.files import file_digest
from cairn.lineage.graph import ARTIFACTS, CODE_FOLDER, Code, Edge
from cairn.lineage.hashing import below, directory_md5, recorded_files
from cairn.lineage.scope import Finding, Scope
from cairn.lineage.sources import local_file, sources_of

Checked = tuple[list[Finding], list[str]]
ChangedCode = Callable[[Path, Mapping[str, Any]], Sequence[str]]

MANIFEST_FILE = "manifest.parquet"


def check_outputs(scope: Scope) -> Checked:
    """Every output against the hash in `dvc.lock`; the exact file where DVC's cache still has the listing."""
    findings: list[Finding] = []
    for output in scope.outputs:
        recorded = scope.graph.outputs[output].md5
        if not scope.intact(output):
            findings += _differences(scope, output, recorded, scope.tainted([output]))
    return findings, []


def check_others(scope: Scope) -> Checked:
    """What no number rests on (audits, estimates that were not asked for) and lies here changed.

    One that is not here is no finding: `dvc.lock` keeps what systems left that were taken out of `params.yaml`.
    """
    findings: list[Finding] = []
    for output in scope.others:
        content = scope.content[output]
        if (content.files or content.unreadable) and not scope.intact(output):
            findings += _differences(scope, output, scope.graph.outputs[output].md5, ())
    return findings, []


def check_table(scope: Scope) -> Checked:
    """Every row of the results table against the scores artifact that is recorded now."""
    findings = []
    outputs = set(scope.outputs)
    for artifact, rows in sorted(scope.home.items()):
        recorded = scope.graph.outputs[artifact].md5
        stale = [row for row in rows if row.source_artifact == artifact and row.source_md5 != recorded]
        if stale and artifact in outputs:
            message = (
                f"the results table was made from another version of {artifact} "
                f"({_short(stale[0].source_md5)}) than dvc.lock records ({_short(recorded)}): `cairn run`"
            )
            names = tuple(str(row.name) for row in stale)
            findings.append(
                Finding("outdated", artifact, None, stale[0].source_md5, recorded, message, names)
            )
    return findings, []


def check_chain(scope: Scope) -> Checked:
    """Every recorded input against the recorded output it is: a stage may have consumed an older version.

    An output that was made anew leaves all that consumed it behind: that is one finding, not one per consumer.
    """
    behind: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for output in scope.outputs:
        if output in scope.table:
            continue  # its rows say which scores each was read from: `check_table`
        for edge in scope.edges(output):
            for origin in edge.made_by:
                consumed, made = _consumed_and_made(scope, edge, origin)
                if consumed is not None and made is not None and consumed != made:
                    behind.setdefault((origin, consumed, made), []).append((output, edge.input.path))
    findings = []
    for (origin, consumed, made), users in behind.items():
        numbers = {name for output, path in users for name in scope.tainted_through(output, path)}
        stages = list(dict.fromkeys(scope.graph.producer[output].name for output, _ in users))
        paths = list(dict.fromkeys(path for _, path in users))
        message = (
            f"{_some(stages)} used {_some(paths)} in version {_short(consumed)}, but "
            f"{scope.graph.producer[origin].name} now records {_short(made)}: `cairn run`"
        )
        findings.append(Finding("outdated", origin, None, consumed, made, message, tuple(sorted(numbers))))
    return findings, []


def check_sources(scope: Scope) -> Checked:
    """The users' own files against `dvc.lock`, and files that a `sources.json` pins against its checksums."""
    findings: list[Finding] = []
    notes: list[str] = []
    for path, readers in scope.readers.items():
        content = scope.content[path]
        if content.md5 is None:
            notes.append(f"source {path} is not on this machine: its hash cannot be recomputed")
            continue
        for recorded, outputs in _recorded_for(scope, readers, path).items():
            # One without a hash is named as unpinned below.
            if recorded is not None and (content.md5 != recorded or content.unreadable):
                findings += _differences(scope, path, recorded, scope.tainted(outputs), kind="source")
    for output in scope.outputs:
        for source in sources_of(scope.graph, scope.graph.producer[output], output):
            if source.problem:
                notes.append(f"source {source.location} of {output} is {source.status}: {source.problem}")
            file = local_file(scope.root, output, source)
            for algorithm in ("sha256", "md5"):
                expected = source.checksums.get(algorithm)
                if file is None or expected is None or source.recorded_in == "dvc.lock":
                    continue
                if algorithm == "md5" and source.location in scope.readers:
                    continue  # compared above
                found = file_digest(file, algorithm)
                if found != expected:
                    message = (
                        f"source {source.location} has another {algorithm} than {source.recorded_in} pins"
                    )
                    findings.append(
                        Finding(
                            "source", output, str(file), expected, found, message, scope.tainted([output])
                        )
                    )
    return findings, notes


def check_images(scope: Scope) -> Checked:
    """Every image of every intact manifest against the SHA-256 in its row, wherever its bytes lie."""
    findings: list[Finding] = []
    notes: list[str] = []
    for output in scope.outputs:
        if MANIFEST_FILE in scope.content[output].files and scope.intact(output):
            found, said = _check_manifest(scope, output, scope.tainted([output]))
            findings += found
            notes += said
    for path, readers in scope.readers.items():
        # Its stage is gone from dvc.lock (`check_recorded`): the images must not go unseen for that.
        content = scope.content[path]
        if (
            path.startswith(ARTIFACTS)
            and MANIFEST_FILE in content.files
            and content.md5 in _recorded_for(scope, readers, path)
        ):
            found, said = _check_manifest(scope, path, scope.tainted(readers))
            findings += found
            notes += said
    return findings, notes


def check_code(scope: Scope) -> Checked:
    """The output of the `code` stage: a file that was edited by hand no longer says what ran.

    A code file taints the numbers made by its code; those of other numbers are left where only some are
    verified. Where the file cannot be told, everything in this scope is tainted.
    """
    folder = CODE_FOLDER.rstrip("/")
    content = scope.content.get(folder)
    recorded = scope.graph.outputs.get(folder)
    if content is None or recorded is None or scope.intact(folder):
        return [], []  # no code, or no stage that made it: `check_recorded`
    everything = scope.tainted(scope.users_of_code)
    findings = []
    for finding in _differences(scope, folder, recorded.md5, everything):
        if finding.file is None:
            findings.append(finding)
        elif finding.file in scope.users:
            findings.append(replace(finding, numbers=scope.tainted(scope.users[finding.file])))
        elif scope.complete or finding.file not in scope.code_of_others:
            findings.append(replace(finding, numbers=()))
    return findings, []


def code_notes(scope: Scope, changed_code: ChangedCode | None) -> list[str]:
    """Code that is not what made the artifacts any more: no mismatch, since they are what they were."""
    notes: list[str] = []
    for path, code in scope.codes.items():
        users = ", ".join(scope.users[path])
        if not code.present:
            notes.append(f"{path} is not here: the code that made {users} cannot be compared (`dvc pull`)")
        elif not code.current:
            notes.append(
                f"the code or its data changed since {users} was made ({path}): `cairn run` renews it"
            )
        elif changed_code is not None:
            changed = changed_code(scope.root, {"modules": code.modules, "data": code.data})
            if changed:
                notes.append(f"code changed since {users} was made: {_some(changed)}; `cairn run` renews it")
    return notes


def package_notes(codes: Iterable[Code]) -> list[str]:
    """Packages that are installed in another version than the one that made an artifact."""
    from importlib.metadata import PackageNotFoundError, version

    recorded: dict[str, set[str]] = {}
    for code in codes:
        for package, made_with in code.packages.items():
            recorded.setdefault(package, set()).add(made_with)
    notes = []
    for package, versions in sorted(recorded.items()):
        try:
            installed = version(package)
        except (PackageNotFoundError, ValueError):
            installed = "not installed"
        if versions != {installed}:
            notes.append(
                f"package {package}: {', '.join(sorted(versions))} made the artifacts, here it is {installed}"
            )
    return notes


def _differences(
    scope: Scope, path: str, recorded: str | None, numbers: tuple[str, ...], kind: str | None = None
) -> list[Finding]:
    """One finding per file of `path` that differs, or one for the whole where files cannot be told."""
    content = scope.content[path]
    if content.md5 is None:
        message = f"{path} is missing (`dvc pull` fetches it, `cairn run` makes it)"
        return [Finding(kind or "missing", path, None, recorded, None, message, numbers)]
    listing = recorded_files(scope.root, recorded)
    if listing is None and not content.unreadable:
        single = "" in content.files
        which = "" if single else "; which file in it cannot be told, DVC's cache lacks the listing"
        message = f"{path} differs from dvc.lock{which}"
        file = path if single else None
        return [Finding(kind or "changed", path, file, recorded, content.md5, message, numbers)]
    found: list[Finding] = []
    for file, reason in sorted(content.unreadable.items()):
        full = f"{path}/{file}" if file else path
        message = f"{full} cannot be read: {reason}"
        found.append(Finding("unreadable", path, full, None, None, message, numbers))
    if listing is not None:
        for file in sorted({*listing, *content.files} - set(content.unreadable)):
            expected, actual = listing.get(file), content.files.get(file)
            if expected != actual:
                what, message = _difference(f"{path}/{file}", path, expected, actual)
                found.append(
                    Finding(kind or what, path, f"{path}/{file}", expected, actual, message, numbers)
                )
    return found


def _difference(file: str, artifact: str, expected: str | None, actual: str | None) -> tuple[str, str]:
    if actual is None:
        return "missing", f"{file} is missing"
    if expected is None:
        return "unexpected", f"{file} was not there when {artifact} was made"
    return "changed", f"{file} differs from what was recorded"


def _consumed_and_made(scope: Scope, edge: Edge, origin: str) -> tuple[str | None, str | None]:
    """The hash of what `edge` and the output `origin` share: as consumed and as made; None is unknown."""
    path, made = edge.input.path, scope.graph.outputs[origin].md5
    if path == origin:
        return edge.input.md5, made
    if path.startswith(origin + "/"):
        files = scope.listing(origin)
        if files is None:
            return None, None
        inside = path.removeprefix(origin + "/")
        if inside in files:
            return edge.input.md5, files[inside]
        folder = below(files, inside)
        return edge.input.md5, directory_md5(folder) if folder else None
    # `origin` lies inside the folder that was consumed.
    files = recorded_files(scope.root, edge.input.md5)
    if files is None or made is None:
        return None, None
    inside = origin.removeprefix(path + "/")
    if not made.endswith(".dir"):
        return files.get(inside), made
    return directory_md5(below(files, inside)), made


def _recorded_for(scope: Scope, readers: Iterable[str], path: str) -> dict[str | None, list[str]]:
    """The hashes that were recorded for a source → the outputs made from it in that version."""
    found: dict[str | None, list[str]] = {}
    for output in readers:
        for edge in scope.edges(output):
            if edge.input.path == path:
                found.setdefault(edge.input.md5, []).append(output)
    return found


def _check_manifest(scope: Scope, output: str, numbers: tuple[str, ...]) -> Checked:
    from concurrent.futures import ThreadPoolExecutor

    from cairn.images.manifest import ImageSource, read_manifest
    from cairn.parallel import workers
    from cairn.progress import track

    path = scope.root / output / MANIFEST_FILE
    try:
        manifest = read_manifest(path)
    except CairnError as error:
        file = f"{output}/{MANIFEST_FILE}"
        return [Finding("unreadable", output, file, None, None, str(error), numbers)], []
    absent = {archive for archive in set(manifest.archive) if not (scope.root / archive).exists()}
    notes = [
        f"images of {output} are not on this machine ({archive}): they cannot be compared with it"
        for archive in sorted(absent)
    ]
    images = ImageSource(manifest, scope.root)
    rows = [row for row, archive in enumerate(manifest.archive) if archive not in absent]

    def examine(row: int) -> str | None:
        try:
            images.read(row)
        except CairnError as error:
            return str(error)
        return None

    findings = []
    with ThreadPoolExecutor(min(8, workers())) as pool:
        problems = track(pool.map(examine, rows), f"Images of {output}", total=len(rows), unit="images")
        for row, problem in zip(rows, problems, strict=True):
            if problem is not None:
                file = f"{manifest.archive[row]}/{manifest.member[row]}"
                findings.append(Finding("image", output, file, manifest.sha256[row], None, problem, numbers))
    return findings, notes


def _short(digest: str | None) -> str:
    return (digest or "none")[:12]


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
