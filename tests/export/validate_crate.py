"""Validates a crate with roc-validator, without a network: run by the environment that has roc-validator.

usage: validate_crate.py CRATE CONTEXT PROFILE SEVERITY    prints a JSON list of issues

roc-validator fetches the JSON-LD context that a crate names. CONTEXT is the copy of it that the package `rocrate`
ships; it is given for that address, and every other address is refused.
"""

import json
import sys
from pathlib import Path

import requests

CONTEXTS = ("https://w3id.org/ro/crate/1.1/context",)


def answer(self, request, **_):
    if request.url not in CONTEXTS:
        raise requests.ConnectionError(f"no network in tests: {request.url}")
    response = requests.Response()
    response.status_code = 200
    response.url = request.url
    response.request = request
    response.headers["Content-Type"] = "application/ld+json"
    response._content = Path(sys.argv[2]).read_bytes()
    return response


def main() -> None:
    requests.adapters.HTTPAdapter.send = answer
    from rocrate_validator import models, services

    settings = services.ValidationSettings(
        rocrate_uri=sys.argv[1],
        profile_identifier=sys.argv[3],
        requirement_severity=models.Severity[sys.argv[4]],
        no_cache=True,
    )
    result = services.validate(settings)
    issues = [
        {"check": issue.check.identifier, "severity": issue.severity.name, "message": issue.message}
        for issue in result.get_issues()
    ]
    print(json.dumps(issues))


if __name__ == "__main__":
    main()
