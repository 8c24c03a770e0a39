"""Conversion of Arrow arrays to an IPC stream and back, and recording of pyarrow's tables.

The arrays of one value may have different lengths. They are written as one record batch with a single row, in which
each array is one cell of a list type: the arrays ``[1, 2, 3]`` and ``["a"]`` become the row ``([1, 2, 3], ["a"])``. So
there is one stream, without metadata of a library that would make the bytes of equal values differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from divebook.errors import UnstorableValueError
from divebook.events.arrow.foreign import Arrow
from divebook.events.recorded import Normalize


def write_arrays(arrays: Sequence[Any]) -> bytes:
    """Write Arrow arrays, which may have different lengths, to one IPC stream, and return the stream."""
    # Offsets [0, length] make one list cell of the whole array, without a copy of it.
    columns = [pa.LargeListArray.from_arrays(pa.array([0, len(array)], pa.int64()), array) for array in arrays]
    batch = pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])
    return _ipc_stream(batch.schema, [batch])


def read_arrays(stream: bytes) -> list[Any]:
    """Return the Arrow arrays in an IPC stream. Their memory must not be written to."""
    table = _read_table(stream)
    return [column.chunk(0).values for column in table.columns]


def _ipc_stream(schema: Any, batches: Sequence[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _read_table(stream: bytes) -> Any:
    with pa.ipc.open_stream(stream) as reader:
        table = reader.read_all()
    # Arrow does not check the offsets in a stream. Those of a forged stream point anywhere in memory: the process dies
    # (test_a_forged_value_is_refused_or_can_be_looked_at).
    table.validate(full=True)
    return table


def as_array(values: Any, path: str, type_: Any = None, mask: Any = None) -> Any:
    """Convert Python or numpy values to one Arrow array in contiguous memory.

    Raises
    ------
    UnstorableValueError
        Arrow cannot hold them.
    """
    try:
        array = pa.array(values, type=type_, mask=mask, from_pandas=False)
    except (pa.ArrowException, UnicodeError) as error:
        raise UnstorableValueError(path, f"Arrow cannot hold it: {error}") from error
    return in_one_piece(array)


def in_one_piece(array: Any) -> Any:
    """Return a chunked Arrow array as one contiguous array; return other arrays unchanged."""
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def without_residue(array: Any) -> Any:
    """Return an Arrow array of numbers with zeros in the memory of its missing values, so that equal arrays have equal
    bytes.
    """
    if not array.null_count:
        return array
    # The bytes behind a missing value are arbitrary. The mask of the original says again which values are missing.
    filled = array.fill_null(pa.scalar(0).cast(array.type))
    valid = array.is_valid().buffers()[1]
    return pa.Array.from_buffers(array.type, len(array), [valid, filled.buffers()[1]])


# --- tables --------------------------------------------------------------------------------------------------------


def record_table(table: Any, path: str, _normalize: Normalize) -> Arrow:
    """Return the recorded form of a pyarrow table, in which a log stores it, with the table's metadata."""
    try:
        content = _ipc_stream(table.schema, table.combine_chunks().to_batches())
    except pa.ArrowException as error:
        raise UnstorableValueError(path, f"Arrow cannot write it: {error}") from error
    return Arrow("pyarrow.Table", table.shape, {}, content)


def open_value(stored: Arrow) -> Any:
    """Build a pyarrow table from its recorded form (the form in which a log stores it)."""
    return _read_table(stored.stream)


def rows(table: Any) -> Any:
    """Return a pyarrow table as a list of records."""
    return table.to_pylist()
