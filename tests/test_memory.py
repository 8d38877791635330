"""Buffers that a process frees come back from its own heap, not from the kernel."""

import subprocess
import sys

import pytest

COUNT = """
import resource
import sys

from cairn.memory import reuse_buffers

if sys.argv[1] == "yes":
    assert reuse_buffers()
for _ in range(100):  # as decoding and resizing do: several large buffers at once, all freed
    first, second, third = bytearray(12 << 20), bytearray(16 << 20), bytearray(16 << 20)
    del first, second, third
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="glibc's malloc is what is told; this is no Linux"
)
def test_freed_buffers_are_used_again():
    def faults(reuse: str) -> int:
        return int(
            subprocess.run([sys.executable, "-c", COUNT, reuse], capture_output=True, check=True).stdout
        )

    once = (44 << 20) // 4096
    if faults("no") < 20 * once:
        pytest.skip("malloc of this machine keeps such buffers by itself (huge pages, or another libc)")
    assert faults("yes") < 3 * once
