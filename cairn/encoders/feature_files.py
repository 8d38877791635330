"""A user's own features, as files of several kinds hold them: arrays by name, read without running anything.

`.npy`, `.npz`, PyTorch (`weights_only`), `.mat` (version 7.3, which is HDF5, too), pickles of plain data and
arrays (see `cairn.untrusted`), HDF5 and Parquet. A name of an array may go down through dictionaries and groups:
`gallery/features`.
"""

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cairn.errors import InputError
from cairn.store.tables import first_line
from cairn.untrusted import MAX_BYTES, load_array, load_pickle

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
MATLAB_HDF5_HEADER = 512
"""A MATLAB 7.3 file is an HDF5 file behind a header of so many bytes."""
MOST_GROWTH = 1100
"""How many times larger than in the file values can be: deflate reaches 1,032."""
SHOWN = 8


def read_named(path: Path, name: str | None) -> Any:
    """The array (or list) called `name` in a file; the only one it holds where `name` is None.

    An array of numbers or texts; columns of a Parquet file come as an array [rows] or [rows, dim]. A `.mat`
    array has MATLAB's shape in both versions. InputError, naming the file and what it holds, for anything else.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    kind = path.suffix.lower().lstrip(".")
    if kind == "mat" and _is_hdf5(path):
        found = _hdf5(path, name)
        return found.T if found.ndim == 2 else found.reshape(-1)
    if kind not in READERS:
        raise InputError(f"{path}: not a kind of file that is read; one of {', '.join(sorted(READERS))}")
    return READERS[kind](path, name)


def text_ids(path: Path) -> list[str]:
    """Ids from a text file, one a line, from a JSON list, or from a `.npy` of texts. InputError for others."""
    import json

    if path.suffix.lower() == ".npy":
        return as_ids(load_array(path), str(path))
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: ids cannot be read ({first_line(error)})") from None
    if path.suffix.lower() != ".json":
        return [line.strip() for line in text.splitlines() if line.strip()]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({first_line(error)})") from None
    return as_ids(value, str(path))


def as_ids(value: Any, where: str) -> list[str]:
    """A list of texts from what a file holds: a list, an array of texts, bytes or whole numbers."""
    if isinstance(value, np.ndarray):
        if value.dtype == object:  # MATLAB's cell array: each cell an array of one text
            value = [
                cell.item() if isinstance(cell, np.ndarray) and cell.size == 1 else cell
                for cell in value.flat
            ]
        elif value.dtype.kind not in "USiu":
            raise InputError(f"{where}: ids are of type {value.dtype}; texts or whole numbers are expected")
        else:
            value = value.reshape(-1).tolist()
    if not isinstance(value, list | tuple):
        raise InputError(f"{where}: ids are a {type(value).__name__}; a list of texts is expected")
    ids = []
    for one in value:
        if isinstance(one, bytes):
            one = one.decode("utf-8", "replace")
        if isinstance(one, bool) or not isinstance(one, str | int):
            raise InputError(f"{where}: an id is a {type(one).__name__}; texts are expected")
        ids.append(str(one).strip())
    return ids


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as stream:
        if stream.read(8) == HDF5_MAGIC:
            return True
        stream.seek(MATLAB_HDF5_HEADER)
        return stream.read(8) == HDF5_MAGIC


def _npy(path: Path, name: str | None) -> Any:
    if name is not None:
        raise InputError(f"{path}: a .npy file holds one array without a name; leave out {name!r}")
    return load_array(path)


def _npz(path: Path, name: str | None) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {one.filename.removesuffix(".npy"): one.file_size for one in archive.infolist()}
        chosen = _chosen(path, name, sizes)
        if sizes[chosen] > MAX_BYTES:
            raise InputError(
                f"{path}: {chosen} takes {sizes[chosen]:,} bytes; at most {MAX_BYTES:,} are read"
            )
        with np.load(path, allow_pickle=False) as arrays:
            return arrays[chosen]
    except InputError:
        raise
    except Exception as error:  # zipfile, zlib and numpy each raise their own
        raise InputError(f"{path}: not a readable .npz ({first_line(error)})") from None


def _torch(path: Path, name: str | None) -> Any:
    import torch

    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises nearly anything on damaged files
        raise InputError(
            f"{path}: not a PyTorch file of plain tensors ({first_line(error)}); weights_only refuses others"
        ) from None
    found = _inside(path, name, value)
    if not isinstance(found, torch.Tensor):
        return found
    try:
        found = found.detach()
        return (found.float() if found.dtype == torch.bfloat16 else found).numpy()
    except (TypeError, RuntimeError) as error:  # sparse, quantised, 8 bits, or without values
        raise InputError(
            f"{path}: {name or 'it'} is no plain dense tensor ({first_line(error)}); save tensor.to_dense().float()"
        ) from None


def _pickle(path: Path, name: str | None) -> Any:
    return _inside(path, name, load_pickle(path))


def _mat(path: Path, name: str | None) -> Any:
    import scipy.io

    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: at most {MAX_BYTES:,} bytes are read")
        held = [one[0] for one in scipy.io.whosmat(path)]
        chosen = _chosen(path, name, held)
        return scipy.io.loadmat(path, variable_names=[chosen], chars_as_strings=True)[chosen]
    except InputError:
        raise
    except Exception as error:  # scipy raises nearly anything on damaged files
        raise InputError(f"{path}: not a readable MATLAB file ({first_line(error)})") from None


def _hdf5(path: Path, name: str | None) -> np.ndarray:
    """A dataset of the file itself: links and datasets that lead to other files are refused."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            part: Any = file
            for step in _chosen(path, name, [key for key in map(str, file) if not key.startswith("#")]).split(
                "/"
            ):
                if not isinstance(part, h5py.Group) or step not in part:
                    raise InputError(f"{path}: no dataset {name!r}{_listing(part)}")
                if not isinstance(part.get(step, getlink=True), h5py.HardLink):
                    raise InputError(f"{path}: {name!r} is a link to elsewhere, which is not followed")
                part = part[step]
            if not isinstance(part, h5py.Dataset):
                raise InputError(f"{path}: {name!r} is a group{_listing(part)}")
            if part.external or part.is_virtual:
                raise InputError(f"{path}: {name!r} keeps its values in another file, which is not opened")
            if part.size and part.size * part.dtype.itemsize > MAX_BYTES:
                raise InputError(f"{path}: {name!r} is larger than the {MAX_BYTES:,} bytes that are read")
            # A dataset of unwritten chunks can claim any size.
            if part.id.get_storage_size() * MOST_GROWTH < part.size * part.dtype.itemsize:
                raise InputError(f"{path}: {name!r} of shape {part.shape} is not all there")
            return np.asarray(part.asstr()[...] if h5py.check_string_dtype(part.dtype) else part[...])
    except InputError:
        raise
    except Exception as error:  # h5py raises nearly anything on damaged files
        raise InputError(f"{path}: not a readable HDF5 file ({first_line(error)})") from None


