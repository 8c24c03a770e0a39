"""Bounds: the budget of a run as one immutable value, used by the engine and by envelopes of pipelines.

A bound is a number, or None for no bound. 0 is a bound like any other. Only `max_depth` and `max_descendants` have a
default. The constructor and `Bounds.read` validate the values; `Bounds.read` takes the spellings of definitions too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import Any, Final, overload

from divebook.errors import BoundsError, did_you_mean, nearest
from divebook.text.arguments import DurationLike, expected_seconds, plain_seconds, suggest_arguments
from divebook.text.format import DURATION_PATTERN
from divebook.text.ranges import COUNT, COUNT_OR_ZERO, SECONDS, NumberRange

ARROW = "->"
ASK = "ask"
FAIL = "fail"
OF_AGENTS: Final = ("max_cost", "max_llm_calls", "max_tokens", "on_exhausted")
"""Names of the bounds that apply to one turn of an agent."""
DEFAULT_MAX_DEPTH: Final = 100
DEFAULT_MAX_DESCENDANTS: Final = 10_000
"""Default bounds of child executions: number of levels (`DEFAULT_MAX_DEPTH`), and total number."""
MOST_DOLLARS: Final = 10**15
"""Largest cost in dollars that `decimal` multiplies exactly in nanodollars."""
LEAST_DOLLARS: Final = Decimal("0.000000001")
NANODOLLARS: Final = 1_000_000_000
"""Nanodollars in a US dollar. Logs have costs in nanodollars, whose sums are exact."""


@suggest_arguments
@dataclass(frozen=True, slots=True, init=False)
class Bounds:
    """Budget of a run. ``Bounds()`` has no limits. `max_cost` may be any number, or a string such as ``"2.50"``.

    Before a model call begins, its highest possible cost is reserved: the tokens of its messages and `MaxTokens` of its
    agent (4,096 by default), at the price of its model. When the call ends, only its real usage counts. Usage that a
    provider reports for a failed call, such as an interrupted stream, counts too. If a call exceeds the budget only
    because of the reservations of running calls, it waits until one of them ends. If the call still exceeds the budget,
    a person is asked whether to raise the bound, or the execution fails. The message states the spent, reserved and
    required amounts.

    Raises
    ------
    BoundsError
        A value is not valid.

    Examples
    --------
    >>> Bounds.read({"MaxLLMCalls": 40, "max_cost": 2.5, "edges": {"review -> draft": 3}}).to_dict()
    {'max_llm_calls': 40, 'max_cost': '2.5', 'edges': {'review->draft': 3}}
    """

    max_iterations: int | None = None
    """Largest number of repetitions of loops. The first pass through a loop is not counted, so 0 permits only the first
    pass.
    """
    max_llm_calls: int | None = None
    """Largest number of model calls. 0 permits none."""
    max_agent_hops: int | None = None
    """Largest number of agent steps. 0 permits none."""
    max_tokens: int | None = None
    """Largest number of tokens of all model calls together, input and output."""
    max_cost: Decimal | None = None
    """Largest cost in US dollars."""
    max_seconds: float | None = None
    """Largest running time in seconds. Time without a running process, or spent waiting for people, does not count."""
    edges: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Largest number of times that each of these edges may be followed, by edge: ``{"from->to": 3}``. 0 forbids the
    edge.
    """
    max_repeats: int | None = None
    """Largest number of times in a row that a step may return the same output for the same inputs; at least 1."""
    max_depth: int | None = None
    """Largest number of levels of child executions. 0 permits no child.

    The default for an execution without a parent is `DEFAULT_MAX_DEPTH`. If `max_depth` or `max_descendants` is
    reached, no person is asked: a call that would start a further child execution fails.
    """
    max_descendants: int | None = None
    """Largest number of child executions on all levels together, including ended ones. 0 permits none.

    The default for an execution without a parent is `DEFAULT_MAX_DESCENDANTS`.
    """
    on_exhausted: str = ASK
    """Reaction to a reached bound: ``ask`` a person whether to raise it, or ``fail``."""

    def __init__(
        self,
        *,
        max_iterations: int | None = None,
        max_llm_calls: int | None = None,
        max_agent_hops: int | None = None,
        max_tokens: int | None = None,
        max_cost: Decimal | float | str | None = None,
        max_seconds: DurationLike | None = None,
        edges: Mapping[str, int] | None = None,
        max_repeats: int | None = None,
        max_depth: int | None = None,
        max_descendants: int | None = None,
        on_exhausted: str = ASK,
    ) -> None:
        values: dict[str, Any] = {
            "max_iterations": max_iterations,
            "max_llm_calls": max_llm_calls,
            "max_agent_hops": max_agent_hops,
            "max_tokens": max_tokens,
            "max_cost": None if max_cost is None else _read_amount("max_cost", max_cost),
            "max_seconds": plain_seconds(max_seconds),
            # A copy, because the fields of a frozen class must not change with the caller's mapping.
            "edges": _read_edges("edges", {} if edges is None else edges),
            "max_repeats": max_repeats,
            "max_depth": max_depth,
            "max_descendants": max_descendants,
            "on_exhausted": on_exhausted,
        }
        for name, value in values.items():
            # Only checked: fingerprints of definitions depend on the number as it was written, 90 or 90.0.
            if value is not None and name not in ("max_cost", "edges"):
                _READERS[name](name, value)
            # This is the only way to set a field of a frozen class.
            object.__setattr__(self, name, value)

    @classmethod
    def none(cls) -> Bounds:
        """Return bounds without any limit."""
        return cls()

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Bounds:
        """Validate bounds from a definition or an argument, and return them. An omitted key means no bound.

        Parameters
        ----------
        given
            Field names in snake_case or PascalCase (``max_llm_calls``, ``MaxLLMCalls``) with numbers. `max_cost` may be
            a string. `edges` maps ``"from->to"`` to a number. None means no bound.

        Raises
        ------
        BoundsError
            A key or value is not valid. The error describes the first one.
        """
        if not isinstance(given, Mapping):
            raise BoundsError("bounds", given, "give a mapping, for example {max_llm_calls: 40}")
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = _NAMES.get(key)
            if name is None:
                raise _unknown(key)
            # ``max_cost`` and ``MaxCost`` are the same bound.
            if name in values:
                raise BoundsError(key, value, f"{name} occurs twice; remove one of the two")
            values[name] = None if value is None else _READERS[name](key, value)
        # The field is a mapping and never None. Its default is the empty mapping, which means no bound.
        if values.get("edges", {}) is None:
            del values["edges"]
        return cls(**values)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Bounds:
        """Create bounds from the dict that `to_dict` returned.

        Raises
        ------
        BoundsError
            A key or value is not valid. The error describes the first one.
        """
        return cls.read(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the bounds that are not None as plain JSON. The cost is a string, so that it stays exact."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["max_cost"] = None if self.max_cost is None else str(self.max_cost)
        # Defaults are left out: None, no edges, and ``ask``.
        plain["edges"] = dict(self.edges) or None
        plain["on_exhausted"] = None if self.on_exhausted == ASK else self.on_exhausted
        return {name: value for name, value in plain.items() if value is not None}


def agent_bounds(value: Bounds | Mapping[str, Any]) -> Bounds:
    """Validate the bounds of one turn of an agent from a definition, and return them.

    Raises
    ------
    BoundsError
        A bound does not apply to a turn, such as a bound of loops.
    """
    bounds = value if isinstance(value, Bounds) else Bounds.read(value)
    for name in bounds.to_dict():
        if name not in OF_AGENTS:
            raise BoundsError(name, bounds.to_dict()[name], f"the bounds of an agent can be {', '.join(OF_AGENTS)}")
    return bounds


def json_schema(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the JSON schema of bounds in a definition, of all bounds or of those with some names."""
    properties: dict[str, Any] = {}
    patterns: dict[str, Any] = {}
    for name in _READERS if names is None else names:
        schema = {"anyOf": [_SCHEMAS[_READERS[name]], {"type": "null"}]}
        properties[_pascal_case(name)] = schema
        patterns[f"^{name}$"] = schema
    return {
        "type": "object",
        "properties": properties,
        "patternProperties": patterns,
        "additionalProperties": False,
    }


def edge_key(source: str, target: str) -> str:
    """Return the key of an edge in `Bounds.edges`, such as ``review->draft``."""
    return f"{source}{ARROW}{target}"


def exceeded_edge(bounds: Bounds, edge_counts: Mapping[str, int]) -> str | None:
    """Return the key of the first edge that was followed more often than its bound permits; None if no edge exceeds its
    bound.
    """
    # A bound is exceeded by the passage after the last permitted one, hence the comparison with ">".
    return next((edge for edge, limit in bounds.edges.items() if edge_counts.get(edge, 0) > limit), None)


# --- costs: logs count them in nanodollars, bounds and people in US dollars ------------------------------------------


def nanodollars(amount: Decimal | float) -> int:
    """Convert an amount in US dollars to whole nanodollars. The rest below one nanodollar is cut off.

    >>> nanodollars(0.1), nanodollars(Decimal("2.50"))
    (100000000, 2500000000)
    """
    # Converted through its text, because a binary fraction is not exact: `Decimal(0.1)` is not 0.1.
    exact = amount if isinstance(amount, Decimal) else Decimal(str(amount))
    return int(exact * NANODOLLARS)


def exact_dollars(cost: int) -> Decimal:
    """Convert nanodollars to US dollars without rounding, for bounds and sums."""
    return (Decimal(cost) / NANODOLLARS).normalize()


@overload
def dollars(cost: float) -> float: ...
@overload
def dollars(cost: float | None) -> float | None: ...
def dollars(cost: float | None) -> float | None:
    """Convert nanodollars to US dollars, for people and frames. None, an unknown cost, stays None.

    >>> dollars(25_000), dollars(None)
    (2.5e-05, None)
    """
    return None if cost is None else cost / NANODOLLARS


def _out_of_range(key: str, value: Any, expected: str, allowed: NumberRange) -> BoundsError:
    """Return the error about a value that is not a number, or is outside of a range. It names the nearest number."""
    nearest_number = ""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # `math.isfinite` fails for integers above 10**308.
    if isinstance(value, float) and not math.isfinite(value):
        is_number = False
    if is_number and allowed.least is not None:
        closest = min(max(value, allowed.least), allowed.most)
        nearest_number = f" (the nearest is {round(closest) if allowed.is_whole else closest})"
    return BoundsError(key, value, f"give {expected}{nearest_number}, or null for no bound")


def _read_count(key: str, value: Any) -> int:
    if not COUNT_OR_ZERO.fits(value):
        raise _out_of_range(key, value, str(COUNT_OR_ZERO), COUNT_OR_ZERO)
    return int(value)


def _read_positive(key: str, value: Any) -> int:
    if not COUNT.fits(value):
        raise _out_of_range(key, value, str(COUNT), COUNT)
    return int(value)


def _read_seconds(key: str, value: Any) -> float:
    seconds = plain_seconds(value)
    if not SECONDS.fits(seconds):
        raise _out_of_range(key, value, expected_seconds(SECONDS, seconds), SECONDS)
    return float(seconds)


def _read_amount(key: str, value: Decimal | float | str) -> Decimal:
    # A remaining budget, which the engine computes as a Decimal, may be smaller than the smallest cost of a definition.
    if isinstance(value, Decimal) and value.is_finite() and 0 < value < LEAST_DOLLARS:
        return value
    return _read_cost(key, value)


def _read_cost(key: str, value: Any) -> Decimal:
    try:
        # The decimal of the text "0.1" is exact. The decimal of the float would be 0.1000000000000000055... `str`
        # refuses an integer of more than 4,300 digits, which `Decimal` accepts.
        cost = Decimal(value) if isinstance(value, int) else Decimal(str(value))
    except InvalidOperation:
        cost = Decimal("NaN")
    # Costs are counted in whole nanodollars. A smaller cost would become 0, which permits no call.
    if isinstance(value, bool) or not cost.is_finite() or not 0 <= cost <= MOST_DOLLARS or 0 < cost < LEAST_DOLLARS:
        advice = f"give US dollars such as 2.50: a number from 0 to {MOST_DOLLARS:,}, in steps of {LEAST_DOLLARS:f}"
        raise BoundsError(key, value, f"{advice}, or null for no bound")
    return cost


def _require_mapping(key: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BoundsError(key, value, 'give a mapping such as {"review->draft": 3}')
    return value


def _read_edges(key: str, value: Any) -> dict[str, int]:
    edges: dict[str, int] = {}
    for edge, limit in _require_mapping(key, value).items():
        # "review -> draft" and "review->draft" are one edge.
        source, arrow, target = (part.strip() for part in str(edge).partition(ARROW))
        if not (source and arrow and target):
            raise BoundsError(key, edge, 'name an edge by its two steps, for example "review->draft"')
        name = edge_key(source, target)
        if name in edges:
            raise BoundsError(key, edge, f"{name} occurs twice; remove one of the two")
        edges[name] = _read_count(f"{key}[{name!r}]", limit)
    return edges


def _read_policy(key: str, value: Any) -> str:
    if value not in (ASK, FAIL):
        suggestion = did_you_mean(value, (ASK, FAIL)) if isinstance(value, str) else None
        raise BoundsError(key, value, f"write {ASK} or {FAIL}" + (f"; {suggestion}" if suggestion else ""))
    return str(value)


def _unknown(key: Any) -> BoundsError:
    suggestion = nearest(str(key), _NAMES)
    if suggestion:
        return BoundsError(str(key), None, f"there is no such bound; did you mean {suggestion}?")
    return BoundsError(str(key), None, f"there is no such bound; the bounds are {', '.join(sorted(_READERS))}")


_READERS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "max_iterations": _read_count,
    "max_llm_calls": _read_count,
    "max_agent_hops": _read_count,
    "max_tokens": _read_count,
    "max_cost": _read_cost,
    "max_seconds": _read_seconds,
    "edges": _read_edges,
    "max_repeats": _read_positive,
    "max_depth": _read_count,
    "max_descendants": _read_count,
    "on_exhausted": _read_policy,
}


_COST_IN_TEXT: Final = {"type": "string", "pattern": r"^\s*\+?[0-9_.]*[0-9][0-9_.]*([eE][-+]?[0-9]+)?\s*$"}
_SCHEMAS: Final[Mapping[Callable[[str, Any], Any], Mapping[str, Any]]] = {
    _read_count: COUNT_OR_ZERO.json_schema(),
    _read_positive: COUNT.json_schema(),
    _read_seconds: {"anyOf": [SECONDS.json_schema(), {"type": "string", "pattern": DURATION_PATTERN}]},
    _read_cost: {"anyOf": [{"type": "number", "minimum": 0, "maximum": MOST_DOLLARS}, _COST_IN_TEXT]},
    _read_edges: {
        "type": "object",
        "propertyNames": {"pattern": "\\S\\s*->\\s*\\S"},
        "additionalProperties": COUNT_OR_ZERO.json_schema(),
    },
    _read_policy: {"enum": [ASK, FAIL]},
}
"""JSON schema of the values that each reader accepts."""


def _pascal_case(name: str) -> str:
    # "max_llm_calls" -> "MaxLLMCalls".
    return "".join(word.upper() if word == "llm" else word.capitalize() for word in name.split("_"))


KEYS: Final = tuple(_pascal_case(name) for name in _READERS)
"""All keys of bounds in definition files."""

# {"max_cost": "max_cost", "MaxCost": "max_cost", ...}
_NAMES: Final = {name: name for name in _READERS} | dict(zip(KEYS, _READERS, strict=True))

DEFAULT_BOUNDS: Final = Bounds(max_iterations=3, max_llm_calls=10, max_agent_hops=21)
"""Bounds of a request whose envelope is used without a pipeline."""
