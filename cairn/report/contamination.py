"""What the audits among the artifacts found, as tables: flagged classes, pictures, training uses, seeds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cairn.contamination.learning import FACTS_FILE, LEAK_FILE
from cairn.errors import ArtifactError
from cairn.results.table import read_json_object

AUDIT_FILE = "image_audit.json"
SEEDS_FILE, USES_FILE = "seeds.json", "uses.json"
"""What the steps `verification` and `head_report` write."""
MOST_ROWS = 60
LARGEST = 256 << 20
WHAT = ("what", "found")


@dataclass(frozen=True)
class AuditTable:
    """One table: its title, columns, rows as text, how many rows there are in all, its artifact, and sentences."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: int
    artifact: str
    notes: tuple[str, ...] = ()


def contamination_tables(root: Path, benchmark: str, systems: Iterable[str] = ()) -> list[AuditTable]:
    """The tables of the audit of `benchmark`'s classes, and of pictures by each of `systems`; none where none was made.

    ArtifactError, naming the file, where one is damaged.
    """
    base = Path(root) / "artifacts" / benchmark
    tables = [*_tables(root, base / "contamination" / FACTS_FILE, _classes)]
    tables += _tables(root, base / "contamination" / LEAK_FILE, _flagged)
    for system in systems:
        tables += _tables(root, base / system / "verification" / AUDIT_FILE, _pictures)
    return tables


def training_tables(root: Path) -> list[AuditTable]:
    """The tables of the report on heads: which training saw flagged images, what it gave beyond the seeds.

    ArtifactError, naming the file, where one is damaged.
    """
    base = Path(root) / "artifacts" / "heads"
    return [*_tables(root, base / SEEDS_FILE, _seeds), *_tables(root, base / USES_FILE, _uses)]


Reader = Callable[[Mapping[str, Any], str], Iterator[AuditTable]]


def _tables(root: Path, file: Path, reader: Reader) -> list[AuditTable]:
    if not file.is_file():
        return []
    record = read_json_object(file, limit=LARGEST)
    try:
        if record is None:
            raise TypeError
        return list(reader(record, file.parent.relative_to(root).as_posix()))
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        raise ArtifactError(f"{file}: not as its step writes it; run `cairn run` again") from None


def _classes(facts: Mapping[str, Any], artifact: str) -> Iterator[AuditTable]:
    title = "Training classes by name"
    rows = [("training images of", str(facts["training"]))]
    if not facts["audited"]:
        yield _table(title, WHAT, rows, artifact, f"Not audited: {facts['note']}.")
        return
    rows += [
        ("landmark lists", ", ".join(facts["landmarks"])),
        ("stance", str(facts["stance"])),
        *((f"flagged, {stance}", _counts(found)) for stance, found in facts["flagged"].items()),
        (
            "queries whose landmark training shows",
            _number(len(facts["queries_whose_landmark_training_shows"])),
        ),
        ("images a class must have", _number(facts["minimum_images"])),
    ]
    closes = "" if facts["counts_close"] else " The counts do not close."
    yield _table(title, WHAT, rows, artifact, f"{facts['reconciliation']}.{closes}")
    columns = ("training set", "step", "classes dropped", "images dropped", "classes left", "images left")
    steps = [
        (name, step["step"], *(_number(step[side][of]) for side in ("dropped", "left") for of in ("classes", "images")))
        for name, one in facts["sets"].items()
        for step in one["steps"]
    ]  # fmt: skip
    yield _table("Training sets, step by step", columns, steps, artifact)
    known = facts["against_known_overlap"]
    if known is not None:
        rows = [
            (stance, name.replace("_", " "), _share(share))
            for stance, shares in known.items()
            for name, share in shares.items()
        ]
        yield _table(
            "Classes by name, against the true overlap", ("stance", "measure", "found [95%]"), rows, artifact
        )


def _flagged(leak: Mapping[str, Any], artifact: str) -> Iterator[AuditTable]:
    members = sorted(leak["classes"], key=lambda one: (-(one["images"] or 0), one["id"]))
    columns = ("class", "category", "rule", "matched", "images", "stances", "doubts")
    rows = [
        (str(one["id"]), one["name"], one["rule"], one["matched"], _number(one["images"]), ", ".join(one["stances"]),
         "; ".join(one["doubts"]))
        for one in members
    ]  # fmt: skip
    yield _table("Flagged classes", columns, rows, artifact)
    rejected = [
        (str(one["id"]), one["name"], each["rule"], each["matched"], each["reason"])
        for one in leak["considered"]
        for each in one["rejected"]
    ]
    if rejected:
        columns = ("class", "category", "rule", "matched", "because")
        yield _table("Considered and rejected", columns, rejected, artifact)


