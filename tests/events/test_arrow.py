"""Frames, arrays and scalars come back from the log as what they were."""

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divebook.errors import UnopenableValueError, UnstorableValueError
from divebook.events.codec import canonical_hash, decode, encode, storable
from divebook.events.recorded import opened
from divebook.events.values import normalize

pl = pytest.importorskip("polars")
ROWS = 5
BERLIN = "Europe/Berlin"


def back(value):
    return opened(decode(encode(normalize([value]))))[0]


COLUMNS = {
    "int": range(ROWS),
    "uint8": np.arange(ROWS, dtype="u1"),
    "float": [1.5, np.nan, -0.0, np.inf, 2.0],
    "half": np.arange(ROWS, dtype="f2"),
    "big endian": np.arange(ROWS, dtype=">f8"),
    "bool": [True, False, True, True, False],
    "str": ["a", None, "ü", "", "\x00"],
    "string of arrow": pd.array(["a", pd.NA, "b", "c", ""], dtype="string[pyarrow]"),
    "string of python": pd.array(["a", pd.NA, "b", "c", ""], dtype="string[python]"),
    "Int64": pd.array([1, None, 3, 4, 2**62], dtype="Int64"),
    "Float32": pd.array([1, None, 3, 4, 5], dtype="Float32"),
    "boolean": pd.array([True, None, False, True, True], dtype="boolean"),
    "ordered": pd.Categorical(["a", "b", None, "a", "b"], categories=["b", "a", "unused"], ordered=True),
    "numbered": pd.Categorical([1, 2, 1, 1, 1]),
    "cut": pd.cut(range(ROWS), 2),
    "moment": pd.date_range("2020", periods=ROWS),
    "zoned": pd.date_range("2020-10-25", periods=ROWS, freq="h", tz=BERLIN, unit="s"),
    "offset": pd.date_range("2020", periods=ROWS, tz=dt.timezone(dt.timedelta(hours=-3))),
    "span": pd.to_timedelta([1, None, 3, 4, 5], unit="s"),
    "period": pd.period_range("2020", periods=ROWS, freq="M"),
    "interval": pd.interval_range(0, ROWS, closed="left"),
    "arrow int": pd.array([1, None, 2, 3, 4], dtype="int64[pyarrow]"),
    "arrow list": pd.Series([[1], None, [2, 3], [], [4]], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "objects": pd.Series([1, "a", None, (1, (2,)), {"tuple": [1]}], dtype=object),
    "more objects": [Decimal("1.1"), dt.date(2020, 1, 1), b"x", [1, 2], pd.Timestamp("2020", tz="UTC")],
}
FRAME = pd.DataFrame({name: pd.Series(column) for name, column in COLUMNS.items()})


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_keeps_values_and_dtype(name):
    column = FRAME[name]
    again = back(column)
    pd.testing.assert_series_equal(again, column)
    assert again.dtype == column.dtype


LEVELS = [pd.Categorical(list("aabbc")), pd.to_datetime(["2020", "2021", "2020", "2022", None], utc=True)]
FRAMES = {
    "every column": FRAME,
    "no rows": FRAME.iloc[:0],
    "every other row": FRAME.iloc[::2],
    "nothing": pd.DataFrame(),
    "rows only": pd.DataFrame(index=range(3)),
    "columns only": pd.DataFrame(columns=["a", "b"]),
    "two of one name": pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"]),
    "all sorts of names": pd.DataFrame([[1, 2, 3, 4]], columns=[0, "x", pd.Timestamp("2020"), None]),
    "many levels": pd.DataFrame(
        np.arange(10).reshape(5, 2),
        index=pd.MultiIndex.from_arrays(LEVELS, names=["x", ("y", 1)]),
        columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)], names=[None, "n"]),
    ),
    "a frequency": pd.DataFrame({"a": [1, 2]}, index=pd.date_range("2020", periods=2, freq="ME")),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_keeps_columns_index_and_order(name):
    frame = FRAMES[name]
    again = back(frame)
    pd.testing.assert_frame_equal(again, frame, check_column_type=True, check_index_type=True)
    assert normalize(again) == normalize(frame)


@pytest.mark.parametrize(
    "index",
    [
        pd.RangeIndex(1, 9, 2, name="q"),
        pd.DatetimeIndex(FRAME["zoned"]),
        pd.Index([(1, 2), (3,)], tupleize_cols=False),
        pd.Index([1, "a", None], dtype=object),
        pd.Index([], dtype=object),
        pd.CategoricalIndex(list("ab")),
        pd.interval_range(0, 3),
        pd.MultiIndex.from_arrays([[], []]),
        pd.date_range("2020", periods=3, freq="B"),
    ],
    ids=repr,
)
def test_an_index_stays_of_its_kind(index):
    again = back(index)
    pd.testing.assert_index_equal(again, index, exact=True)
    assert getattr(again, "freq", None) == getattr(index, "freq", None)


