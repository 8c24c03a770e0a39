"""Frames, arrays and pandas' own scalars in the log, as Arrow IPC; the door to pandas, polars, numpy and pyarrow.

A value is known by the module of its class, so that no library is imported only to look. Recording copies a frame
once, into the stream; log, state and store share that text. Opening copies it once more, into memory that its reader
may write to. Equal frames have equal bytes, so that a store keeps one of them.

This is the one place below the faces that knows pandas: frames are values like any other, and the code that writes
the log must know how to write them. The rules of the engine still see only `Recorded`.
"""

from divebook.events.arrow.foreign import LIBRARIES, Arrow, ForeignScalar, record_foreign

__all__ = ["LIBRARIES", "Arrow", "ForeignScalar", "record_foreign"]
