"""One file: whole and right, whatever the connection, the server, the disk and other processes do."""

import errno
import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cairn.errors import SourceError
from cairn.fetch.download import PART_SUFFIX, STATE_SUFFIX, fetch_file
from cairn.fetch.http import Policy, _chunks

DATA = bytes(range(256)) * 12_000  # 3 MB
SHA256 = hashlib.sha256(DATA).hexdigest()
FAST = Policy(connect=30, read=30, retries=3, backoff=0)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "downloads" / "archive.tar"


def leftovers(target: Path) -> list[str]:
    """What lies beside the file, its lock apart."""
    return sorted(p.name for p in target.parent.iterdir() if p != target and not p.name.endswith(".lock"))


def test_a_file_arrives_whole_with_its_digests(server, target):
    got = fetch_file(server.put("a.tar", DATA), target, sha256=SHA256, md5=hashlib.md5(DATA).hexdigest())
    assert target.read_bytes() == DATA
    assert (got.size, got.sha256, got.md5) == (len(DATA), SHA256, hashlib.md5(DATA).hexdigest())
    assert leftovers(target) == []


def test_an_empty_file_is_a_file(server, target):
    assert fetch_file(server.put("a.tar", b""), target).size == 0
    assert target.read_bytes() == b""


def test_what_is_there_and_right_is_not_fetched_again(server, target):
    url = server.put("a.tar", DATA)
    fetch_file(url, target, sha256=SHA256)
    fetch_file(url, target, sha256=SHA256)
    assert len(server.log) == 1


def test_what_is_there_and_wrong_is_named_and_left_alone(server, target):
    target.parent.mkdir()
    target.write_bytes(b"something else")
    with pytest.raises(SourceError, match=f"{target}.*expected sha256 {SHA256}, found .*remove the file"):
        fetch_file(server.put("a.tar", DATA), target, sha256=SHA256)
    assert target.read_bytes() == b"something else"


def test_a_connection_cut_midway_is_resumed_where_it_broke(server, target):
    fetch_file(server.put("a.tar", DATA, cuts=[1_000_000, 500_000]), target, sha256=SHA256, policy=FAST)
    assert target.read_bytes() == DATA
    assert [each.get("range") for each in server.log] == [None, "bytes=1000000-", "bytes=1500000-"]
    assert server.log[1]["if-range"] == '"1"'


def test_a_later_run_goes_on_where_an_earlier_one_gave_up(server, target):
    url = server.put("a.tar", DATA, cuts=[400_000] * 2)
    with pytest.raises(SourceError, match=r"after 2 tries; 800,000 bytes are kept, run again to go on"):
        fetch_file(url, target, sha256=SHA256, policy=Policy(2, 2, 1, 0))
    assert not target.exists()
    fetch_file(url, target, sha256=SHA256, policy=FAST)
    assert server.log[-1]["range"] == "bytes=800000-"
    assert target.read_bytes() == DATA


def test_a_server_that_ignores_ranges_sends_it_all_again(server, target):
    fetch_file(server.put("a.tar", DATA, cuts=[1_000_000], ranges=False), target, sha256=SHA256, policy=FAST)
    assert target.read_bytes() == DATA
    assert len(server.log) == 2


def test_a_file_that_changed_between_two_tries_starts_over(server, target):
    url = server.put("a.tar", b"old" * 500_000, cuts=[700_000])
    with pytest.raises(SourceError):
        fetch_file(url, target, policy=Policy(2, 2, 0, 0))
    assert target.with_name(target.name + PART_SUFFIX).stat().st_size == 700_000
    server.put("a.tar", DATA, etag='"2"')
    assert fetch_file(url, target, policy=FAST).sha256 == SHA256


