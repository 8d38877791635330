"""How a process that computes keeps its memory: freed buffers stay with it and are used again."""

import sys

MAPPED_FROM = 128 << 20
"""Bytes from which a buffer is mapped on its own: an image of 40 megapixels still comes from what was freed."""
KEPT = 256 << 20
"""Free bytes at the heap's end that a process may hold on to; above it they go back to the system."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def reuse_buffers() -> bool:
    """Have malloc of this process reuse large buffers; whether it did (glibc only).

    Decoding a photograph takes and frees several buffers of 10–20 MB. glibc maps each one anew and unmaps it, so
    that every page of every image is a page fault and is zeroed by the kernel: a third of the time of decoding
    and resizing where faults are dear, as on virtual machines (docs/performance.md). mallopt(3).
    """
    if not sys.platform.startswith("linux"):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is None:
        return False
    # Both: setting one switches off that glibc adapts the other by itself.
    return bool(mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM)) & bool(mallopt(_M_TRIM_THRESHOLD, KEPT))
