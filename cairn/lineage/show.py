"""Prints a trace as a tree, and a verification as what differs and whom it taints."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.lineage.graph import Code
from cairn.lineage.sources import SOURCES_FILE, Source
from cairn.lineage.tracing import Artifact, Trace
from cairn.lineage.verifying import Verification
from cairn.results.names import plain
from cairn.results.show import format_interval, format_value

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

HASH_SHOWN = 12
MODULES_SHOWN = 3
PARAMETERS_SHOWN = 6
NUMBERS_SHOWN = 20


def print_trace(trace: Trace, console: "Console", full: bool = False) -> None:
    """Print `trace` as a tree; `full` shows whole hashes, every module, parameter, command and package.

    What several artifacts rest on is shown once, under the longest way back, and referred to elsewhere.
    """
    from rich.text import Text
    from rich.tree import Tree

    tree = Tree(_number(trace, full), guide_style="dim")
    branches = {-1: tree}
    for depth, path, first in trace.walk():
        artifact = trace.artifacts[path]
        if not first:
            branches[depth - 1].add(Text.assemble((plain(path), "bold"), ("  ↑ above", "dim")))
            continue
        branch = branches[depth - 1].add(Text("\n").join([_head(artifact, full), *_facts(artifact, full)]))
        branches[depth] = branch
        for source in artifact.sources:
            branch.add(_source(source, full))
    console.print(tree)
    pinned = len(trace.sources) - len(trace.unverified)
    of_them = (
        "pinned by a checksum" if pinned == len(trace.sources) else f"{pinned} of them pinned by a checksum"
    )
    counts = f"{_count(len(trace.artifacts), 'artifact')}, {_count(len(trace.sources), 'source')}"
    console.print(Text(f"{counts} {of_them}"))
    if not full:
        _print_checksums(trace.sources, console)
    for source in trace.unverified:
        console.print(Text(plain(f"{source.status} source: {source.location}: {source.problem}"), "bold red"))
    for note in trace.notes:
        console.print(Text(plain(f"note: {note}"), "yellow"))


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
    text.append("  synthetic images" if trace.synthetic else "", "yellow")
    text.append(f"\n{result.n_queries:,} queries, gallery of {result.gallery_size:,}", "dim")
    if trace.table is not None:
        text.append(f"\nin {trace.table.path}  {_digest(trace.table.md5, full)}", "dim")
    commit = trace.revision.commit
    if commit is not None:
        text.append(f"\ndvc.lock of commit {commit if full else commit[:HASH_SHOWN]}", "dim")
        text.append(" (the clone is shallow)" if trace.revision.shallow else "", "dim")
    return text


def _head(artifact: Artifact, full: bool) -> "Text":
    from rich.text import Text

    size = [] if artifact.size is None else [_bytes(artifact.size)]
    files = [] if artifact.files is None else [_count(artifact.files, "file")]
    details = ", ".join([_digest(artifact.md5, full), *files, *size])
    return Text.assemble((plain(artifact.path), "bold cyan"), (f"  {details}", "dim"))


def _facts(artifact: Artifact, full: bool) -> list["Text"]:
    lines = [_line("stage", artifact.stage)]
    if full:
        lines.append(_line("command", artifact.command))
    for code in artifact.code:
        lines += _code(code, full)
    lines += [_line("note", note, style="yellow") for note in artifact.notes]
    return lines


def _code(code: Code, full: bool) -> list["Text"]:
    lines = []
    digest = code.digest or "no digest recorded"
    head = _line("code", digest if full else digest[:HASH_SHOWN])
    if not code.present:
        head.append(f"  {plain(code.path)} is not here: modules unknown", "yellow")
    elif not code.current:
        head.append("  has changed since; the modules are not those of now", "yellow")
    else:
        head.append(f"  {plain(_modules(code.modules))}" if not full else "", "dim")
    lines.append(head)
    if full and code.current:
        files = {**code.modules, **code.data}
        lines += [_line("    ", path, digest) for path, digest in files.items()]
    if code.parameters:
        lines.append(_line("parameters", _parameters(code.parameters, full)))
    if code.packages and code.current:
        shown = list(code.packages.items())
        text = ", ".join(
            f"{name} {version}" for name, version in (shown if full else shown[:PARAMETERS_SHOWN])
        )
        more = "" if full or len(shown) <= PARAMETERS_SHOWN else f", … {len(shown) - PARAMETERS_SHOWN} more"
        lines.append(_line("packages", text + more))
    return lines


def _modules(modules: Mapping[str, str]) -> str:
    # The step's own modules tell more than the packages around them.
    telling = [path for path in modules if not path.endswith("__init__.py")]
    telling.sort(key=lambda path: (not path.startswith("assets/"), path))
    shown = ", ".join(telling[:MODULES_SHOWN])
    more = len(modules) - len(telling[:MODULES_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown


def _parameters(parameters: Mapping[str, Any], full: bool) -> str:
    flat = list(_flatten(parameters))
    shown = flat if full else flat[:PARAMETERS_SHOWN]
    text = ", ".join(f"{key}={value}" for key, value in shown)
    return text if len(shown) == len(flat) else f"{text}, … {len(flat) - len(shown)} more"


def _flatten(value: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and item:
            yield from _flatten(item, f"{name}.")
        else:
            yield name, str(item)


def _source(source: Source, full: bool) -> "Text":
    from rich.text import Text

    text = Text.assemble(("source ", "bold magenta"), (plain(source.name), "bold"))
    if source.location != source.name:
        text.append(f"  {plain(source.location)}")
    details = [f"{name} {value if full else value[:HASH_SHOWN]}" for name, value in source.checksums.items()]
    details += [] if source.files is None else [_count(source.files, "file")]
    details += [] if source.size is None else [_bytes(source.size)]
    details += [f"licence {source.licence}"] if source.licence else []
    details += [f"retrieved {source.retrieved}"] if source.retrieved else []
    details += ["synthetic"] if source.synthetic else []
    text.append("\n" + plain(", ".join(details)), "dim")
    if source.problem:
        text.append("\n" + plain(f"{source.status.upper()}: {source.problem}"), "bold red")
    if source.note:
        text.append("\n" + plain(source.note), "yellow")
    return text


def _line(label: str, value: str, detail: str = "", style: str = "") -> "Text":
    from rich.text import Text

    text = Text.assemble((f"{label} ", "dim"), (plain(value), style))
    text.append(f"  {plain(detail)}" if detail else "", "dim")
    return text


def _digest(md5: str | None, full: bool) -> str:
    if md5 is None:
        return "no hash recorded"
    return f"md5 {md5}" if full else f"md5 {md5[:HASH_SHOWN]}"


def _print_checksums(sources: Sequence[Source], console: "Console") -> None:
    """Whole checksums, each on a line of its own: what a reader compares with `sha256sum`."""
    from rich.text import Text

    for source in sources[:NUMBERS_SHOWN]:
        file = source.location
        if "://" not in file and source.recorded_in.endswith(f"/{SOURCES_FILE}"):
            file = f"{source.recorded_in.removesuffix(SOURCES_FILE)}{file}"
        console.print(Text(f"  {plain(file)}"), soft_wrap=True)
        for name, value in source.checksums.items():
            console.print(Text(plain(f"    {name} {value}")), soft_wrap=True)
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