def test_a_tail_of_another_version_is_never_appended(server, target):
    url = server.put("a.tar", b"old" * 500_000, cuts=[700_000])
    with pytest.raises(SourceError):
        fetch_file(url, target, policy=Policy(2, 2, 0, 0))
    server.put("a.tar", DATA, etag='"2"', if_range=False)  # honours Range, ignores If-Range
    assert fetch_file(url, target, policy=FAST).sha256 == SHA256
    assert [each.get("range") for each in server.log] == [None, "bytes=700000-", None]


def test_a_part_that_is_not_of_this_file_is_caught_by_the_checksum(server, target):
    url = server.put("a.tar", DATA)
    target.parent.mkdir()
    target.with_name(target.name + PART_SUFFIX).write_bytes(b"old")
    state = {"url": url, "validator": '"1"', "total": len(DATA)}
    target.with_name(target.name + STATE_SUFFIX).write_text(json.dumps(state))
    with pytest.raises(SourceError, match="expected sha256"):
        fetch_file(url, target, sha256=SHA256, policy=FAST)
    assert leftovers(target) == []


@pytest.mark.parametrize("state", ["", "[]", "{}", "nonsense", '{"url": 3}', None])
def test_a_part_whose_state_is_damaged_starts_over(server, target, state):
    target.parent.mkdir()
    target.with_name(target.name + PART_SUFFIX).write_bytes(b"old")
    if state is not None:
        target.with_name(target.name + STATE_SUFFIX).write_text(state)
    assert fetch_file(server.put("a.tar", DATA), target, policy=FAST).sha256 == SHA256


def test_a_part_that_is_already_whole_needs_no_bytes(server, target):
    url = server.put("a.tar", DATA)
    target.parent.mkdir()
    target.with_name(target.name + PART_SUFFIX).write_bytes(DATA)
    state = {"url": url, "validator": '"1"', "total": len(DATA)}
    target.with_name(target.name + STATE_SUFFIX).write_text(json.dumps(state))
    assert fetch_file(url, target, sha256=SHA256, policy=FAST).size == len(DATA)
    assert leftovers(target) == []


def test_without_a_version_and_without_a_checksum_a_part_is_not_trusted(server, target):
    url = server.put("a.tar", DATA, etag=None, cuts=[400_000])
    fetch_file(url, target, policy=FAST)
    assert [each.get("range") for each in server.log] == [None, None]
    target.unlink()
    server.put("a.tar", DATA, etag=None, cuts=[400_000])
    fetch_file(url, target, sha256=SHA256, policy=FAST)
    assert server.log[-1]["range"] == "bytes=400000-"


def test_a_wrong_checksum_removes_what_came_and_says_both(server, target):
    url = server.put("a.tar", DATA)
    with pytest.raises(SourceError) as error:
        fetch_file(url, target, sha256="0" * 64)
    assert str(error.value) == (
        f"{url}: expected sha256 {'0' * 64}, found {SHA256}; what was downloaded is removed"
    )
    assert not target.exists()
    assert leftovers(target) == []


def test_a_wrong_size_without_a_checksum_is_refused(server, target):
    with pytest.raises(SourceError, match=r"3,072,000 bytes found where 5 are expected|sends more than"):
        fetch_file(server.put("a.tar", DATA), target, size=5)
    assert not target.exists()


def test_a_body_shorter_than_its_length_is_not_a_file(server, target):
    with pytest.raises(SourceError, match="the connection ended before the file did, after 2 tries"):
        fetch_file(server.put("a.tar", DATA, lie=10, ranges=False), target, policy=Policy(2, 2, 1, 0))
    assert not target.exists()


def test_a_body_without_a_length_is_taken_as_it_comes(server, target):
    assert fetch_file(server.put("a.tar", DATA, length=False), target).sha256 == SHA256


def test_not_found_is_said_at_once(server, target):
    with pytest.raises(SourceError, match=r"/none.tar: HTTP 404, not found; .*mirror"):
        fetch_file(f"{server.url}/none.tar", target, policy=FAST)
    assert len(server.log) == 1


