"""The hashes of `cairn verify` are those of DVC itself."""

import os
import subprocess
import sys

import yaml

from cairn.lineage.hashing import hash_paths, recorded_files


def test_dvc_records_what_is_recomputed(tmp_path):
    def dvc(*arguments):
        environment = {**os.environ, "DVC_NO_ANALYTICS": "1"}
        subprocess.run(
            [sys.executable, "-m", "dvc", *arguments],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            timeout=120,
        )

    dvc("init", "--no-scm", "-q")
    folder = tmp_path / "made"
    for name in ("a.txt", "b b/ü.bin", "b b/A.txt", "a/z", "a-b", "empty", "cache/x.tmp", "é/1"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"" if name == "empty" else name.encode() * 1000)
    (folder / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    (folder / "link").symlink_to("a.txt")
    (folder / "folder without files").mkdir()
    (tmp_path / ".dvcignore").write_text("*.tmp\n/elsewhere/\n")
    stage = {"cmd": "true", "deps": ["made"], "outs": [{"one.txt": {"cache": False}}]}
    (tmp_path / "one.txt").write_bytes(b"one\r\n")
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"s": stage}}))
    dvc("add", "-q", "made")
    dvc("commit", "-q", "-f", "s")
    recorded = yaml.safe_load((tmp_path / "dvc.lock").read_text())["stages"]["s"]
    content = hash_paths(tmp_path, ["made", "one.txt"])
    assert content["made"].md5 == recorded["deps"][0]["md5"]
    assert content["one.txt"].md5 == recorded["outs"][0]["md5"]
    assert "cache/x.tmp" not in content["made"].files
    assert content["made"].size == recorded["deps"][0]["size"]
    assert recorded_files(tmp_path, content["made"].md5) == dict(content["made"].files)
