"""Prints audits as tables for people; what programs read is JSON (`classes.as_json`, ...)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cairn.contamination.classes import INCLUSIVE, STRICT, ClassAudit, FlaggedClass, rule_counts, total_images
from cairn.contamination.exclusion_lists import Comparison
from cairn.contamination.proportions import Share
from cairn.contamination.words import category_name

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


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