@pytest.mark.parametrize(
    "status, word", [(401, "login"), (403, "not permitted"), (410, "gone"), (418, "HTTP 418")]
)
def test_refusals_are_explained(server, target, status, word):
    with pytest.raises(SourceError, match=word):
        fetch_file(server.put("a.tar", DATA, statuses=[status]), target, policy=FAST)


def test_a_busy_server_is_asked_again(server, target):
    url = server.put("a.tar", DATA, statuses=[503, 429, 500], headers={"Retry-After": "0"})
    assert fetch_file(url, target, policy=FAST).sha256 == SHA256
    assert len(server.log) == 4


def test_a_busy_server_is_not_asked_for_ever(server, target):
    with pytest.raises(SourceError, match="HTTP 503, after 3 tries"):
        fetch_file(server.put("a.tar", DATA, statuses=[503] * 9), target, policy=Policy(2, 2, 2, 0))


def test_a_pause_longer_than_allowed_is_not_taken(server, target):
    started = time.monotonic()
    url = server.put("a.tar", DATA, statuses=[503], headers={"Retry-After": "3000"})
    fetch_file(url, target, policy=FAST)
    assert time.monotonic() - started < 1000  # of the 3,000 s that the server asked for


def test_a_slow_answer_and_a_body_that_stalls_time_out(server, target):
    impatient = Policy(connect=0.2, read=0.2, retries=0, backoff=0)
    with pytest.raises(SourceError, match="no answer in time"):
        fetch_file(server.put("a.tar", DATA, delay=0.6), target, policy=impatient)
    with pytest.raises(SourceError, match="no answer in time"):
        fetch_file(server.put("b.tar", DATA, stall=(100_000, 0.6)), target, policy=impatient)
    server.files["b.tar"].stall = None
    assert fetch_file(f"{server.url}/b.tar", target, policy=FAST).sha256 == SHA256


DRIP = Policy(connect=2, read=2, least=1000, window=0.1, retries=1, backoff=0)


@pytest.mark.parametrize("length", [True, False])
def test_a_transfer_that_drips_is_given_up_and_gone_on_from(server, target, capsys, length):
    """No pause is as long as `read`: only the rate tells."""
    url = server.put("a.tar", DATA, drip=(400_000, 0.01), length=length)
    with pytest.raises(SourceError) as caught:
        fetch_file(url, target, sha256=SHA256, policy=DRIP)
    text = str(caught.value)
    assert text.startswith(f"{url}: only ") and " bytes came in 0.1" in text and "\n" not in text
    assert "1,000 are expected, after 2 tries; " in text and "bytes are kept, run again to go on" in text
    kept = target.with_name(target.name + PART_SUFFIX).stat().st_size
    assert kept >= 400_000 and not target.exists()
    assert f"{kept:,} bytes are kept" in text
    assert "trying again (1 of 1)" in capsys.readouterr().err
    server.files["a.tar"].drip = None
    assert fetch_file(url, target, sha256=SHA256, policy=DRIP).sha256 == SHA256
    assert server.log[-1]["range"] == f"bytes={kept}-"


def test_a_slow_transfer_that_keeps_the_least_rate_is_not_given_up(server, target):
    """Some 50 bytes a window, one at a time, where 2 are expected."""
    url = server.put("a.tar", DATA[:100], drip=(20, 0.02))
    patient = Policy(connect=2, read=2, least=2, window=1, retries=0, backoff=0)
    assert fetch_file(url, target, policy=patient).size == 100


def test_the_time_that_a_slow_disk_takes_is_not_the_servers():
    class Fast:
        left = 20

        def read1(self, _size: int, decode_content: bool) -> bytes:
            self.left -= 1
            return b"x" * (self.left > 0)

    for chunk in _chunks(Fast(), Policy(least=1 << 40, window=0.1)):
        assert chunk == b"x"
        time.sleep(0.02)