def _pictures(audit: Mapping[str, Any], artifact: str) -> Iterator[AuditTable]:
    title = f"Pictures of flagged classes, candidates by {artifact.split('/')[-2]}"
    columns = (
        "rule",
        "images confirmed [95%]",
        "by a query of its own landmark",
        "classes with any",
        "not checked",
    )
    if not audit["audited"]:
        yield _table(title, columns, [], artifact, f"Not audited: {audit['note']}.")
        return
    rows = [
        (one["rule"], _share(one["image_precision"]), _share(one["image_precision_own_landmark"]),
         _share(one["class_precision"]), _number(one["flagged_images_not_checked"]))
        for one in audit["precision"]
    ]  # fmt: skip
    notes = [f"A picture is confirmed from {audit['threshold_inliers']} inliers on."]
    if audit["recall"]:
        notes.append(f"Flagged classes hold {_share(audit['recall'])} {audit['recall']['denominator']}.")
    notes += [f"{line[:1].upper()}{line[1:]}." for line in audit["what_the_detector_cannot_see"]]
    yield _table(title, columns, rows, artifact, *notes)
    known = audit["against_known_overlap"]
    if known is not None:
        shares = [(name, one) for name, one in known.items() if "part" in one]
        shares += [
            (f"{part}: {name}", one)
            for part, values in known.items()
            if "part" not in values
            for name, one in values.items()
            if isinstance(one, dict)
        ]
        rows = [(name.replace("_", " "), _share(one)) for name, one in shares]
        yield _table(f"{title}, against the true overlap", ("measure", "found [95%]"), rows, artifact)


def _seeds(found: Mapping[str, Any], artifact: str) -> Iterator[AuditTable]:
    for one in found["comparisons"]:
        if "note" in one:
            yield _table(f"{one['system']}: heads", WHAT, [], artifact, f"{one['note']}.")
            continue
        first, second = one["protocols"]
        title = f"{one['system']}: heads {second} less {first}, {one['unit']}"
        columns = ("cell", "no head", first, second, "difference [95%]", "pooled sd", "in pooled sd")
        without = one["without_head"]
        rows = [
            (cell["cell"], _points(without.get(cell["cell"])), _spread(cell[first]), _spread(cell[second]),
             _interval(cell), _points(cell["pooled_sd"]), _points(cell["difference_in_pooled_sd"]))
            for cell in one["cells"]
        ]  # fmt: skip
        chosen = [f"Epochs were selected on {one['selected_on']}."] if one["selected_on"] else []
        yield _table(title, columns, rows, artifact, one["verdict"], *chosen)
        if one["correlations"]:
            columns, within = ("cells", "runs", "r", "r within protocols"), "r_within_protocols"
            rows = [
                (", ".join(each["cells"]), _number(each["runs"]), *map(_points, (each["r"], each[within])))
                for each in one["correlations"]
            ]  # fmt: skip
            yield _table(f"{one['system']}: correlation across runs", columns, rows, artifact)
    rows = [
        (name, cell, _points(values[f"{cell}/shown"]), _points(values[f"{cell}/rest"]))
        for name, values in found["without_head"].items()
        for cell in values
        if f"{cell}/shown" in values and f"{cell}/rest" in values
    ]
    if rows:
        columns = ("system", "cell", "landmark shown in training", "the other queries")
        yield _table("Without a head, first stage: points by what training shows", columns, rows, artifact)


def _uses(found: Mapping[str, Any], artifact: str) -> Iterator[AuditTable]:
    columns = ("system", "use", "images from", "images", "flagged images seen")
    rows = [
        (one["system"], one["use"], one["origin"], _number(one["images"]), one["verdict"]) for one in found["uses"]
    ]  # fmt: skip
    yield _table("Which training saw flagged images", columns, rows, artifact)


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], artifact: str, *notes: str
) -> AuditTable:
    shown = tuple(tuple(map(str, row)) for row in rows[:MOST_ROWS])
    return AuditTable(title, tuple(columns), shown, len(rows), artifact, notes)


def _counts(found: Mapping[str, Any]) -> str:
    return f"{_number(found['classes'])} classes with {_number(found['images'])} images"


def _share(share: Mapping[str, Any] | None) -> str:
    """`51 of 78 = 65.4% [54.3, 75.0]`, a dash where there is nothing to count."""
    if share is None or not share["whole"]:
        return "–"
    low, high = (100 * end for end in share["wilson95"])
    return f"{share['part']:,} of {share['whole']:,} = {100 * share['ratio']:.1f}% [{low:.1f}, {high:.1f}]"


def _spread(spread: Mapping[str, Any]) -> str:
    return f"{spread['mean']:.2f} ± {spread['sd']:.2f} (n = {spread['n']})"


def _interval(cell: Mapping[str, Any]) -> str:
    if cell["interval95"] is None:
        return f"{cell['difference']:+.2f}"
    low, high = cell["interval95"]
    return f"{cell['difference']:+.2f} [{low:+.2f}, {high:+.2f}]"


def _points(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
