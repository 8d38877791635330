"""What the estimator accepts and how it says no."""

import io
import zipfile

import numpy as np
import pytest

from cairn.errors import InputError
from cairn.tail.scores import check_gallery, load_scores, sample_scores, spread_ties


def good():
    top = np.array([[0.9, 0.8, 0.7], [0.5, 0.4, 0.4]], np.float32)
    return {"top": top, "pos_q": np.array([1, 0, 0]), "pos_s": np.array([0.4, 0.75, 0.95]), "sample_size": 10}


def test_positives_are_ordered_and_ties_count_against_them():
    scores = sample_scores(**good())
    assert scores.query.tolist() == [0, 0, 1]
    np.testing.assert_allclose(scores.score, [0.95, 0.75, 0.4])
    assert scores.index.tolist() == [1, 2, 1]
    assert scores.positives.tolist() == [2, 1]
    assert sample_scores(**(good() | {"pos_s": np.array([0.4, 0.75, 0.95], np.float32)})).counts.tolist() == [
        0,
        2,
        3,
    ]


def test_half_precision_is_compared_in_half_precision():
    top = np.array([[0.9, 0.7, 0.1]], np.float16)
    scores = sample_scores(top, np.array([0]), np.array([0.70001]), 10)
    assert scores.counts.tolist() == [2]


def test_integers_are_scores():
    scores = sample_scores(np.array([[9, 9, 3]], np.int8), np.array([0, 0]), np.array([9, 4]), 10)
    assert scores.counts.tolist() == [2, 2]
    assert scores.quantised == 0.5


def test_positives_are_rounded_to_the_precision_of_the_lists():
    """0.7 is not a single-precision number: kept as a double, the same score would not tie with itself."""
    top = np.array([[0.9, 0.7, 0.1]], np.float32)
    assert sample_scores(top, np.array([0]), np.array([0.7]), 10).counts.tolist() == [2]
    beyond = sample_scores(top.astype(np.float16), np.array([0, 0]), np.array([1e6, 0.05]), 10)
    assert beyond.counts.tolist() == [0, 3] and beyond.score[0] == 1e6


def put(name, value):
    def change(arrays):
        arrays[name] = value(arrays[name]) if callable(value) else value

    return change


def set_at(name, place, value):
    def change(arrays):
        arrays[name] = arrays[name].astype(float)
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_at("top", (1, 2), np.nan), r"top\[1, 2\] is nan"),
        (set_at("top", (0, 0), np.inf), r"top\[0, 0\] is inf"),
        (set_at("pos_s", 1, np.nan), r"pos_s\[1\] \(query 0\) is nan"),
        (put("top", lambda t: t[:, ::-1]), "query 0 of top rises from 0.7 to 0.8 at column 1; .* descending"),
        (put("sample_size", 2), "T = 3 scores of a sample of S = 2"),
        (put("sample_size", 10.5), "S is 10.5; it must be a whole number"),
        (put("sample_size", 0), "at least 1"),
        (put("pos_q", np.array([0, 0, 0])), "query 1 has no positive"),
        (put("pos_q", np.array([0, 1, 2])), "positive 2 names query 2, but top has the queries 0 to 1"),
        (put("pos_q", np.array([0, 1])), "equally long"),
        (put("pos_q", np.array([0.5, 1, 0])), "whole query numbers"),
        (put("top", lambda t: t[0]), r"shape \(3,\)"),
        (put("top", lambda t: t[:, :0]), r"shape \(2, 0\)"),
        (put("top", lambda t: t.astype("U3")), "real numbers"),
        (put("pos_s", lambda s: s.astype(complex)), "real numbers"),
        (put("top", lambda t: np.ma.masked_less(t, 0.5)), "top is a masked array"),
        (put("top", [[0.9, 0.8], [0.5]]), "not an array of numbers"),
        (put("pos_q", np.array([0, np.inf, 1])), "whole query numbers"),
        (put("sample_size", 2**60), "at most 2\\^53"),
        (put("sample_size", True), "S is True"),
    ],
)
def test_bad_arrays(change, message):
    arrays = good()
    change(arrays)
    with pytest.raises(InputError, match=message):
        sample_scores(**arrays)


