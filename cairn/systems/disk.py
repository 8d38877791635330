"""A disk that is full while a step writes, as one clear line."""

import contextlib
import errno
import functools
import inspect
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec

from cairn.errors import CairnError

P = ParamSpec("P")


def no_space(error: BaseException) -> bool:
    """Whether a disk is full: pyarrow sets `errno`, HDF5 and FAISS have it in their message only."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return isinstance(error, OSError | RuntimeError) and any(
        text in str(error) for text in ("No space left on device", "Disk quota exceeded")
    )


def check_room(folder: Path, size: int) -> None:
    """OSError, as from a full disk, where fewer than `size` bytes are free for `folder`."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


@contextlib.contextmanager
def full_disk(output: Path) -> Iterator[None]:
    """Inside, a full disk becomes a CairnError that says what was being written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        chain, link = [], error
        while link is not None and link not in chain:
            chain.append(link)
            link = link.__cause__ or link.__context__
        if not any(no_space(one) for one in chain):
            raise
        raise CairnError(
            f"no space left on the disk while writing {output}; free some and run again"
        ) from error


def tells_full_disk(step: Callable[P, None]) -> Callable[P, None]:
    """The step, which has an argument `output`, inside `full_disk`."""
    signature = inspect.signature(step)

    @functools.wraps(step)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        with full_disk(signature.bind(*args, **kwargs).arguments["output"]):
            step(*args, **kwargs)

    return guarded
