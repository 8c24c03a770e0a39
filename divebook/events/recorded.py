"""Values in the form in which the log holds them, where that is not the value itself.

A `Recorded` value never changes and needs no library: it lies in events and in the state as it lies in the log, and is
made into what it stands for (a DataFrame, a dataclass) only at the border to a user's code, by `opened`, anew every
time. So what code receives is the same whether it ran now or was answered from the log, nothing that code does to it
reaches the record, and a log can be read where the class or library is not at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, ClassVar, TypeAlias

from divebook.errors import UnopenableValueError
from divebook.events.bulk import MANY, collector_resting

TAG = "$type"
ATOMS = frozenset({str, int, float, bool, type(None)})

Normalize: TypeAlias = Callable[[Any, str], Any]
"""A value and its path to what the log holds of it; raises `UnstorableValueError`."""


class BigInt(int):
    """An integer that JSON readers would round; written as text."""


class NonFinite(float):
    """A float that JSON has no word for: nan, inf, -inf."""


class TaggedDict(dict[str, Any]):
    """A dict with a key that looks like our own tag."""


class Recorded(ABC):
    """What the log holds of a value that is not plain data; `open` makes the value again."""

    __slots__ = ()
    tag: ClassVar[str]
    """Stands under ``$type`` in the log."""

    @abstractmethod
    def data(self) -> Any:
        """Return what stands under ``value`` in the log."""

    @abstractmethod
    def open(self) -> Any:
        """Make the value again.

        Raises
        ------
        UnopenableValueError
            Its class is not allowed in this process or has changed, or its library is missing.
        """

    @abstractmethod
    def summary(self) -> str:
        """Return a few words that stand for the value where people look."""

    @abstractmethod
    def plain(self) -> Any:
        """Return it as scripts see it; raises ValueError with advice where that cannot be."""

    def least_bytes(self) -> int:
        """Return how many bytes it takes at least in the log, as far as that is known without writing it."""
        return 0

    def inside(self) -> Any:
        """Return the recorded values that it consists of, as a list or mapping; None where it has none."""
        return None

    def parts(self, change: Callable[[Any], Any]) -> Recorded:  # noqa: ARG002 - for those that have parts
        """Return itself with `change` applied to what it holds, where that is recorded part by part."""
        return self

    def __repr__(self) -> str:
        return self.summary()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recorded) and self.tag == other.tag and bool(self.data() == other.data())

    def __hash__(self) -> int:
        return hash((type(self), self.summary()))


class Container(Recorded):
    """A tuple, a set, or a mapping that JSON cannot represent: it comes back as the same type.

    A mapping is a list of pairs, so its keys may be of any kind and their order survives.
    """

    __slots__ = ("items", "tag")

    def __init__(self, tag: str, items: list[Any]) -> None:
        self.tag, self.items = tag, items  # type: ignore[misc]

    @property
    def is_mapping(self) -> bool:
        """Whether its items are pairs."""
        return self.tag not in SEQUENCES

    def data(self) -> Any:
        """Return the items; a mapping's are pairs."""
        return self.items

    def open(self) -> Any:
        """Return the tuple, set or mapping."""
        try:
            return CONTAINERS[self.tag](opened(self.items))
        except TypeError as error:  # an unhashable part, in a log that was edited by hand
            raise UnopenableValueError(self.tag, f"it cannot be made again: {error}") from error

    def plain(self) -> Any:
        """Return a list, or a mapping."""
        if not self.is_mapping:
            return self.items
        return {_plain_key(key): item for key, item in (pair.items for pair in self.items)}

    def summary(self) -> str:
        """Return how many items it has."""
        return f"{self.tag} of {len(self.items):,}"

    def inside(self) -> Any:
        """Return the items; a mapping's are pairs."""
        return self.items

    def least_bytes(self) -> int:
        """Return the lower limit of its size: each item takes a character and a comma."""
        return 2 * len(self.items)

    def parts(self, change: Callable[[Any], Any]) -> Recorded:
        """Return itself with its items changed."""
        return Container(self.tag, change(self.items))


def _plain_key(key: Any) -> Any:
    if isinstance(key, Container):
        return tuple(map(_plain_key, key.items))
    if not isinstance(key, Recorded):
        return key
    try:
        plain = key.plain()
    except ValueError:  # a range that is too long for a list
        return key.summary()
    return plain if isinstance(plain, Hashable) else key.summary()


SEQUENCES: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
FACTORIES: dict[str, Callable[[], Any] | None] = {
    "None": None,
    **{factory.__name__: factory for factory in (int, float, complex, str, bytes, bool, list, tuple, dict, set)},
}
"""Default factories of a `defaultdict` that have a name in the log."""
CONTAINERS: dict[str, Callable[[Iterable[Any]], Any]] = {
    **SEQUENCES,
    "map": dict,
    "OrderedDict": OrderedDict,
    "Counter": lambda pairs: Counter(dict(pairs)),
    **{f"defaultdict({name})": partial(defaultdict, factory) for name, factory in FACTORIES.items()},
}
"""Constructors by tag."""


def opened(value: Any, *, lenient: bool = False) -> Any:
    """Return a copy of recorded data for a user's code: fresh lists and dicts, and in them the values themselves.

    Parameters
    ----------
    lenient
        Leave what cannot be made again as it is recorded, instead of raising.

    Raises
    ------
    UnopenableValueError
        See `Recorded.open`.
    """
    return _opened(value, lenient)


def _opened(value: Any, lenient: bool) -> Any:  # noqa: FBT001 - it calls itself for every part of a value
    kind = type(value)
    if kind in ATOMS:
        return value
    if kind is dict or kind is TaggedDict:
        fresh = value.copy()
        for key, item in value.items():
            if type(item) not in ATOMS:
                fresh[key] = _opened(item, lenient)
        return fresh
    if kind is list:
        if len(value) < MANY:
            return [item if type(item) in ATOMS else _opened(item, lenient) for item in value]
        with collector_resting():
            return [_opened(item, lenient) for item in value]
    if isinstance(value, Recorded):
        return _opened_or_kept(value) if lenient else value.open()
    return _builtin(value)


def _opened_or_kept(value: Recorded) -> Any:
    try:
        return value.open()
    except UnopenableValueError:
        return value


def _builtin(value: Any) -> Any:
    """Return a number without the mark that it needs in the log."""
    if isinstance(value, BigInt):
        return int(value)
    return float(value) if isinstance(value, NonFinite) else value
