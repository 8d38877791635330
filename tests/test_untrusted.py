"""Pickles from outside: data comes through as it is, everything else is refused in one line."""

import collections
import io
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.errors import InputError
from cairn.untrusted import load_array, load_pickle

DATA = {
    "imlist": ["a", "b", "ü"],
    "gnd": [{"bbx": [1.5, 2, -3, 1e300], "easy": [1, 2**70], "junk": ()}],
    "bytes": b"\x00\xff",
    "flags": [True, False, None],
}


def same(left, right):
    if isinstance(right, np.ndarray):
        return isinstance(left, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in right)
    if isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("protocol", range(6))
def test_data_comes_through(tmp_path, protocol):
    arrays = {
        "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "strided": np.arange(10)[::3],
        "big": np.arange(3, dtype=">i2"),
        "text": np.array(["ab", "c"]),
        "bytes": np.array([b"ab", b"c"]),
        "flags": np.array([True, False]),
        "empty": np.array([]),
        "none": np.zeros((0, 4), np.float16),
        "flat": np.array(2.5),
    }
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps({"data": DATA, "arrays": arrays}, protocol))
    loaded = load_pickle(path)
    assert same(loaded["data"], DATA)
    assert same(loaded["arrays"], arrays)


@pytest.mark.parametrize("protocol", range(6))
def test_numpy_scalars_and_object_arrays_become_plain(tmp_path, protocol):
    objects = np.empty(2, object)
    objects[:] = ["x", [np.int64(3)]]
    path = tmp_path / "data.pkl"
    path.write_bytes(pickle.dumps([np.float32(0.5), np.int64(7), np.bool_(True), objects], protocol))
    assert load_pickle(path) == [0.5, 7, True, ["x", [3]]]


class Evil:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "value",
    [
        Evil(os.system, ("echo harm > harm",)),
        Evil(eval, ("1+1",)),
        Evil(getattr, ("x", "upper")),
        Evil(bytearray, (10**12,)),
        Evil(np.load, ("x",)),
        Evil(np.memmap, ("x",)),
        Evil(np.dtype, ("V8",)),
        Evil(np.dtype, ({"names": ["a"], "formats": ["f8"]},)),
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        InputError,
        np.random.default_rng(0),
        np.datetime64("2020-01-01"),
        np.zeros(2, [("a", "f8")]),
        1j,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_else_is_refused(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "evil.pkl"
    for protocol in (2, 4, 5):
        path.write_bytes(pickle.dumps({"gnd": [value]}, protocol))
        with pytest.raises(InputError, match=r"evil.pkl: refused pickle: it (names|uses|holds)") as caught:
            load_pickle(path)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "harm").exists()


def array_state(shape, content, code="f8", order="<"):
    """A pickle of an array whose shape and bytes are as given, true or not."""

    class Dtype:
        def __reduce__(self):
            return np.dtype, (code, False, True), (3, order, None, None, None, -1, -1, 0)

    class Array:
        def __reduce__(self):
            function = np.ones(1).__reduce__()[0]
            return function, (np.ndarray, (0,), b"b"), (1, shape, Dtype(), False, content)

    return pickle.dumps(Array(), 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (array_state((10**12,), b"\0" * 8), "shape"),
        (array_state((10**30,), b""), "shape"),
        (array_state((-1,), b"\0" * 8), "shape"),
        (array_state((1,), b"\0" * 7), "bytes do not fit"),
        (array_state((1,), b"\0" * 8, code="O"), "objects"),
        (array_state((1,), [1], code="f8"), "bytes do not fit"),
        (array_state((1,), b"\0" * 8, order="!"), "unknown state"),
        (b"\x80\x02r" + struct.pack("<I", 2**31) + b".", "numbers an object"),
        (b"\x80\x02]r" + struct.pack("<I", 2**31) + b".", "numbers an object"),
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b"ab.", "damaged"),
        (b"\x80\x02]q\x00h\x00a.", "nests deeper"),
        (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", "nests deeper"),
        (b"\x80\x02X\xff\xff\xff\x7fab.", "damaged"),
        (b"cos\nsystem\n(S'true'\ntR.", "names os.system"),
        (b"(S'true'\nios\nsystem\n.", "opcode INST"),
        (b"\x80\x02U\x01xQ.", "opcode BINPERSID"),
        (b"I" + b"9" * 5000 + b"\n.", "damaged"),
        (b"", "damaged"),
        (b"hello, world", "opcode OBJ"),
        (b"query,image\nq,a\n", "numbers an object"),
        (b"{}", "damaged"),
    ],
)
def test_hostile_bytes(tmp_path, data, message):
    path = tmp_path / "evil.pkl"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        load_pickle(path)
    assert "\n" not in str(caught.value) and "evil.pkl" in str(caught.value)


