"""Recorded forms of frames, arrays and scalars of pandas, polars, numpy and pyarrow, as Arrow IPC streams.

A value is recognised by the module of its class, so this package imports no library only to look at a value. Recording
copies a frame once, into the stream; log, state and store share that text. Opening copies it once more, into memory
that user code may write to. Equal frames have equal bytes, so a store keeps only one of them. For example,
``pandas.DataFrame({"n": [1, 2]})`` is recorded as::

    {"$type": "arrow", "value": {
        "kind": "pandas.DataFrame",
        "shape": [2, 1],
        "layout": {"columns": {...}, "index": {"names": [null], "range": [0, 2, 1]},
                   "data": [{"numpy": "<i8", "at": 1}], "attrs": {}},
        "data": "<Arrow IPC stream in base64>"}}

Entry ``at`` is the number of an array in the stream. Entry ``columns`` describes the column labels in the same way.

Below the user interfaces, no other package uses pandas. The code that writes the log must be able to write frames,
since they are values like any others. The rules of the engine see only `Recorded`.
"""

from divebook.events.arrow.foreign import LIBRARIES, Arrow, ForeignScalar, record_foreign

__all__ = ["LIBRARIES", "Arrow", "ForeignScalar", "record_foreign"]
