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
from divebook.store.pages import EventPage

TEXTS = ("operation_id", "error", "trace")
"""Texts that differ from event to event."""
NAMES = ("operation_type", "name")
"""Texts that come again and again."""
NUMBERS = ("iteration_index", "duration", "visit")
LISTED, SPENT, GIVEN = "error_names", "usage", "parameters"
GIVEN_NAMES = ("agent", "model")
ERROR_TYPE = "error_type"
KINDS = {
    **dict.fromkeys(TEXTS, pa.large_string()),
    **dict.fromkeys((*NAMES, ERROR_TYPE, *GIVEN_NAMES), pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys(NUMBERS, pa.int64()),
    SPENT: pa.bool_(),
}
"""The fields that payloads are asked for, and what a column of each is made of."""
_READ = {
    **dict.fromkeys(TEXTS, pa.large_string()),
    **dict.fromkeys(NAMES, pa.string()),
    **dict.fromkeys(NUMBERS, pa.int64()),
    LISTED: pa.list_(pa.string()),
    SPENT: pa.struct([]),
    GIVEN: pa.struct([(name, pa.string()) for name in GIVEN_NAMES]),
}
"""As Arrow reads them."""


def fields_of(page: EventPage) -> dict[str, Any]:
    """Return what the payloads of a page say, an array for each field that they may have, null where one says none.

    Beside `TEXTS`, `NAMES` and `NUMBERS`: ``error_type``, the first of the error's names; ``usage``, whether it has
    one; and `GIVEN_NAMES` of the parameters.

    Raises
    ------
    CorruptStoreError, NewerStoreError
        A payload cannot be read.
    """
    kinds = [PAYLOADS[kind] for kind in page.types.dictionary.to_pylist()]
    asked = {name: kind for name, kind in _READ.items() if any(name in each.field_names for each in kinds)}
    if not asked:
        return {}
    said = _read(page, asked)
    return {name: _as_kept(values, KINDS[name]) for name, values in (_decoded(page) if said is None else said).items()}


def _as_kept(values: Any, kind: Any) -> Any:
    return values.dictionary_encode() if pa.types.is_dictionary(kind) else values.cast(kind)


def _read(page: EventPage, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields `asked` for as Arrow reads them; None if one holds something else than most do."""
    lines = page.lines()
    parse = json.ParseOptions(
        explicit_schema=pa.schema([*asked.items(), (FORM, pa.int64())]), unexpected_field_behavior="ignore"
    )
    try:
        options = json.ReadOptions(block_size=lines.size + 1, use_threads=False)
        table = json.read_json(pa.BufferReader(lines), options, parse)
    except pa.ArrowInvalid:
        return None
    if len(table) != len(page.types) or table[FORM].null_count < len(table):
        return None
    said = {name: _declared(page, name, table[name].combine_chunks()) for name in asked}
    if LISTED in said:
        said[ERROR_TYPE] = _first(said.pop(LISTED))
    if GIVEN in said:
        given = said.pop(GIVEN)
        said |= {name: pc.struct_field(given, name) for name in GIVEN_NAMES}
    if SPENT in said:
        said[SPENT] = said[SPENT].is_valid()
    return said


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
        **{name: pa.array([each.get(name) for each in said], _READ[name]) for name in (*TEXTS, *NAMES, *NUMBERS)},
        ERROR_TYPE: pa.array([next(iter(each.get(LISTED) or ()), None) for each in said], pa.string()),
        SPENT: pa.array([SPENT in each for each in said]),
        # Of actions these may be anything: texts, as a column of texts makes of it.
        **{
            name: pa.array(pd.Series([each.get(name) for each in given], dtype="str"), pa.string())
            for name in GIVEN_NAMES
        },
    }
