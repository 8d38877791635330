"""Prints a trace as a list from the number down, and a verification as what differs and whom it taints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.lineage.graph import ARTIFACTS, Code
from cairn.lineage.sources import SOURCES_FILE, Source
from cairn.lineage.tracing import Artifact, Trace
from cairn.lineage.verifying import Verification
from cairn.results.names import plain
from cairn.results.show import format_interval, format_value

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

HASH_SHOWN = 12
DEEPEST = 6
"""Spaces before an artifact at most, one for each step between it and the number."""
INDENT = " " * (DEEPEST + 1)
NUMBERS_SHOWN = 20


def print_trace(trace: Trace, console: "Console", full: bool = False) -> None:
    """Print `trace`: every artifact once, under the longest way back, then the sources with whole checksums.

    By default one line per artifact: path, hash, step. `full` shows whole hashes, and what each was made from: every
    module, parameter, command and package.
    """
    from rich.text import Text

    console.print(_number(trace, full), soft_wrap=True)
    once = [(depth, trace.artifacts[path]) for depth, path, first in trace.walk() if first]
    folder = "" if full else ARTIFACTS  # said once, so that a line fits a terminal of 80 columns
    names = [
        f"{' ' * min(depth, DEEPEST)}{plain(artifact.path.removeprefix(folder))}" for depth, artifact in once
    ]
    longest = max(map(len, names))
    console.print(Text(f"\nmade by way of (in {ARTIFACTS}; md5, step)", "dim"))
    for name, (_, artifact) in zip(names, once, strict=True):
        lines = [_head(name if full else name.ljust(longest), artifact, full)]
        lines += _facts(artifact, trace.children(artifact.path)) if full else []
        lines += [_line(f"{INDENT}note", note, style="yellow") for note in artifact.notes]
        lines += [_source(source, full) for source in artifact.sources[: None if full else NUMBERS_SHOWN]]
        if not full and len(artifact.sources) > NUMBERS_SHOWN:
            lines.append(Text(f"{INDENT}… {len(artifact.sources) - NUMBERS_SHOWN} more (--full)", "dim"))
        console.print(Text("\n").join(lines), soft_wrap=True)
    pinned = len(trace.sources) - len(trace.unverified)
    of_them = (
        "pinned by a checksum" if pinned == len(trace.sources) else f"{pinned} of them pinned by a checksum"
    )
    counts = f"{_count(len(trace.artifacts), 'artifact')}, {_count(len(trace.sources), 'source')}"
    console.print(Text(f"\n{counts} {of_them}"))
    if not full:
        _print_checksums(trace.sources, console)
    for source in trace.unverified:
        console.print(Text(plain(f"{source.status} source: {source.location}: {source.problem}"), "bold red"))
    for note in trace.notes:
        console.print(Text(plain(f"note: {note}"), "yellow"))
    if not full:
        console.print(Text("--full: code, parameters and packages of each, and whole hashes", "dim"))


def print_verification(verification: Verification, console: "Console", strict: bool = False) -> None:
    """Print what differs (file, both digests, tainted numbers), the notes, and the verdict."""
    from rich.text import Text

    for finding in verification.findings:
        console.print(Text(plain(finding.message), "bold red"))
        if finding.expected or finding.found:
            console.print(
                Text(f"  recorded {finding.expected or 'nothing'}, found {finding.found or 'nothing'}")
            )
        console.print(
            Text(f"  taints {_count(len(finding.numbers), 'number')}" + (":" if finding.numbers else ""))
        )
        if finding.numbers:
            _print_numbers(finding.numbers, console)
    for note in verification.notes:
        console.print(Text(plain(f"note: {note}"), "yellow"))
    checked = (
        f"{_count(len(verification.numbers), 'number')}, {_count(verification.artifacts, 'artifact')}, "
        f"{_count(verification.files, 'file')}, {_bytes(verification.size)}"
    )
    if verification.synthetic:
        checked += f"; {', '.join(verification.synthetic)} (synthetic)"
    if verification.findings:
        tainted = _count(len(verification.tainted), "number")
        console.print(
            Text(
                f"FAILED: {_count(len(verification.findings), 'finding')}, {tainted} tainted ({checked})",
                "bold red",
            )
        )
    elif not verification.passed(strict):
        console.print(Text(f"FAILED: --strict, and there are notes ({checked})", "bold red"))
    else:
        scored = ", rankings scored again give the same numbers" if verification.rescored else ""
        console.print(Text(f"verified: every hash is what was recorded{scored} ({checked})", "bold green"))


def _number(trace: Trace, full: bool) -> "Text":
    from rich.text import Text

    result = trace.result
    percent = "%" if result.unit == "fraction" else f" {result.unit}"
    interval = format_interval(result)
    text = Text.assemble((str(result.name), "bold"), f" = {format_value(result)}{percent}")
    text.append(f" [{interval}]" if interval else "")
    text.append(f"\n{result.n_queries:,} queries, gallery of {result.gallery_size:,}", "dim")
    text.append(", synthetic images" if trace.synthetic else "", "yellow")
    if trace.table is not None:
        text.append(
            f"\nin {trace.table.path}  {'' if full else 'md5 '}{_digest(trace.table.md5, full)}", "dim"
        )
    commit = trace.revision.commit
    if commit is not None:
        text.append(f"\ndvc.lock of commit {commit if full else commit[:HASH_SHOWN]}", "dim")
        text.append(" (the clone is shallow)" if trace.revision.shallow else "", "dim")
    return text


def _head(name: str, artifact: Artifact, full: bool) -> "Text":
    from rich.text import Text

    text = Text.assemble((name, "bold cyan"), (f"  {_digest(artifact.md5, full)}", "dim"))
    if not full:
        return text.append(f"  {plain(artifact.step)}", "dim")
    files = [] if artifact.files is None else [_count(artifact.files, "file")]
    size = [] if artifact.size is None else [_bytes(artifact.size)]
    return text.append("".join(f", {part}" for part in [*files, *size]), "dim")


def _facts(artifact: Artifact, made_from: Sequence[str]) -> list["Text"]:
    lines = [_line(f"{INDENT}stage", artifact.stage), _line(f"{INDENT}command", artifact.command)]
    if made_from:
        lines.append(_line(f"{INDENT}from", ", ".join(made_from)))
    for code in artifact.code:
        lines += _code(code)
    return lines


def _code(code: Code) -> list["Text"]:
    head = _line(f"{INDENT}code", code.digest or "no digest recorded")
    if not code.present:
        head.append(f"  {plain(code.path)} is not here: modules unknown", "yellow")
    elif not code.current:
        head.append("  has changed since; the modules are not those of now", "yellow")
    lines = [head]
    if code.current:
        files = {**code.modules, **code.data}
        lines += [_line(f"{INDENT}    ", path, digest) for path, digest in files.items()]
    if code.parameters:
        given = ", ".join(f"{key}={value}" for key, value in _flatten(code.parameters))
        lines.append(_line(f"{INDENT}parameters", given))
    if code.packages and code.current:
        used = ", ".join(f"{name} {version}" for name, version in code.packages.items())
        lines.append(_line(f"{INDENT}packages", used))
    return lines


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            yield from _flatten(item, f"{name}.")
        else:
            yield name, str(item)


def _source(source: Source, full: bool) -> "Text":
    from rich.text import Text

    text = Text.assemble((f"{INDENT}source ", "bold magenta"), (plain(source.name), "bold"))
    if source.location != source.name:
        text.append(f"  {plain(source.location)}")
    if full:
        text.append(f"\n{INDENT}    {plain(', '.join([*_checksums(source), *_details(source)]))}", "dim")
    if source.problem:
        text.append(f"\n{INDENT}    " + plain(f"{source.status.upper()}: {source.problem}"), "bold red")
    if source.note:
        text.append(f"\n{INDENT}    {plain(source.note)}", "yellow")
    return text


def _checksums(source: Source) -> list[str]:
    return [f"{name} {value}" for name, value in source.checksums.items()]


def _details(source: Source) -> list[str]:
    details = [] if source.files is None else [_count(source.files, "file")]
    details += [] if source.size is None else [_bytes(source.size)]
    details += [f"licence {source.licence}"] if source.licence else []
    details += [f"retrieved {source.retrieved}"] if source.retrieved else []
    return details + (["synthetic"] if source.synthetic else [])


def _line(label: str, value: str, detail: str = "", style: str = "") -> "Text":
    from rich.text import Text

    text = Text.assemble((f"{label} ", "dim"), (plain(value), style))
    text.append(f"  {plain(detail)}" if detail else "", "dim")
    return text


def _digest(md5: str | None, full: bool) -> str:
    if md5 is None:
        return "no hash recorded"
    return f"md5 {md5}" if full else md5[:HASH_SHOWN]


def _print_checksums(sources: Sequence[Source], console: "Console") -> None:
    """The sources' whole checksums, each on a line of its own: what a reader compares with `sha256sum`."""
    from rich.text import Text

    for source in sources[:NUMBERS_SHOWN]:
        file = source.location
        # What `dvc.lock` vouches for as well is the user's own: its path is that in the project.
        if (
            "://" not in file
            and source.recorded_in.endswith(f"/{SOURCES_FILE}")
            and "," not in source.recorded_in
        ):
            file = f"{source.recorded_in.removesuffix(SOURCES_FILE)}{file}"
        console.print(Text(f"  {plain(file)}"), soft_wrap=True)
        for checksum in _checksums(source):
            console.print(Text(plain(f"    {checksum}")), soft_wrap=True)
        if details := _details(source):
            console.print(Text(plain(f"    {', '.join(details)}"), "dim"), soft_wrap=True)
    if len(sources) > NUMBERS_SHOWN:
        console.print(Text(f"  … {len(sources) - NUMBERS_SHOWN} more (--full, --json)"))


def _print_numbers(numbers: Sequence[str], console: "Console") -> None:
    from rich.text import Text

    for name in numbers[:NUMBERS_SHOWN]:
        console.print(Text(f"    {name}"))
    if len(numbers) > NUMBERS_SHOWN:
        console.print(Text(f"    … {len(numbers) - NUMBERS_SHOWN} more (--json lists all)"))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