def test_the_least_rate_stands_in_one_place():
    policy = Policy()
    assert (policy.least, policy.window) == (65_536, 60.0)
    page = (Path(__file__).resolve().parents[2] / "docs/benchmarks.md").read_text("utf-8")
    assert f"fewer than {policy.least // 1024} KiB in {policy.window:.0f} seconds" in page


def test_no_server_is_one_line(target):
    with pytest.raises(SourceError, match="connection refused, after 1 tries"):
        fetch_file("http://127.0.0.1:9/a.tar", target, policy=Policy(1, 1, 0, 0))


def test_a_redirect_is_followed_to_http_alone(server, target):
    server.put("real.tar", DATA)
    server.put("a.tar", b"", redirect=f"{server.url}/real.tar")
    assert fetch_file(f"{server.url}/a.tar", target).sha256 == SHA256
    target.unlink()
    for place in ("file:///etc/hostname", "ftp://127.0.0.1/a.tar", "gopher://127.0.0.1/"):
        server.put("a.tar", b"", redirect=place)
        with pytest.raises(SourceError, match="not http or https"):
            fetch_file(f"{server.url}/a.tar", target, policy=FAST)
    server.put("a.tar", b"", redirect=f"{server.url}/a.tar")
    with pytest.raises(SourceError, match="redirects more than"):
        fetch_file(f"{server.url}/a.tar", target, policy=FAST)
    assert not target.exists()


def test_a_web_page_is_not_an_archive(server, target):
    page = server.put("a.tar", b"<html>please log in", headers={"Content-Type": "text/html; charset=utf-8"})
    with pytest.raises(SourceError, match="answered with a web page"):
        fetch_file(page, target, policy=FAST)


def test_bytes_are_stored_as_sent(server, target):
    # Servers mark .tgz files as gzip-encoded; unpacking them in flight would change what is hashed.
    url = server.put("a.tgz", b"\x1f\x8b not really", headers={"Content-Encoding": "x-gzip"})
    fetch_file(url, target)
    assert target.read_bytes() == b"\x1f\x8b not really"


def test_a_local_file_is_an_address_too(tmp_path, target):
    origin = tmp_path / "a file.tar"
    origin.write_bytes(DATA)
    assert fetch_file(origin.as_uri(), target).sha256 == SHA256
    with pytest.raises(SourceError, match="No such file"):
        fetch_file((tmp_path / "none").as_uri(), target.with_name("b"))