def _parquet(path: Path, name: str | None) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        chosen = _chosen(path, name, file.schema_arrow.names)
        column = file.read(columns=[chosen]).column(0).combine_chunks()
        column.validate(full=True)
        if column.null_count:
            raise InputError(f"{path}: column {chosen} has nulls; none are allowed")
        if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
            if not pa.types.is_fixed_size_list(column.type):
                return as_ids(column.to_pylist(), f"{path}: column {chosen}")
            values, lengths = column.flatten(), {column.type.list_size}
        else:
            values, lengths = column.flatten(), set(np.unique(np.asarray(column.value_lengths())).tolist())
        if len(lengths) != 1 or values.null_count:
            raise InputError(
                f"{path}: column {chosen} holds lists of {len(lengths)} lengths, or nulls in them"
            )
        return values.to_numpy(zero_copy_only=False).reshape(len(column), -1)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path}: not a readable Parquet file ({first_line(error)})") from None


def _inside(path: Path, name: str | None, value: Any) -> Any:
    """Follow `name` through dictionaries; lists of lists of numbers become arrays."""
    if name is None and isinstance(value, Mapping):
        name = _chosen(path, None, [str(key) for key in value])
    for step in name.split("/") if name is not None else []:
        held = {str(key): one for key, one in value.items()} if isinstance(value, Mapping) else {}
        if step not in held:
            raise InputError(f"{path}: nothing is called {name!r}{_listing(value)}")
        value = held[step]
    if isinstance(value, list | tuple) and value and isinstance(value[0], list | tuple | np.ndarray | float):
        try:
            return np.asarray(value, np.float64)
        except (ValueError, TypeError):
            raise InputError(f"{path}: {name or 'it'} is a list of rows of several lengths") from None
    return value


def _chosen(path: Path, name: str | None, held: Any) -> str:
    """`name` where its first part is held, or the only name there is."""
    held = [str(one) for one in held]
    if name is None:
        if len(held) != 1:
            raise InputError(f"{path}: say which array: it holds {_some(held)}")
        return held[0]
    if name.split("/")[0] not in held and name not in held:
        raise InputError(f"{path}: nothing is called {name!r}; it holds {_some(held)}")
    return name


def _listing(part: Any) -> str:
    return f"; it holds {_some([str(key) for key in part])}" if isinstance(part, Mapping) else ""


def _some(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (", ".join(names[:SHOWN]) or "nothing") + more


READERS: Mapping[str, Callable[[Path, str | None], Any]] = {
    "npy": _npy,
    "npz": _npz,
    "pt": _torch,
    "pth": _torch,
    "mat": _mat,
    "pkl": _pickle,
    "pickle": _pickle,
    "h5": _hdf5,
    "hdf5": _hdf5,
    "parquet": _parquet,
}
