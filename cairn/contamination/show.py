"""Prints audits as tables for people; what programs read is JSON (`classes.as_json`, ...)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from cairn.contamination.classes import INCLUSIVE, STRICT, ClassAudit, FlaggedClass, rule_counts, total_images
from cairn.contamination.exclusion_lists import Comparison
from cairn.contamination.proportions import Share
from cairn.contamination.words import category_name

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from cairn.contamination.proportions import Agreement
    from cairn.contamination.sampling import JudgeReport
    from cairn.contamination.seeds import SeedAnalysis
    from cairn.contamination.training_sets import AuditedUse, TrainingSet


def class_tables(
    audit: ClassAudit, stance: str, rejected: bool, limit: int | None
) -> "Iterable[RenderableType]":
    """The flagged classes of a stance (the `limit` largest, all where None), by rule, and what was rejected."""
    from rich.text import Text

    members = [one for one in audit.flagged if stance in one.stances]
    members.sort(key=lambda one: (-(one.images or 0), one.class_id))
    yield _flagged_table(members if limit is None else members[:limit], stance)
    if limit is not None and len(members) > limit:
        yield Text(
            f"… and {len(members) - limit:,} more; see them all with --all or in the file of --output\n"
        )
    yield _rule_table(members)
    if rejected:
        yield _rejected_table(audit)
    for line in summary(audit):
        yield Text(line)


def summary(audit: ClassAudit) -> list[str]:
    """What was examined and found, a line each."""
    lines = []
    whole = f"{audit.classes:,} classes" + ("" if audit.images is None else f" with {audit.images:,} images")
    for stance in (INCLUSIVE, STRICT):
        members = [one for one in audit.flagged if stance in one.stances]
        images = total_images(members)
        found = f"{len(members):,} classes" + ("" if images is None else f" with {images:,} images")
        lines.append(f"{stance}: {found} of {whole}")
    lines.append(f"considered and rejected: {len(audit.considered):,} classes (--rejected shows them)")
    if audit.flagged_outside:
        lines.append(f"flagged by name but without images in the training set: {audit.flagged_outside:,}")
    for place, count in audit.unused_places.items():
        lines.append(f"name {place}, where no blanket rule applies, and no landmark: {count:,} classes")
    return lines


def comparison_table(comparison: Comparison, a: str, b: str) -> "Table":
    """How much of each list the other holds, with numerators and denominators."""
    from rich.table import Table

    table = Table(title=comparison.relation, title_justify="left", header_style="bold")
    table.add_column("")
    for name in ("classes", "images"):
        table.add_column(name, justify="right")
    rows = (
        (f"of A ({a}) also in B", comparison.classes_of_a, comparison.images_of_a),
        (f"of B ({b}) also in A", comparison.classes_of_b, comparison.images_of_b),
    )
    for title, classes, images in rows:
        table.add_row(title, shown_share(classes), shown_share(images))
    table.add_row("in A alone", f"{len(comparison.only_a):,}", "")
    table.add_row("in B alone", f"{len(comparison.only_b):,}", "")
    return table


def sets_table(sets: "Iterable[TrainingSet]") -> "Table":
    """What each step of each training set dropped and left."""
    from rich.table import Table

    table = Table(title="training sets", title_justify="left", header_style="bold")
    for name in ("protocol", "step"):
        table.add_column(name)
    for name in ("classes dropped", "images dropped", "classes left", "images left"):
        table.add_column(name, justify="right")
    for one in sets:
        for step in one.steps:
            numbers = (step.dropped_classes, step.dropped_images, step.classes, step.images)
            table.add_row(one.protocol, step.name, *(f"{number:,}" for number in numbers))
        table.add_section()
    return table


def judgement_tables(
    reports: "Sequence[JudgeReport]", between: "Mapping[str, Agreement]"
) -> "Iterable[RenderableType]":
    """Precision by judge and stratum, and who agrees with whom."""
    from rich.table import Table

    table = Table(title="judgements", title_justify="left", header_style="bold")
    for name in ("judge", "images", "show the landmark"):
        table.add_column(name, overflow="fold")
    for one in reports:
        judge = _text(one.judge)
        table.add_row(judge, f"judged ({one.unsure} cannot tell)", str(one.precision))
        for name, share in one.by_stratum.items():
            table.add_row("", name, str(share))
        if one.estimate is not None and one.interval is not None:
            low, high = (100 * end for end in one.interval)
            table.add_row("", "all flagged, weighted", f"{100 * one.estimate:.1f}% [{low:.1f}, {high:.1f}]")
        table.add_section()
    yield table
    kappas = Table(title="agreement (Cohen's kappa)", title_justify="left", header_style="bold")
    for name in ("between", "kappa [95%]", "images", "equal"):
        kappas.add_column(name, overflow="fold")
    pairs = [(f"{one.judge} / detector", one.against_detector) for one in reports] + list(between.items())
    for name, one in pairs:
        kappa = "–" if one.kappa is None else f"{one.kappa:.2f} [{one.low:.2f}, {one.high:.2f}]"
        equal = "–" if one.observed is None else f"{100 * one.observed:.1f}%"
        kappas.add_row(_text(name), kappa, f"{one.n:,}", equal)
    yield kappas


def seed_tables(analysis: "SeedAnalysis") -> "Iterable[RenderableType]":
    """Mean and sd by cell, differences, correlations, and the verdict in words."""
    from rich.table import Table
    from rich.text import Text

    from cairn.contamination.seeds import shown

    first, second = analysis.protocols
    table = Table(title=f"seeds ({analysis.unit})", title_justify="left", header_style="bold")
    table.add_column("cell")
    for name in (first, second, "difference [95%]", "pooled sd", "in pooled sd"):
        table.add_column(name, justify="right")
    for one in analysis.cells:
        spreads = [f"{shown(each.mean)} ± {shown(each.sd)} (n={each.n})" for each in (one.first, one.second)]
        low, high = one.interval or (float("nan"), float("nan"))
        relative = "–" if one.in_sd is None else shown(one.in_sd, "+")
        gap = f"{shown(one.difference, '+')} [{shown(low, '+')}, {shown(high, '+')}]"
        table.add_row(_text(one.cell), *spreads, gap, shown(one.pooled_sd), relative)
    yield table
    if analysis.correlations:
        moves = Table(title="correlation across runs", title_justify="left", header_style="bold")
        for name in ("cells", "r", "r within protocols", "runs"):
            moves.add_column(name)
        for one in analysis.correlations:
            both = ["–" if r is None else f"{r:+.2f}" for r in (one.all_runs, one.within_protocols)]
            moves.add_row(_text(f"{one.first}, {one.second}"), *both, str(one.n))
        yield moves
    yield Text(analysis.verdict)


def uses_table(audited: "Iterable[AuditedUse]") -> "Table":
    """For each system, which training uses saw flagged images."""
    from rich.table import Table

    audited = list(audited)
    table = Table(title="what training saw", title_justify="left", header_style="bold")
    # Names are not broken as long as a line has room for them.
    longest = max((len(one.system) for one in audited), default=0)
    table.add_column("system", overflow="fold", min_width=min(longest, 44))
    for name in ("use", "images from"):
        table.add_column(name, overflow="fold")
    table.add_column("images", justify="right")
    table.add_column("verdict")
    for one in audited:
        images = "–" if one.images is None else f"{one.images:,}"
        table.add_row(_text(one.system), one.use, _text(one.origin), images, one.verdict)
    return table


def shown_share(share: Share | None) -> str:
    """`10 / 18 = 55.6%`, a dash where it was not counted."""
    if share is None:
        return "–"
    ratio = "–" if share.value is None else f"{100 * share.value:.1f}%"
    return f"{share.part:,} / {share.whole:,} = {ratio}"


def _flagged_table(members: list[FlaggedClass], stance: str) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"flagged classes ({stance})", title_justify="left", header_style="bold")
    table.add_column("id", justify="right")
    table.add_column("category", overflow="fold")
    table.add_column("rule", overflow="fold")
    table.add_column("matched", overflow="fold")
    table.add_column("images", justify="right")
    table.add_column("doubts", overflow="fold")
    for one in members:
        first = one.findings[0]
        images = "–" if one.images is None else f"{one.images:,}"
        texts = (category_name(one.category), one.rule, first.matched)
        table.add_row(str(one.class_id), *map(_text, texts), images, Text("; ".join(first.doubts)))
    return table


def _rule_table(members: list[FlaggedClass]) -> "Table":
    from rich.table import Table

    table = Table(title="by rule", title_justify="left", header_style="bold")
    table.add_column("rule")
    table.add_column("classes", justify="right")
    table.add_column("images", justify="right")
    for rule, counts in rule_counts(members).items():
        images = "–" if counts["images"] is None else f"{counts['images']:,}"
        table.add_row(rule, f"{counts['classes']:,}", images)
    return table


def _rejected_table(audit: ClassAudit) -> "Table":
    from rich.table import Table

    table = Table(title="considered and rejected", title_justify="left", header_style="bold")
    table.add_column("id", justify="right")
    for name in ("category", "rule", "matched", "because"):
        table.add_column(name, overflow="fold")
    for one in audit.considered:
        for each in one.rejections:
            texts = (category_name(one.category), each.rule, each.matched, each.reason)
            table.add_row(str(one.class_id), *map(_text, texts))
    return table


def _text(words: str):
    """Words from outside, never read as rich's markup or as a terminal's control characters."""
    from rich.text import Text

    return Text("".join(letter if letter.isprintable() else "�" for letter in words))