def test_gallery_must_hold_the_sample():
    scores = sample_scores(**good())
    assert check_gallery(scores, 10.0, 5) == 10
    for gallery, cutoff, message in (
        (9, 5, "larger than the gallery"),
        (1e9, 0, "cut-off"),
        (10.5, 5, "whole number"),
    ):
        with pytest.raises(InputError, match=message):
            check_gallery(scores, gallery, cutoff)


def test_files(tmp_path):
    arrays = good()
    arrays["S"] = arrays.pop("sample_size")
    np.savez(tmp_path / "good.npz", **arrays, true_x=np.array([0.4, 0.75, 0.95]), full_map=0.5)
    scores, extra = load_scores(tmp_path / "good.npz")
    assert scores.sample_size == 10 and set(extra) == {"true_x"}
    np.testing.assert_allclose(
        extra["true_x"], scores.score
    )  # in the order of the positives, not of the file
    with pytest.raises(InputError, match="no such file"):
        load_scores(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputError, match=r"text\.npz: cannot be read"):
        load_scores(tmp_path / "text.npz")
    np.savez(tmp_path / "short.npz", top=arrays["top"], S=10)
    with pytest.raises(InputError, match="has no pos_q, pos_s"):
        load_scores(tmp_path / "short.npz")
    np.savez(tmp_path / "many.npz", **(arrays | {"S": np.array([10, 11])}))
    with pytest.raises(InputError, match="S has 2 values"):
        load_scores(tmp_path / "many.npz")
    np.savez(tmp_path / "pickled.npz", **(arrays | {"top": np.array([{}], object)}))
    with pytest.raises(InputError, match=r"pickled\.npz: cannot be read"):
        load_scores(tmp_path / "pickled.npz")


def _archive(path, **members: bytes):
    arrays = good()
    arrays["S"] = arrays.pop("sample_size")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            stream = io.BytesIO()
            np.save(stream, np.asarray(array))
            archive.writestr(f"{name}.npy", members.get(name, stream.getvalue()))
    return path


def test_damaged_files_are_refused(tmp_path):
    stream = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(stream, header)
    with pytest.raises(InputError, match="of its array top, its header promises"):
        load_scores(_archive(tmp_path / "promise.npz", top=stream.getvalue()))
    with pytest.raises(InputError, match=r"bytes\.npz: cannot be read"):
        load_scores(_archive(tmp_path / "bytes.npz", S=b"hello"))
    np.savez_compressed(
        tmp_path / "broken.npz", **(good() | {"S": 10, "top": np.ones((2, 3000), np.float32)})
    )
    content = bytearray((tmp_path / "broken.npz").read_bytes())
    start = content.index(b"top.npy") + 40
    content[start : start + 30] = b"\xff" * 30
    (tmp_path / "broken.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"broken\.npz: cannot be read"):
        load_scores(tmp_path / "broken.npz")
    arrays = good()
    arrays["S"] = arrays.pop("sample_size")
    for truth in (np.ones(5), np.array(["a", "b", "c"]), np.array([1.0, np.nan, 1.0])):
        np.savez(tmp_path / "truth.npz", **arrays, true_x=truth)
        with pytest.raises(InputError, match=r"true_x is .* each of the 3 positives"):
            load_scores(tmp_path / "truth.npz")


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    arrays = good()
    arrays["S"] = arrays.pop("sample_size")
    arrays["top"] = np.zeros((2000, 2000), np.float32)
    np.savez_compressed(tmp_path / "bomb.npz", **arrays)
    monkeypatch.setattr("cairn.tail.scores.MOST_BYTES", 1 << 20)
    with pytest.raises(InputError, match="unpacks to"):
        load_scores(tmp_path / "bomb.npz")


def test_ties_are_spread_evenly_and_keep_their_order():
    got = spread_ties(np.array([[5.0, 4.0, 4.0, 4.0, 4.0, 2.0], [3.0, 3.0, 2.0, 1.0, 1.0, 1.0]]))
    np.testing.assert_allclose(got[0], [5, 4.5 - 0.1875, 4.5 - 0.5625, 4.5 - 0.9375, 4.5 - 1.3125, 2])
    assert (np.diff(got, axis=1) < 0).all()
    np.testing.assert_allclose(got[1], [3.25, 2.75, 2, 4 / 3, 1, 2 / 3])
    assert (spread_ties(np.ones((1, 4))) == 1).all()
