"""The report: one HTML file with every number, its plots, its queries and its way back; no network, no clock."""

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from cairn.card.claims import compute, read_claims
from cairn.card.published import published_rows
from cairn.card.standing import percent, register_tables
from cairn.errors import ArtifactError
from cairn.files import atomic, file_digest
from cairn.lineage.graph import load_numbers
from cairn.lineage.lock import LOCK
from cairn.lineage.tracing import Trace
from cairn.report.board import Board, build_boards
from cairn.report.contamination import contamination_tables, training_tables
from cairn.report.estimates import tail_reports
from cairn.report.figures import Figure, benchmark_figures
from cairn.report.plots import plot_tables
from cairn.report.queries import Shown, query_galleries
from cairn.report.ways import Way, follow_all, lineage_document, number_rows, way_of
from cairn.report.words import TAIL
from cairn.results.database import open_database
from cairn.results.names import NONE
from cairn.results.show import protocol_words
from cairn.results.table import RESULTS_PATH, Result, benchmark_facts

DEFAULT_PATH = "report.html"
TEMPLATES = Path(__file__).with_name("template")
PICTURE_BYTES = 5_000_000
"""What the pictures may weigh in all, so that a page of thousands of numbers stays under 10 MB."""


def write_report(root: Path, path: Path) -> str:
    """Write the page of the project at `root` to `path` and return it. Errors as `build_report`."""
    page = build_report(root)
    with atomic(path) as temporary:
        temporary.write_text(page, "utf-8")
    return page


def build_report(root: Path, picture_bytes: int = PICTURE_BYTES) -> str:
    """The page of the project at `root`; the same artifacts give the same text, wherever they lie.

    Raises LineageError where a number cannot be followed or a required claim is no longer true, ArtifactError
    where the results table is missing, damaged or empty.
    """
    root = Path(root)
    numbers = load_numbers(root)
    if not numbers:
        raise ArtifactError(f"{root / RESULTS_PATH}: there are no numbers yet: `cairn run` makes them")
    traces = follow_all(root, numbers)
    tables = plot_tables(root, numbers)
    runs = sorted({(row.name.benchmark, row.name.system) for row in numbers})
    galleries, pictures, notes = query_galleries(root, runs, picture_bytes)
    boards = build_boards(numbers, published_rows())
    benchmarks = sorted({row.name.benchmark for row in numbers})
    sections = [
        _section(
            root, name, numbers, boards.get(name, []), benchmark_figures(name, tables), galleries, traces
        )
        for name in benchmarks
    ]
    standing, claims = _computed(root, numbers)
    figures = [figure for section in sections for figure in section["figures"]]
    data = {
        "numbers": number_rows(numbers, traces),
        "lineage": lineage_document(traces),
        "plots": {figure.id: _plot(figure) for figure in figures},
        "pictures": pictures,
    }
    return _render(
        sections=sections,
        standing=standing,
        claims=claims,
        summary=_summary(numbers, benchmarks),
        picture_notes=notes,
        training=training_tables(root) if any(row.name.head != NONE for row in numbers) else [],
        unpinned=sorted({source.location for trace in traces.values() for source in trace.unverified}),
        lock=file_digest(root / LOCK),
        data=data,
    )


def _section(
    root: Path,
    benchmark: str,
    numbers: Sequence[Result],
    boards: Sequence[Board],
    figures: Sequence[Figure],
    galleries: Mapping[tuple[str, str], list[Shown]],
    traces: Mapping[Way, Trace],
) -> dict[str, Any]:
    """What the template shows of one benchmark."""
    facts = benchmark_facts(root, benchmark)
    own = [row for row in numbers if row.name.benchmark == benchmark]
    sources = {
        (source.name, source.location): source
        for row in own
        for source in traces[way_of(row)].sources
        if f"artifacts/{benchmark}/" in source.recorded_in or source.recorded_in == LOCK
    }
    notes = facts.get("notes")
    return {
        "name": benchmark,
        "title": str(facts.get("title") or benchmark),
        "synthetic": facts.get("synthetic") is True,
        "protocol": protocol_words(facts, own),
        "notes": [str(note) for note in notes] if isinstance(notes, list) else [],
        "queries": sorted({row.n_queries for row in own}),
        "gallery": sorted({row.gallery_size for row in own}),
        "sources": [sources[key] for key in sorted(sources)],
        "boards": boards,
        "figures": figures,
        "galleries": [
            (system, shown) for (name, system), shown in sorted(galleries.items()) if name == benchmark
        ],
        "tails": tail_reports(root, benchmark, numbers),
        "contamination": contamination_tables(
            root, benchmark, sorted({row.name.system for row in own if row.name.head != NONE})
        ),
    }


