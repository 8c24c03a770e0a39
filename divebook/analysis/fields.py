"""What columns of frames take from payloads: a few fields, read by Arrow, without a dict for each payload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json

from divebook.events.catalog import PAYLOADS
from divebook.events.codec import decode_payload
from divebook.events.upcast import FORM
from divebook.store.pages import EventPage, places_of

TEXTS = ("operation_id", "operation_type", "name", "error", "trace")
NUMBERS = ("iteration_index", "duration", "visit")
LISTED, SPENT, GIVEN = "error_names", "usage", "parameters"
GIVEN_TEXTS = ("agent", "model")
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        *((name, pa.int64()) for name in (*NUMBERS, FORM)),
        (LISTED, pa.list_(pa.string())),
        (SPENT, pa.struct([])),
        (GIVEN, pa.struct([(name, pa.string()) for name in GIVEN_TEXTS])),
    ]
)
_BLOCK = 256 * 1024
_PARSE = json.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")


def fields_of(page: EventPage) -> dict[str, Any]:
    """Return what the payloads of a page say, an array for each field, null where one says nothing.

    Beside `TEXTS` and `NUMBERS`: ``error_type``, the first of the error's names; ``spent``, whether it has a usage; and
    `GIVEN_TEXTS` of the parameters.

    Raises
    ------
    CorruptStoreError, NewerStoreError
        A payload cannot be read.
    """
    found = _read(page)
    return _decoded(page) if found is None else found


def _read(page: EventPage) -> dict[str, Any] | None:
    """Return them as Arrow reads them; None if one holds something else than most do."""
    lines = page.lines()
    longest = int(np.diff(places_of(page.payloads)).max(initial=0))
    options = json.ReadOptions(block_size=max(_BLOCK, 2 * longest))
    try:
        table = json.read_json(pa.BufferReader(lines), options, _PARSE)
    except pa.ArrowInvalid:
        return None
    if len(table) != len(page.types) or table[FORM].null_count < len(table):
        return None
    said = {
        name: _declared(page, name, table[name].combine_chunks()) for name in (*TEXTS, *NUMBERS, LISTED, SPENT, GIVEN)
    }
    names, given = said.pop(LISTED), said.pop(GIVEN)
    return {
        **said,
        "error_type": _first(names),
        SPENT: said[SPENT].is_valid(),
        **{name: pc.struct_field(given, name) for name in GIVEN_TEXTS},
    }


def _declared(page: EventPage, name: str, values: Any) -> Any:
    """Return a field of those events whose type has it, with the default of their class where nothing is said."""
    kinds = [PAYLOADS[kind] for kind in page.types.dictionary.to_pylist()]
    has = np.array([name in kind.field_names for kind in kinds], dtype=bool)[page.types.indices]
    if values.null_count < len(values) and not has.all():
        foreign = values.is_valid().to_numpy(zero_copy_only=False) & ~has
        if foreign.any():
            values = pc.if_else(pa.array(~foreign), values, pa.scalar(None, values.type))
    for number, kind in enumerate(kinds):
        default = next((entry.default for entry in fields(kind) if entry.name == name), None)
        if default is not None and default is not MISSING:
            unsaid = (page.types.indices.to_numpy() == number) & values.is_null().to_numpy(zero_copy_only=False)
            if unsaid.any():
                values = pc.if_else(pa.array(unsaid), pa.scalar(default, values.type), values)
    return values


def _first(lists: Any) -> Any:
    """Return the first of each list; null where there is none."""
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    if not lengths.any():
        return pa.nulls(len(lists), pa.string())
    begins = np.cumsum(lengths) - lengths
    return lists.flatten().take(pa.array(begins, mask=lengths == 0))


def _decoded(page: EventPage) -> dict[str, Any]:
    """Return them from the payloads themselves."""
    payloads = zip(page.types.to_pylist(), page.payloads.to_pylist(), strict=True)
    said: list[Mapping[str, Any]] = [decode_payload(kind, raw).to_data() for kind, raw in payloads]
    given = [each.get(GIVEN) or {} for each in said]
    return {
        **{name: pa.array([each.get(name) for each in said], pa.string()) for name in TEXTS},
        **{name: pa.array([each.get(name) for each in said], pa.int64()) for name in NUMBERS},
        "error_type": pa.array([next(iter(each.get(LISTED) or ()), None) for each in said], pa.string()),
        SPENT: pa.array([SPENT in each for each in said]),
        # Of actions these may be anything: texts, as a column of texts makes of it.
        **{
            name: pa.array(pd.Series([each.get(name) for each in given], dtype="str"), pa.string())
            for name in GIVEN_TEXTS
        },
    }
