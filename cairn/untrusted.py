"""Pickles and arrays from outside, read without running anything they name.

The published ground truths of several benchmarks are pickles. A pickle is a program: here its opcodes are
checked first, then run by an unpickler in which every name resolves to a stand-in of this module (none of
numpy's own constructors are called with what the file says), and the stand-ins become plain Python objects
and numpy arrays at the end.
"""

import io
import pickle
import pickletools
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from cairn.errors import InputError

MAX_BYTES = 8 << 30
"""Largest pickle or array read, in bytes."""
MAX_ITEMS = 500_000_000
"""Largest number of values in what a pickle holds, shared parts counted each time they are met."""
MAX_SHARED = 100
"""Largest number of values per byte of a pickle (and a million): more come only of parts that hold parts many times."""
MAX_DEPTH = 64
MAX_BITS = 2048
"""Longest whole number in a pickle."""
MAX_RATIO = 200
"""Largest ratio of an array's bytes to what it takes in a `.npz`; scores and ranks hardly shrink."""
SLACK = 1 << 24
"""Bytes beyond that ratio."""

_PLAIN_OPCODES = frozenset(
    """
    PROTO STOP FRAME MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 BINBYTES
    SHORT_BINBYTES BINBYTES8 BYTEARRAY8 EMPTY_LIST APPEND APPENDS LIST EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3
    EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL
    REDUCE BUILD
    """.split()  # noqa: SIM905 - a list of thirty quoted names reads worse
)
"""What data needs. NEWOBJ, INST, OBJ, EXT and persistent ids are not among it: they make other objects."""


def load_pickle(path: Path, max_bytes: int = MAX_BYTES) -> Any:
    """The data in a pickle: dict, list, tuple, str, bytes, int, float, bool, None, numpy arrays and scalars.

    Raises InputError, naming the file, for anything else: another type, an opcode that makes objects, a
    damaged or truncated file, one above `max_bytes`, nesting above MAX_DEPTH, numbers above
    MAX_BITS, or values above MAX_ITEMS or MAX_SHARED.
    """
    path = Path(path)
    data = _read(path, max_bytes)
    try:
        _check_opcodes(data)
        return _Finisher(len(data)).finish(_Unpickler(data).load())
    except _Refused as refusal:
        raise InputError(f"{path}: refused pickle: {refusal}") from None
    except MemoryError:
        raise InputError(f"{path}: refused pickle: it asks for more memory than there is") from None
    except Exception as error:
        # pickle raises nearly anything on damaged bytes: IndexError, UnicodeDecodeError, OverflowError, ...
        raise InputError(
            f"{path}: not a pickle, or a damaged one ({type(error).__name__}: {_short(error)})"
        ) from None