def test_attributes_and_names_of_a_frame_stay():
    frame = pd.DataFrame({"a": [1]})
    frame.attrs = {"source": ["x"]}
    frame.columns.name = "c"
    assert back(frame).attrs == {"source": ["x"]}
    assert back(frame).columns.name == "c"
    assert back(pd.Series([1], name=("a", 1))).name == ("a", 1)


@pytest.mark.parametrize(
    "scalar",
    [
        pd.Timestamp("2020-01-01 00:00:00.123456789", tz=BERLIN),
        pd.Timestamp("2020-10-25 01:30", tz="UTC").tz_convert(BERLIN),
        pd.Timestamp("2020", tz=dt.timezone(dt.timedelta(hours=-3))),
        pd.Timestamp("2020").as_unit("s"),
        pd.Timedelta(1),
        pd.Period("2020", "M"),
        pd.Interval(pd.Timestamp("2020"), pd.Timestamp("2021"), "left"),
        np.datetime64("2020-01-01T00:00:00.123456789"),
        np.timedelta64(3, "D"),
    ],
    ids=repr,
)
def test_a_scalar_keeps_its_class_unit_and_zone(scalar):
    again = back(scalar)
    assert type(again) is type(scalar)
    assert again == scalar
    assert getattr(again, "unit", None) == getattr(scalar, "unit", None)
    assert str(getattr(again, "tz", None)) == str(getattr(scalar, "tz", None))


def test_missing_values_come_back_as_themselves():
    assert back(pd.NaT) is pd.NaT
    assert back(pd.NA) is pd.NA
    assert np.isnat(back(np.datetime64("NaT", "s")))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.5),
        np.array(["a", "bc"]),
        np.array([b"a", b"bc"]),
        np.array([1 + 2j], dtype="c8"),
        np.array(["2020", "NaT"], "M8[D]"),
        np.array([True, False]),
        np.zeros((0, 3)),
        np.array([{"a": 1}, [1], None], dtype=object),
        np.array([1, 2], ">i4"),
        np.arange(10)[::2],
    ],
    ids=repr,
)
def test_an_array_keeps_shape_and_dtype(array):
    again = back(array)
    np.testing.assert_array_equal(again, array)
    assert (again.dtype, again.shape, again.flags.writeable) == (array.dtype, array.shape, True)


def test_polars_frames_keep_their_schema():
    frame = pl.DataFrame(
        {
            "a": [1, None],
            "c": pl.Series(["a", "b"], dtype=pl.Categorical),
            "e": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
            "t": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None],
            "l": [[1], []],
            "d": [Decimal("1.1"), None],
            "s": [{"a": 1}, {"a": 2}],
        }
    )
    assert back(frame).equals(frame)
    assert back(frame).schema == frame.schema
    assert back(frame["c"]).equals(frame["c"])
    assert normalize(back(frame)) == normalize(frame)


def test_tables_of_pyarrow_keep_their_metadata():
    table = pa.table({"a": [1, 2], "b": ["x", None]}).replace_schema_metadata({"k": "v"})
    assert back(pa.concat_tables([table, table])).equals(pa.concat_tables([table, table]), check_metadata=True)


# --- what makes them fit for a log ---------------------------------------------------------------------------------


def test_equal_frames_have_equal_bytes_whatever_they_were_made_of():
    whole = pd.DataFrame({"a": pd.array([1, 2, None, 4], dtype="Int64"), "b": ["x", "y", None, "z"]})
    cut = pd.concat([pd.DataFrame({"a": pd.array([9, 1, 2], dtype="Int64"), "b": ["-", "x", "y"]}), whole[2:]])[1:]
    cut = cut.reset_index(drop=True)
    residue = whole.copy()
    residue.loc[2, "a"] = 77
    residue.loc[2, "a"] = pd.NA
    assert canonical_hash(storable(cut, "p")) == canonical_hash(storable(whole, "p"))
    assert canonical_hash(storable(residue, "p")) == canonical_hash(storable(whole, "p"))
    assert canonical_hash(storable(whole[::-1], "p")) != canonical_hash(storable(whole, "p"))


def test_what_is_opened_can_be_changed_and_the_record_does_not_notice():
    recorded = normalize(FRAME)
    before = encode(recorded)
    frame = recorded.to_python()
    frame.loc[0, "int"] = 7
    frame.loc[0, "Int64"] = 7
    frame["uint8"].array[0] = 7
    frame.loc[3, "more objects"].append(3)
    assert encode(recorded) == before
    assert recorded.to_python().loc[3, "more objects"] == [1, 2]


def test_what_was_recorded_does_not_follow_the_live_value():
    frame, array, inner = pd.DataFrame({"a": [1, 2]}), np.arange(3), [1]
    objects = pd.Series([inner], dtype=object)
    recorded = normalize([frame, array, objects])
    frame.loc[0, "a"], array[0] = 99, 99
    inner.append(2)
    again = opened(recorded)
    assert (again[0].a.tolist(), again[1].tolist(), again[2].tolist()) == ([1, 2], [0, 1, 2], [[1]])


