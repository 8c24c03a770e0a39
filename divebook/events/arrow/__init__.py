"""Frames, arrays and pandas' own scalars in the log, as Arrow IPC; the door to pandas, polars, numpy and pyarrow.

A value is known by the module of its class, so that none of these libraries is imported only to look.
"""

from divebook.events.arrow.foreign import LIBRARIES, record_foreign
from divebook.events.arrow.stored import Arrow, Scalar

__all__ = ["LIBRARIES", "Arrow", "Scalar", "record_foreign"]