def _summary(numbers: Sequence[Result], benchmarks: Sequence[str]) -> dict[str, int]:
    return {
        "numbers": len(numbers),
        "benchmarks": len(benchmarks),
        "systems": len({row.name.system for row in numbers}),
        "estimates": sum(row.name.stage.startswith(TAIL) for row in numbers),
    }


def _computed(root: Path, numbers: Sequence[Result]) -> tuple[dict[int, Any], list[dict[str, Any]]]:
    """(Place of a number → how it stands to the published rows, the claims with their sentences)."""
    percents = {str(row.name): percent(row.value) for row in numbers if row.unit == "fraction"}
    places = {str(row.name): place for place, row in enumerate(numbers)}
    with open_database(root) as connection:
        register_tables(connection, numbers, published_rows())
        cursor = connection.execute(
            "SELECT number, verdict, rank, rows, best_system, best_percent FROM standing"
        )
        keys = ("verdict", "rank", "rows", "system", "percent")
        standing = {places[row[0]]: dict(zip(keys, row[1:], strict=True)) for row in cursor.fetchall()}
        claims = []
        for claim in read_claims(root):
            sentences = [
                {"text": statement.sentence, "numbers": _named(statement.values, places, numbers)}
                for statement in compute(claim, connection, percents)
            ]
            if sentences:
                claims.append({"name": claim.name, "about": claim.about, "sentences": sentences})
    return standing, claims


def _named(
    values: Mapping[str, Any], places: Mapping[str, int], numbers: Sequence[Result]
) -> list[tuple[int, str]]:
    """Place and text of the numbers that a statement names, each once, with the decimals of its sentence."""
    found = [places[value] for value in values.values() if isinstance(value, str) and value in places]
    return [(place, str(percent(numbers[place].value))) for place in dict.fromkeys(found)]


def _plot(figure: Figure) -> dict[str, Any]:
    return {
        "fields": figure.fields,
        "columns": figure.columns,
        "rows": figure.rows,
        "spec": figure.spec,
        "alt": figure.alt,
    }


def _render(data: Mapping[str, Any], **content: Any) -> str:
    import jinja2

    loader = jinja2.FileSystemLoader(str(TEMPLATES))
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["coded"] = _coded
    environment.filters["count"] = lambda value: f"{value:,}"
    own = "\n".join((TEMPLATES / name).read_text("utf-8") for name in ("page.js", "lineage.js"))
    scripts = [_vega(), f'"use strict";\n(() => {{\n{own}}})();\n']
    return environment.get_template("page.html.jinja").render(
        css=(TEMPLATES / "page.css").read_text("utf-8"),
        notices=(TEMPLATES / "notices.txt").read_text("utf-8"),
        scripts=scripts,
        hashes=[_script_hash(script) for script in scripts],
        # "<" cannot end the script element when it is written as an escape.
        data=json.dumps(data, default=_plain, separators=(",", ":"), ensure_ascii=False).replace(
            "<", "\\u003c"
        ),
        **content,
    )


def _coded(text: str) -> Any:
    """Text for the page, what stands in backticks as code."""
    import markupsafe

    code = markupsafe.Markup("<code>{}</code>")
    parts = (code.format(part) if place % 2 else part for place, part in enumerate(text.split("`")))
    return markupsafe.Markup("").join(parts)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{type(value).__name__} is no JSON")


@functools.cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as vl-convert carries them, in a scope of their own."""
    import vl_convert

    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return "(()=>{" + bundle.replace("</script", "<\\/script") + "})();"


def _script_hash(script: str) -> str:
    """The script's entry in the page's content security policy: nothing else may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