def test_a_recorded_value_is_shown_in_a_few_words():
    assert str(normalize(pd.DataFrame({"a": range(1000), "b": 1, "c": 2}))) == "DataFrame 1,000 x 3"
    assert repr(normalize([np.zeros(3), pd.Timestamp("2020")])) == "[ndarray 3, 2020-01-01T00:00:00]"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (pl.LazyFrame({"a": [1]}), r"result: polars.* use value.collect\(\)"),
        (pl.Series("o", [object()]), r"result\['o'\]: a column of the type Object"),
        (pd.DataFrame({"a": [1, object()]}), r"result\['a'\]\[1\]: object is not plain data"),
        (pd.Series([1j]), "result: columns of dtype complex128 cannot be stored"),
        (pd.Series([1, 0], dtype="Sparse[int]"), "result: columns of dtype Sparse"),
        (np.zeros(2, dtype="i4,f4"), "result: arrays of dtype .* use a DataFrame"),
        (np.array(["\ud800"]), "result: Arrow cannot hold it"),
        (np.longdouble(1), "result: numpy.float128 has no counterpart"),
        (np.complex128(1j), "result: numpy.complex128 has no counterpart"),
        (np.ma.zeros(2), r"result: numpy.ma.MaskedArray is not plain data; use value.tolist\(\)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_recorded_is_refused_with_its_place_and_a_way_out(value, message):
    with pytest.raises(UnstorableValueError, match=message):
        storable(value, "result")


def test_a_value_whose_library_is_missing_says_what_to_install(monkeypatch):
    recorded = normalize(pl.Series([1]))
    monkeypatch.delitem(sys.modules, "divebook.events.arrow.polars_frames")
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(UnopenableValueError, match=r"pip install 'divebook\[polars\]'"):
        recorded.to_python()
    assert opened([recorded], lenient=True) == [recorded]


def test_reading_a_log_with_frames_loads_no_library():
    raw = encode(normalize({"frame": FRAME[["int"]], "series": pl.Series([1])}))
    program = (
        "import sys; from divebook.events.codec import decode, encode, encode_shown\n"
        f"value = decode({raw!r}); assert encode(value) == {raw!r}; print(encode_shown(value).decode())\n"
        "print([name for name in ('numpy', 'pandas', 'polars', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ['{"frame":"DataFrame 5 x 1","series":"Series 1"}', "[]"]


# --- any frame -----------------------------------------------------------------------------------------------------

CELLS = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "bool": st.booleans(),
    "str": st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    "Int64": st.none() | st.integers(-(2**63), 2**63 - 1),
    "category": st.none() | st.sampled_from("abc"),
    "datetime64[us, Europe/Berlin]": st.none() | st.integers(0, 4 * 10**15),
    "object": st.none() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=3) | st.lists(st.booleans()),
}


@st.composite
def columns(draw, rows):
    dtype = draw(st.sampled_from(sorted(CELLS)))
    cells = draw(st.lists(CELLS[dtype], min_size=rows, max_size=rows))
    if dtype.startswith("datetime"):
        return pd.Series(pd.array(cells, dtype="Int64")).astype("datetime64[us]").dt.tz_localize("UTC").astype(dtype)
    return pd.Series(cells, dtype=dtype)


@st.composite
def frames(draw):
    rows = draw(st.integers(0, 6))
    labels = draw(st.lists(st.text("abc", max_size=2) | st.integers(0, 3), max_size=4))
    frame = pd.DataFrame(dict(enumerate(draw(columns(rows)) for _ in labels)), index=range(rows))
    frame.columns = pd.Index(labels, dtype=object)
    if draw(st.booleans()):
        frame.index = pd.Index(draw(columns(rows)))
    return frame


@settings(max_examples=60, deadline=None)
@given(frames())
def test_any_frame_comes_back(frame):
    again = back(frame)
    pd.testing.assert_frame_equal(again, frame, check_exact=True, check_column_type=True)
    assert normalize(again) == normalize(frame)


KEYS = st.sampled_from(["a", "ü", "$type"])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"))
    | st.binary() | st.datetimes(timezones=st.none() | st.timezones()) | st.dates() | st.timedeltas()
    | st.decimals(allow_nan=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(PLAIN)
def test_any_plain_data_is_the_same_at_once_and_from_the_log(value):
    live = normalize(value)
    folded = decode(encode(live))
    assert folded == live
    assert repr(opened(folded)) == repr(opened(live))
    assert opened(live) == opened(normalize(opened(live)))


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6.0).reshape(2, 3),
        np.array([1 + 2j, 3]),
        pd.DataFrame({"a": [1.5, 2.5], "b": [1, 2]}),
        pd.Series([1, None], dtype="Int64"),
        pd.Series([1.5, 2.5]),
    ],
    ids=str,
)
def test_what_code_does_to_an_opened_value_does_not_reach_the_record(value):
    stored = normalize(value)
    written = stored.content
    made = stored.to_python()
    made[:] = 0
    again, read = stored.to_python(), decode(encode(stored)).to_python()
    assert not np.array_equal(np.asarray(again), np.asarray(made))
    assert normalize(again).content == normalize(read).content == written
