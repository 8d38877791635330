"""`cairn report` as a user runs it, on a graph that has run: the path, the same bytes again, and in a clone."""

from pathlib import Path

from tests.pipelines.project import Project


def test_it_prints_the_path_and_gives_the_same_bytes_again(project: Project, tmp_path: Path):
    done = project.cairn("report")
    page = project.root / "report.html"
    assert done.stdout.strip() == str(page)
    text = page.read_text("utf-8")
    assert "toytown/" in text and "Queries worth a look" in text and str(project.root) not in text
    again = project.cairn("report", "-o", str(tmp_path / "elsewhere/again.html"))
    assert again.stdout.strip() == str(tmp_path / "elsewhere/again.html")
    assert (tmp_path / "elsewhere/again.html").read_text("utf-8") == text


def test_a_folder_is_no_file_and_no_results_are_no_page(project: Project, tmp_path: Path):
    refused = project.cairn("report", "-o", str(tmp_path), check=False)
    assert refused.returncode == 2 and "is a folder" in refused.stderr and "Traceback" not in refused.stderr
    (project.root / "artifacts/results/results.parquet").unlink()
    empty = project.cairn("report", check=False)
    assert empty.returncode == 1 and "cairn run" in empty.stderr
    assert not (project.root / "report.html").exists()
