"""The asset check on descriptors, and the measurements that no artifact holds, in a project that has run."""

import json
import re
import subprocess
import sys

import pytest

from tests.pipelines.project import REPOSITORY, Project

SCRIPT = """
import json
from pathlib import Path
from cairn.parameters import load_parameters
from pipelines.definitions import descriptors_check
from pipelines.graph import build_graph
from pipelines.sync import measurements

root = Path.cwd()
nodes = build_graph(load_parameters(root / "params.yaml"))
result = descriptors_check(root, nodes["descriptors@toytown-rootsift-vlad"])()
found = {name: value.value for name, value in result.metadata.items()}
measured = measurements(root, nodes["ranking@toytown-rootsift-vlad"])
print(json.dumps([result.passed, found, measured]))
"""


def answer(project: Project) -> list:
    environment = project.environment() | {"PYTHONPATH": str(project.root)}
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(
        command, cwd=project.root, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return json.loads(result.stdout.splitlines()[-1])


def test_the_search_in_sql_that_the_page_shows(made: Project):
    page = (REPOSITORY / "docs" / "search.md").read_text("utf-8")
    (query,) = re.findall(r'cairn sql "\n(.*?)"\n```', page, re.S)
    found = json.loads(made.cairn("sql", query, "--json").stdout)
    first = """
    SELECT image_id, score FROM rankings WHERE query_id = (SELECT min(query_id) FROM query_descriptors)
    ORDER BY rank LIMIT 10"""
    ranked = json.loads(made.cairn("sql", first, "--json").stdout)
    assert [row["score"] for row in found] == pytest.approx([row["score"] for row in ranked], abs=1e-5)
    assert found[0]["image_id"] == ranked[0]["image_id"]


def test_descriptors_are_sound_until_one_is_not(project: Project):
    passed, found, measured = answer(project)
    assert passed, found
    assert set(found) == {"counts", "finite", "unit_norms", "duplicates", "fresh_sample", "metadata"}
    assert measured["exact"]["queries_per_second"] > 0 and measured["flat"]["bytes"] > 0
    parameters = project.parameters()
    parameters["systems"]["rootsift-vlad"]["local"] = {"limit": 77}
    project.write_parameters(parameters)
    passed, found, _ = answer(project)
    assert not passed and found["metadata"].startswith("FAILED: image files: parameters is")
    (project.root / "artifacts" / "toytown" / "rootsift-vlad" / "descriptors" / "queries.parquet").unlink()
    passed, found, _ = answer(project)
    assert not passed and "no such file" in found["error"]
