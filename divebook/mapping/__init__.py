"""A function over the rows of a frame, as one execution: each row is paid for once, and those that failed again."""

from divebook.mapping.begin import PARALLEL, mapped
from divebook.mapping.mapped_rows import MappedRows

__all__ = ["PARALLEL", "MappedRows", "mapped"]
