"""A copy of the repository in which tests run commands as a user would."""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
TINY = {
    "benchmarks": {
        "toytown": {
            "adapter": "toytown",
            "training": "toytown",
            "metric": "revisitop",
            "landmarks": 6,
            "views": 6,
            "distractors": 24,
            "training_classes": 8,
            "training_views": 3,
            "second_queries": 1,
            "contaminated_classes": 2,
            "decoy_classes": 1,
            "distractor_duplicates": 1,
            "positive_duplicates": 1,
        }
    },
    "systems": {
        "rootsift-vlad": {"encoder": "rootsift-vlad", "rerank": {"method": "geometry", "shortlist": 8}},
    },
    "runs": {"toytown-rootsift-vlad": {"benchmark": "toytown", "system": "rootsift-vlad"}},
}


class Project:
    """A copy of the repository in which commands run as a user would run them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(
        self, *arguments: str, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """`python -m ARGUMENTS…` in the project."""
        result = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and result.returncode:
            raise AssertionError(f"{arguments} gave {result.returncode}:\n{result.stdout}\n{result.stderr}")
        return result

    def cairn(
        self, *arguments: str, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return self.run("pipelines", *arguments, check=check, timeout=timeout)

    def dvc(
        self, *arguments: str, check: bool = True, timeout: float = 300
    ) -> subprocess.CompletedProcess[str]:
        return self.run("dvc", *arguments, check=check, timeout=timeout)

    def start(self, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """`python -m ARGUMENTS…` in a session of its own, with `more` in its environment; both outputs in one pipe."""
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env=self.environment() | more,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def repro(self, *targets: str) -> list[str]:
        """`dvc repro`; the stages whose command ran."""
        output = self.dvc("repro", *targets).stdout
        return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage ")]

    def dvc_stale(self) -> set[str]:
        return set(json.loads(self.dvc("status", "--json").stdout or "{}"))

    def environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("CAIRN_", "DAGSTER_", "DVC_", "GIT_"))
        }
        path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
        return {
            **kept,
            "PATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "DVC_NO_ANALYTICS": "1",
            "DAGSTER_HOME": str(self.dagster_home),
        }

    @property
    def dagster_home(self) -> Path:
        home = self.root / ".cairn" / "dagster"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def parameters(self) -> dict:
        return yaml.safe_load((self.root / "params.yaml").read_text("utf-8"))

    def write_parameters(self, value: dict) -> None:
        (self.root / "params.yaml").write_text(yaml.safe_dump(value, sort_keys=False), "utf-8")

    def copy(self, target: Path) -> "Project":
        shutil.copytree(self.root, target, symlinks=True)
        return Project(target)


def new_project(target: Path, parameters: dict) -> Project:
    """The tracked and new files of the repository under `target`, with `parameters`, committed to a new git."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = REPOSITORY / name
        if name and source.is_file() and not name.startswith(("tests/", "docs/", "bench/", "dvc.lock")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)
    project = Project(target)
    # Compiled once for all processes and copies. Checked by content: a time in whole seconds would not tell a file
    # from one that a test puts in its place at once.
    folders = ("cairn", "pipelines", "assets")
    project.run("compileall", "-q", "--invalidation-mode", "checked-hash", *folders)
    project.write_parameters(parameters)
    project.cairn("generate")
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "start"]):
        subprocess.run(["git", *command], cwd=target, check=True)
    return project


def processes_of(project: Project) -> list[str]:
    """Command lines of the processes whose working directory is the project."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if str((entry / "cwd").readlink()).startswith(str(project.root)):
                    line = (entry / "cmdline").read_text("utf-8").replace("\0", " ").strip()
                    found.append(f"{entry.name} {line}")
    return found


def digests(folder: Path) -> dict[str, str]:
    """Path below `folder` → SHA-256 of every file."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