def test_a_disk_that_is_too_small_is_known_before(server, target, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(SourceError, match=r"needs 3,072,000 bytes more in .*, where 1,000 are free"):
        fetch_file(server.put("a.tar", DATA), target, policy=FAST)
    assert leftovers(target) in ([], [target.name + STATE_SUFFIX])


def test_a_disk_that_fills_up_keeps_what_came(server, target, monkeypatch):
    url = server.put("a.tar", DATA)
    real = Path.open

    def limited(self, mode="r", *rest, **more):
        stream = real(self, mode, *rest, **more)
        if mode == "ab" and self.name.endswith(PART_SUFFIX):
            write, room = stream.write, [2_000_000]

            class Full:
                def __enter__(self):
                    return self

                def __exit__(self, *_):
                    stream.close()

                def write(self, data):
                    kept = data[: room[0]]
                    room[0] -= len(kept)
                    write(kept)
                    if len(kept) < len(data):
                        raise OSError(errno.ENOSPC, "No space left on device")

            return Full()
        return stream

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", limited)
        with pytest.raises(SourceError, match=r"the disk is full; what came is kept in .*\.part"):
            fetch_file(url, target, sha256=SHA256, policy=FAST)
    assert target.with_name(target.name + PART_SUFFIX).stat().st_size == 2_000_000
    assert fetch_file(url, target, sha256=SHA256, policy=FAST).size == len(DATA)
    assert server.log[-1]["range"] == "bytes=2000000-"


def test_two_who_want_the_same_file_fetch_it_once(server, target):
    url = server.put("a.tar", DATA, stall=(1000, 0.3))
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(fetch_file(url, target, sha256=SHA256, policy=FAST)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.sha256 for each in results] == [SHA256] * 3
    assert len(server.log) == 1


def test_a_killed_process_leaves_a_part_that_the_next_one_goes_on_from(server, target):
    url = server.put("a.tar", DATA, stall=(1_500_000, 30))
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from pathlib import Path; from cairn.fetch.download import fetch_file;"
            "fetch_file(sys.argv[1], Path(sys.argv[2]))",
            url,
            str(target),
        ],
        cwd=Path(__file__).resolve().parents[2],
    )
    part = target.with_name(target.name + PART_SUFFIX)
    deadline = time.monotonic() + 30
    while not (part.exists() and part.stat().st_size >= 1_000_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    there = part.stat().st_size
    assert 0 < there < len(DATA)
    assert not target.exists()
    server.files["a.tar"].stall = None
    fetch_file(url, target, sha256=SHA256, policy=FAST)
    assert server.log[-1]["range"] == f"bytes={there}-"
    assert target.read_bytes() == DATA


def test_progress_counts_bytes_and_never_goes_past_the_end(server, target):
    seen = []
    fetch_file(
        server.put("a.tar", DATA, cuts=[1_000_000]),
        target,
        policy=FAST,
        advance=lambda done, total: seen.append((done, total)),
    )
    assert seen[0] == (0, len(DATA))
    assert seen[-1] == (len(DATA), len(DATA))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_further_tries_are_announced(tmp_path, capsys):
    with pytest.raises(SourceError, match="after 4 tries"):
        fetch_file("http://127.0.0.1:9/a.csv", tmp_path / "a.csv", policy=FAST)
    said = capsys.readouterr().err.splitlines()
    assert [line.rsplit("; ", 1)[1] for line in said] == [f"trying again ({n} of 3)" for n in (1, 2, 3)]
    assert all(line.startswith("a.csv: connection refused") for line in said)


def test_sizes_of_thousands_of_digits_are_no_sizes(server, target):
    digits = "9" * 5000
    url = server.put("a", DATA, length=False, headers={"Content-Length": digits})
    assert fetch_file(url, target, policy=FAST).sha256 == SHA256
    span = f"bytes {digits}-{digits}/{digits}"
    url = server.put("b", DATA, cuts=[1 << 20], headers={"Content-Range": span})
    assert fetch_file(url, target.with_name("b"), policy=FAST).sha256 == SHA256


def test_a_redirect_to_no_address_is_one_line(server, target):
    url = server.put("a", DATA, redirect="http://[::nothing")
    with pytest.raises(SourceError, match="Invalid IPv6"):
        fetch_file(url, target, policy=FAST)


def test_a_file_that_has_another_size_midway_starts_over(server, target):
    """A server that keeps the ETag of a file that grew."""
    url = server.put("a", DATA, cuts=[1 << 20])
    with pytest.raises(SourceError):
        fetch_file(url, target, policy=Policy(connect=2, read=2, retries=0))
    server.files["a"].data = longer = DATA[::-1] + b"more"
    assert fetch_file(url, target, policy=FAST).sha256 == hashlib.sha256(longer).hexdigest()


def test_a_file_that_changes_at_every_try_is_given_up(server, target, monkeypatch):
    """Coming as far again after starting over is no progress; without an end to it, this went on for ever."""
    monkeypatch.setattr("cairn.fetch.download.PROGRESS_BYTES", 1)
    url = server.put("a", DATA, cuts=[1 << 20] * 100, if_range=False)
    file = server.files["a"]
    sizes = iter(range(100))

    class Growing(bytes):
        def __len__(self) -> int:
            return super().__len__() + next(sizes)

    file.data = Growing(DATA)
    with pytest.raises(SourceError, match="the file changed on the server, after 4 tries"):
        fetch_file(url, target, policy=FAST)