def test_a_small_file_that_unfolds_without_end_is_refused(tmp_path):
    folded = ["x"]
    for _ in range(40):
        folded = [folded, folded]
    path = tmp_path / "bomb.pkl"
    path.write_bytes(pickle.dumps(folded))
    with pytest.raises(InputError, match="values"):
        import cairn.untrusted as module

        limit, module.MAX_ITEMS = module.MAX_ITEMS, 10_000
        try:
            load_pickle(path)
        finally:
            module.MAX_ITEMS = limit


WHOLE = pickle.dumps({"gnd": DATA, "a": np.arange(20.0)}, 4)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_never_raise_anything_else(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "damaged.pkl"
    damaged = bytearray(WHOLE[: data.draw(st.integers(0, len(WHOLE)))])
    for place in data.draw(st.lists(st.integers(0, len(WHOLE) - 1), max_size=4)):
        if place < len(damaged):
            damaged[place] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        load_pickle(path)
    except InputError as error:
        assert "\n" not in str(error)


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def test_arrays_come_through(tmp_path):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, data in {"a.npy": npy(array), "a.npz": npz(scores=array), "a.bin": npy(array)}.items():
        (tmp_path / name).write_bytes(data)
        np.testing.assert_array_equal(load_array(tmp_path / name), array)


HUGE = npy(np.zeros(3)).replace(b"(3,), }" + b" " * 12, b"(3000000000000,), }")


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return stream.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        npy(np.zeros(3))[:-1],
        npy(np.zeros(3))[:20],
        HUGE,
        npz(a=np.zeros(2), b=np.zeros(2)),
        zipped(),
        zipped(a=HUGE),
        zipped(a=b"text"),
        npz(a=np.zeros(2))[:-30],
        npy(np.zeros(2, [("a", "f8")])),
        npy(np.array([1j])),
    ],
)
def test_hostile_arrays(tmp_path, data):
    path = tmp_path / "evil.npy"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"evil\.npy") as caught:
        load_array(path)
    assert "\n" not in str(caught.value)


def test_object_arrays_and_missing_files(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("objects.npy", "missing.npy", "."):
        with pytest.raises(InputError):
            load_array(tmp_path / name)
    for name in ("missing.pkl", "."):
        with pytest.raises(InputError):
            load_pickle(tmp_path / name)
    (tmp_path / "large.pkl").write_bytes(pickle.dumps([0] * 100))
    with pytest.raises(InputError, match="at most 10"):
        load_pickle(tmp_path / "large.pkl", max_bytes=10)


def test_parts_that_a_pickle_shares_are_read_once(tmp_path):
    path = tmp_path / "shared.pkl"
    row = [[1, 2], {"a": np.arange(3)}]
    path.write_bytes(pickle.dumps([row] * 1000))
    loaded = load_pickle(path)
    assert len(loaded) == 1000 and loaded[0] is loaded[999] and loaded[0][0] == [1, 2]
    folded = ["x"]
    for _ in range(24):  # 16 million values in 200 bytes: refused before they are unfolded
        folded = [folded, folded]
    path.write_bytes(pickle.dumps(folded))
    with pytest.raises(InputError, match="more values than a file of its size has"):
        load_pickle(path)
    endless: list = []
    endless += [endless] * 9
    path.write_bytes(pickle.dumps(endless))
    with pytest.raises(InputError, match="holds itself"):
        load_pickle(path)


@pytest.mark.parametrize("protocol", [0, 1, 2, 4])
def test_numbers_too_long_to_be_printed_are_refused(tmp_path, protocol):
    path = tmp_path / "long.pkl"
    path.write_bytes(pickle.dumps({"imlist": [1 << 13_000]}, protocol))
    with pytest.raises(InputError, match="a number of 13,001 bits"):
        load_pickle(path)
    path.write_bytes(pickle.dumps({"imlist": [1 << 64]}, protocol))
    assert load_pickle(path) == {"imlist": [1 << 64]}


def test_a_text_that_is_encoded_again_and_again_is_refused(tmp_path):
    text = b"x" * 100
    call = b"c_codecs\nencode\n(h\x00X\x06\x00\x00\x00latin1tR"
    path = tmp_path / "many.pkl"
    path.write_bytes(b"\x80\x02]X\x64\x00\x00\x00" + text + b"q\x000(" + call * 50 + b"e.")
    with pytest.raises(InputError, match="encodes more text than it holds"):
        load_pickle(path)
    path.write_bytes(b"\x80\x02]X\x64\x00\x00\x00" + text + b"q\x000(" + call + b"e.")
    assert load_pickle(path) == [text]


def test_an_npz_that_grows_without_measure_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "bomb.npz", np.zeros((70, 100_000)))
    with pytest.raises(
        InputError, match=r"bomb.npz: its array takes .* unpacked; no scores or ranks shrink so far"
    ):
        load_array(tmp_path / "bomb.npz")
    np.savez_compressed(tmp_path / "small.npz", np.zeros((70, 1000)))
    assert load_array(tmp_path / "small.npz").shape == (70, 1000)
