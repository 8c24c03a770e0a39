"""What a step does about failure: try again, go another way, or have what it has done undone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from divebook.text import ranges
from divebook.workflow import kinds
from divebook.workflow.stored_form import Definition, json_value
from divebook.workflow.table import Key, require_numbers

_SECONDS = kinds.Number(ranges.SECONDS)


@dataclass(frozen=True, slots=True)
class Retry(Definition):
    """Try a failed step again, later and later.

    ``divebook keys Retry`` says what each of its fields means.

    Examples
    --------
    >>> Retry(attempts=4, seconds=0.5, factor=3).delay(2)
    1.5
    """

    short = (int,)
    attempts: Annotated[
        int,
        Key(
            "How often it is tried at most, the first time included; 3 by default.",
            kind=kinds.Number(ranges.COUNT),
            example="5",
        ),
    ] = 3
    seconds: Annotated[float, Key("The pause before the second attempt.", kind=_SECONDS, example="0.5")] = 1.0
    factor: Annotated[
        float, Key("By how much each further pause grows.", kind=kinds.Number(ranges.FACTOR), example="3")
    ] = 2.0
    max_seconds: Annotated[float, Key("The longest pause.", kind=_SECONDS, example="30")] = 60.0
    jitter: Annotated[
        float,
        Key(
            "The part of a pause, from 0 to 1, that chance may add, so that many do not come back at once.",
            kind=kinds.Number(ranges.FACTOR),
            example="0.2",
        ),
    ] = 0.1
    errors: Annotated[
        tuple[str, ...],
        Key(
            "Exceptions, or parts of messages, after which it is tried again; all by default. Where a connection broke "
            "or a time ran out the call may have gone through: it is made again if its function says "
            "``idempotent=True``, and else you are asked.",
            example="[TimeoutError, overloaded]",
        ),
    ] = ()

    def __post_init__(self) -> None:
        self._put(errors=tuple(self.errors))
        require_numbers(self)

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after that many failures, without jitter."""
        try:
            pause = self.seconds * self.factor ** max(0, failures - 1)
        except OverflowError:  # the pause has no limit of its own, and doubles every time
            pause = math.inf if self.seconds else 0.0
        return min(self.max_seconds, pause)


@dataclass(frozen=True, slots=True)
class Catch(Definition):
    """Go to another step when this one has failed for good.

    ``divebook keys Catch`` says what each of its fields means.
    """

    names = ("step", "store")
    short = (str,)
    step: Annotated[str, Key("The step to go to.", required="Catch needs a Step to go to", example="clean-up")]
    errors: Annotated[
        tuple[str, ...],
        Key("Exceptions, or parts of messages, that are caught; all by default.", example="[ToolError]"),
    ] = ()
    store: Annotated[
        str | None, Key("The variable that takes the error: its type, message, step and attempts.", example="failure")
    ] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(errors=tuple(self.errors))


@dataclass(frozen=True, slots=True)
class Rollback(Definition):
    """Call an action that undoes what a step has done, if the execution fails later or is cancelled.

    ``divebook keys Rollback`` says what each of its fields means.

    Examples
    --------
    >>> Rollback.of("Hotel.Cancel").action
    'Hotel.Cancel'
    """

    names = ("action",)
    short = (str,)
    action: Annotated[
        str, Key("The function to call.", required="Rollback needs an Action to call", example="Hotel.Cancel")
    ]
    parameters: Annotated[
        Mapping[str, Any],
        Key(
            "What it is given, filled in when the step has completed; `result` is what the step has given.",
            example="{Booking: $(result.id)}",
        ),
    ] = field(default_factory=dict)
    retry: Annotated[Retry | None, Key("How it is tried again after a failure.")] = None

    def __post_init__(self) -> None:
        Definition.__post_init__(self)
        self._put(parameters=json_value(self.parameters, "parameters"))


def catches(value: Catch | str | Sequence[Catch | str]) -> tuple[Catch, ...]:
    """Return one policy or several as a tuple."""
    listed = [value] if isinstance(value, Catch | str | Mapping) else value
    return tuple(Catch.of(entry) for entry in listed)
