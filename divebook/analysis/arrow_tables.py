"""Frames as Arrow tables, for DuckDB, polars and whatever else takes Arrow: a fixed type for each dtype.

What is a value of any kind in a frame (`ANYTHING`) is a text of JSON in a table: dates and bytes are texts there, and
of frames and the like it has a few words. Of events the JSON is that of the log, without a dict for each event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd
import pyarrow as pa

from divebook.analysis.columns import ANYTHING, COUNT, MOMENT, MONEY, NUMBER, SPAN, TEXT, Columns, whole_column
from divebook.analysis.event_table import EventTable
from divebook.analysis.payloads import Payloads
from divebook.errors import UnstorableValueError
from divebook.events.codec import encode_shown
from divebook.events.values import normalize

TYPES: Mapping[str, Any] = {
    TEXT: pa.large_string(),
    COUNT: pa.int64(),
    NUMBER: pa.int64(),
    ANYTHING: pa.large_string(),
    MOMENT: pa.timestamp("us", "UTC"),
    SPAN: pa.duration("us"),
    MONEY: pa.float64(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "Int64": pa.int64(),
    "Float64": pa.float64(),
}
"""By dtype of a column."""
ID = pa.field("execution_id", TYPES[TEXT])


def schema_of(columns: Columns) -> Any:
    """Return the fields of the table of a frame."""
    return pa.schema([(name, TYPES[column.dtype]) for name, column in columns.items()])


def table_of(frame: pd.DataFrame, schema: Any = None) -> Any:
    """Return a frame as a table; without a schema it is that of the frame's dtypes."""
    wanted = schema or pa.schema([(name, TYPES[str(frame[name].dtype)]) for name in frame])
    return pa.table([_column(frame[field.name], field.type) for field in wanted], schema=wanted)


def events_table(columns: Columns, table: EventTable, schema: Any) -> Any:
    """Return events as a table."""
    # Without pandas, of which a short log's frame is half the time.
    arrays = [
        table.payloads.texts()
        if name == "data"
        else _column(whole_column(column, name, table), schema.field(name).type)
        for name, column in columns.items()
    ]
    return pa.table(arrays, schema=schema)


def named(execution_id: str, table: Any) -> Any:
    """Return a table with the execution that it is of in front."""
    ids = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), len(table)), pa.array([execution_id]))
    return table.add_column(0, ID, ids.cast(ID.type))


def _column(values: Any, kind: Any) -> Any:
    """Return an array, or a Series, as one of Arrow."""
    if values.dtype == "object":
        return _json(values)
    if isinstance(values, pd.Series) and isinstance(values.array, Payloads):
        return values.array.texts()
    made = pa.array(values, from_pandas=True)
    return made if made.type == kind else made.cast(kind)


def _json(values: Iterable[Any]) -> Any:
    return pa.array([None if value is None else _text_of(value) for value in values], TYPES[ANYTHING])


def _text_of(value: Any) -> str:
    """Return a value as JSON; what cannot be recorded, being of a person's own class, as its text."""
    try:
        return encode_shown(normalize(value)).decode()
    except UnstorableValueError:
        return json.dumps(str(value))
