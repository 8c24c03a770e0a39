"""What code asks for at a place of an execution: an operation, in the form in which it is compared with the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from divebook.engine.operations import Place
from divebook.events.codec import short_hash
from divebook.events.values import normalize
from divebook.execution.divergence import operation_text


class Wanted(NamedTuple):
    """The operation that code wants at a place: what is compared with the log."""

    place: Place
    operation_id: str
    """That of the place."""
    operation_type: str
    parameters: Any
    """In the form in which the log holds them."""
    digest: str

    @staticmethod
    def of(place: Place, operation_type: str, parameters: Mapping[str, Any], known: Collection[int] = ()) -> Wanted:
        """Return an operation by its type and parameters, of which some are `known`; raises `UnstorableValueError`."""
        plain = normalize(parameters, "parameters", known)
        digest = short_hash(plain, "parameters")
        return tuple.__new__(Wanted, (place, place.operation_id, operation_type, plain, digest))

    def __str__(self) -> str:
        return operation_text(self.operation_type, self.parameters)