def load_array(path: Path, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """The array in a `.npy` file (memory-mapped) or the only one in a `.npz`; InputError for anything else.

    Arrays of Python objects are refused, as are headers that promise more than the file holds.
    """
    path = Path(path)
    _check_size(path, max_bytes)
    try:
        with path.open("rb") as stream:
            magic = stream.read(6)
        if magic[:4] == b"PK\x03\x04":
            return _load_npz(path, max_bytes)
        if magic != b"\x93NUMPY":
            raise _Refused("it is neither .npy nor .npz")
        with path.open("rb") as stream:
            _check_header(stream, path.stat().st_size)
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except _Refused as refusal:
        raise InputError(
            f"{path}: {refusal}; expected one array of numbers as numpy.save writes it"
        ) from None
    except MemoryError:
        raise InputError(f"{path}: the array does not fit in memory") from None
    except Exception as error:
        raise InputError(f"{path}: not a readable array ({type(error).__name__}: {_short(error)})") from None


def load_arrays(
    path: Path, required: Iterable[str], optional: Iterable[str] = (), max_bytes: int = MAX_BYTES
) -> dict[str, np.ndarray]:
    """Arrays of a `.npz` by name: all `required` ones, and those of `optional` that it holds.

    Raises InputError for a file that is no `.npz`, lacks an array, is damaged or encrypted, holds Python objects,
    unpacks to more than `max_bytes`, or whose headers promise more than the file holds.
    """
    path, required = Path(path), tuple(required)
    _check_size(path, max_bytes)
    try:
        with zipfile.ZipFile(path) as archive:
            held = {name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")}
            missing = [name for name in required if name not in held]
            if missing:
                raise _Refused(f"has no {', '.join(missing)}; needed are {', '.join(required)}")
            wanted = [*required, *(name for name in optional if name in held)]
            sizes = {name: archive.getinfo(f"{name}.npy").file_size for name in wanted}
            if sum(sizes.values()) > max_bytes:
                raise _Refused(f"unpacks to {sum(sizes.values()):,} bytes; at most {max_bytes:,} are read")
            arrays = {}
            for name, size in sizes.items():
                with archive.open(f"{name}.npy") as stream:
                    try:
                        _check_header(stream, size)
                    except _Refused as refusal:
                        raise _Refused(f"cannot be read: of its array {name}, {refusal}") from None
                with archive.open(f"{name}.npy") as stream:
                    arrays[name] = np.lib.format.read_array(stream, allow_pickle=False)
            return arrays
    except _Refused as refusal:
        raise InputError(f"{path}: {refusal}") from None
    except MemoryError:
        raise InputError(f"{path}: its arrays do not fit in memory") from None
    except Exception as error:
        raise InputError(
            f"{path}: cannot be read as an .npz of plain arrays ({type(error).__name__}: {_short(error)})"
        ) from None


class _Refused(Exception):
    """Why a file is not read."""


def _read(path: Path, max_bytes: int) -> bytes:
    _check_size(path, max_bytes)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _check_size(path: Path, max_bytes: int) -> None:
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if not path.is_file():
        raise InputError(f"{path}: not a file")
    if size > max_bytes:
        raise InputError(f"{path}: {size:,} bytes; at most {max_bytes:,} are read")


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or "no detail"


def _check_opcodes(data: bytes) -> None:
    """Refuse opcodes that make objects, memo numbers and sizes that no honest pickle of this length has."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _PLAIN_OPCODES:
            raise _Refused(f"it uses the opcode {opcode.name}, which data does not need")
        if isinstance(argument, int) and argument.bit_length() > MAX_BITS:
            raise _Refused(f"it holds a number of {argument.bit_length():,} bits")  # too long to be printed
        if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and (argument or 0) > len(data):
            # The memo is an array: a large number alone would make it fill the memory.
            raise _Refused(f"it numbers an object {argument}, more than it can hold")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin1")
        self._room = len(data)

    def _encode(self, text: Any = "", encoding: Any = "latin1") -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
            raise _Refused("it encodes a text in an unexpected way")
        # A text can be referred to, and encoded, any number of times; data does so once.
        self._room -= len(text)
        if self._room < 0:
            raise _Refused("it encodes more text than it holds")
        return text.encode("latin1")

    def find_class(self, module: str, name: str) -> Any:
        base, _, rest = module.partition(".")
        inside = f"{rest.removeprefix('_')}.{name}".lstrip(".")
        if (module, name) in _BYTES:
            return self._encode
        stand_in = _NUMPY.get(inside) if base == "numpy" else None
        if stand_in is None:
            raise _Refused(f"it names {module}.{name}; admitted are plain Python data and numpy arrays")
        return stand_in

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _Refused("it refers to objects outside itself")


class _Dtype:
    """Stands for numpy.dtype: kind, size and byte order, nothing else."""

    def __init__(self, code: str = "", *_: Any) -> None:
        if not isinstance(code, str) or len(code) > 12 or code[:1] not in tuple("biufSUO"):
            raise _Refused(f"it holds an array of type {str(code)[:20]!r}; admitted are numbers and texts")
        self.code = "O" if code[0] == "O" else code
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in ("<", ">", "|", "="):
            raise _Refused("it holds an array type with an unknown state")
        if any(part is not None for part in state[2:5]):
            raise _Refused("it holds an array type with fields; admitted are numbers and texts")
        self.order = state[1]

    def dtype(self) -> np.dtype:
        if self.code == "O":
            return np.dtype(object)
        kind = np.dtype(self.code if self.order == "|" else self.order + self.code)
        if kind.itemsize == 0 or kind.kind not in "biufSU":
            raise _Refused(f"it holds an array of type {kind}; admitted are numbers and texts")
        return kind


class _Array:
    """Stands for numpy.ndarray until its bytes are checked against its shape and type."""

    def __init__(self) -> None:
        self.state: tuple[Any, ...] | None = None

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("it holds an array with an unknown state")
        self.state = state

    def array(self) -> np.ndarray | list[Any]:
        if self.state is None:
            raise _Refused("it holds an array without content")
        _, shape, dtype, fortran, content = self.state
        return _array(content, dtype, shape, "F" if fortran is True else "C")


def _array(content: Any, dtype: Any, shape: Any, order: str) -> np.ndarray | list[Any]:
    """An array from bytes, checked; from a list of objects, that list (in one dimension)."""
    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or len(shape) > 8:
        raise _Refused("it holds an array with an unknown type or shape")
    if not all(isinstance(side, int) and 0 <= side <= MAX_BYTES for side in shape):
        raise _Refused(f"it holds an array with the shape {str(shape)[:60]}")
    count = 1
    for side in shape:
        count *= side
    if dtype.code == "O":
        if not isinstance(content, list) or len(content) != count or len(shape) > 1:
            raise _Refused("it holds an array of objects that does not fit its shape")
        return content
    kind = dtype.dtype()
    if isinstance(content, str):  # protocol 2 writes bytes as latin1 text
        content = content.encode("latin1")
    if not isinstance(content, bytes | bytearray) or len(content) != count * kind.itemsize:
        raise _Refused(f"it holds an array whose bytes do not fit its shape {shape} and type {kind}")
    return np.frombuffer(bytes(content), kind).reshape(shape, order="F" if order == "F" else "C")


def _scalar(dtype: Any = None, content: Any = None) -> Any:
    value = _array(content, dtype, (1,), "C")
    return value[0].item() if isinstance(value, np.ndarray) else value[0]


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _from_buffer(content: Any = None, dtype: Any = None, shape: Any = None, order: Any = "C") -> Any:
    return _Late(content, dtype, shape, order)


class _Late:
    """An array of protocol 5, whose type's state is known only when everything is read."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    def array(self) -> np.ndarray | list[Any]:
        content, dtype, shape, order = self.parts
        return _array(content, dtype, shape, order)


_NUMPY = {
    # numpy 1 says numpy.core, numpy 2 numpy._core.
    "core.multiarray._reconstruct": _reconstruct,
    "core.multiarray.scalar": _scalar,
    "core.numeric._frombuffer": _from_buffer,
    "ndarray": _Array,
    "dtype": _Dtype,
}
# Protocols 0 to 2 write bytes as an encoded text, and empty ones as a call of bytes.
_BYTES = (("_codecs", "encode"), ("__builtin__", "bytes"), ("builtins", "bytes"))


class _Finisher:
    """Replaces stand-ins by what they stand for; a structure that holds itself, or too much, is refused.

    What a pickle holds in several places is finished once and counted each time: a few bytes can refer to it a
    billion times.
    """

    def __init__(self, n_bytes: int) -> None:
        self._budget = min(MAX_ITEMS, MAX_SHARED * n_bytes + 1_000_000)
        self._done: dict[int, tuple[Any, int, int] | None] = {}
        """By id: result, levels below it and values in it; None while at work on it."""

    def finish(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """The finished `value`, which may nest `depth` levels deep."""
        return self._finish(value, depth)[0]

    def _finish(self, value: Any, depth: int) -> tuple[Any, int, int]:
        if value is None or isinstance(value, str | bytes | bytearray | int | float | bool):
            self._spend(1)
            return value, 0, 1
        known = self._done.get(id(value), ())
        if depth == 0 or known is None or (known and known[1] > depth):
            raise _Refused(f"it nests deeper than {MAX_DEPTH} levels, or holds itself")
        if known:
            self._spend(known[2])
            return known
        self._done[id(value)] = None
        before = self._budget
        self._spend(1)
        result, levels = self._container(value, depth)
        done = self._done[id(value)] = result, levels, before - self._budget
        return done

    def _container(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, _Array | _Late):
            value = value.array()
        if isinstance(value, np.ndarray):
            self._spend(max(value.size, value.nbytes // 8))
            return value, 1
        if isinstance(value, list | tuple):
            if _all_plain(value):
                self._spend(len(value))
                return value, 1
            parts = [self._finish(each, depth - 1)[:2] for each in value]
            return type(value)([part for part, _ in parts]), 1 + max(levels for _, levels in parts)
        if isinstance(value, dict):
            pairs = [(self._finish(k, depth - 1), self._finish(v, depth - 1)) for k, v in value.items()]
            levels = max((max(key[1], each[1]) for key, each in pairs), default=0)
            return {key[0]: each[0] for key, each in pairs}, 1 + levels
        raise _Refused(f"it holds a {type(value).__name__.lstrip('_')} where data was expected")

    def _spend(self, count: int) -> None:
        self._budget -= count
        if self._budget < 0:
            raise _Refused("it holds more values than a file of its size has")


def _all_plain(values: Iterable[Any]) -> bool:
    return set(map(type, values)) <= {str, int, float, bool, type(None), bytes}


def _check_header(stream: Any, available: int) -> None:
    """Refuse a header that is not of numbers, or that promises more bytes than there are."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise _Refused(f"its format version is {version}")
    if dtype.hasobject or dtype.kind not in "biufSU":
        raise _Refused(f"it holds values of type {dtype}")
    count = 1
    for side in shape:
        count *= side
    if count * dtype.itemsize > available:
        raise _Refused(f"its header promises {count * dtype.itemsize:,} bytes, and it has {available:,}")


def _load_npz(path: Path, max_bytes: int) -> np.ndarray:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) != 1 or not names[0].endswith(".npy"):
            raise _Refused(f"it holds {len(names)} entries: {', '.join(names[:5])}")
        size = archive.getinfo(names[0]).file_size
        if size > max_bytes:
            raise _Refused(f"its array takes {size:,} bytes unpacked; at most {max_bytes:,} are read")
        stored = archive.getinfo(names[0]).compress_size
        if size > MAX_RATIO * stored + SLACK:
            raise _Refused(
                f"its array takes {stored:,} bytes and {size:,} unpacked; no scores or ranks shrink so far"
            )
        with archive.open(names[0]) as stream:
            _check_header(stream, size)
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[names[0].removesuffix(".npy")]
