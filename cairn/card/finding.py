"""What an audit finds: one line, how grave, where, and the numbers it rests on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cairn.card.document import Path_, json_path
from cairn.results.names import plain

SEVERITIES: Mapping[str, str] = {
    "error": "cannot be true as stated: wrong arithmetic, a contradiction, a value out of its range",
    "warning": "true at best in part: it needs an explanation that the file does not give",
    "note": "could not be checked, or not be traced, from the file alone",
    "right": "recomputed and found right",
}


@dataclass(frozen=True)
class Finding:
    """One finding. `rule` names the check, `path` the place it is about, `related` the places it used.

    `severity` is a key of SEVERITIES. Paths are JSONPath.
    """

    severity: str
    rule: str
    path: str
    message: str
    related: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "severity": self.severity,
            "rule": self.rule,
            "path": self.path,
            "message": self.message,
            "related": list(self.related),
        }


def found(severity: str, rule: str, path: Path_, message: str, related: Iterable[Path_] = ()) -> Finding:
    """A finding at `path`; texts of the file are shown with control characters spelled out."""
    places = tuple(dict.fromkeys(plain(json_path(place)) for place in related))
    return Finding(severity, rule, plain(json_path(path)), plain(message), places)


def ordered(findings: Iterable[Finding]) -> list[Finding]:
    """Gravest first, then as they were found; each once."""
    rank = {name: number for number, name in enumerate(SEVERITIES)}
    return sorted(dict.fromkeys(findings), key=lambda finding: rank[finding.severity])
