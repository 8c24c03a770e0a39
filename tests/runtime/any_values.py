"""``python -m tests.runtime.any_values [VALUES]``: random values of all kinds take every way through the engine.

A value is an input, the argument and result of a call in a thread and in another process, the input and output of a
child, a variable, a signal and an answer. Then it is read again from a file, an export, a queue's worker, a fork, a
what-if, and from Postgres where there is one. It has the same type and value everywhere; a value that cannot be
recorded is refused before the call that it is passed to, and before anything is started.
"""

import argparse
import math
import random
import re
import sys
import tempfile
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from contextlib import ExitStack
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from fractions import Fraction
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Interface
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID
from zoneinfo import TZPATH, ZoneInfo

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, RootModel, computed_field

from divebook import Environment, allow
from divebook.definitions import step, workflow
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.errors import UnstorableValueError
from divebook.queues import Worker
from divebook.stores import MemoryStore

BATCH = 20
"""Values of one run."""
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "UTC")


@allow
class Colour(Enum):
    RED = "red"
    PAIR = (1, 2)


@allow
class Size(IntEnum):
    SMALL = 1


@allow
class Rights(Flag):
    READ = auto()
    WRITE = auto()


@allow
class Place(NamedTuple):
    name: str
    spot: object = ()


@allow
@dataclass(frozen=True)
class Point:
    x: object
    tags: object = field(default_factory=tuple)


@allow
class Item(BaseModel):
    sku: str
    more: object = None


@allow
class Word(StrEnum):
    YES = "yes"


@allow
class Mode(IntFlag):
    READ = 1
    WRITE = 2


@allow
@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    x: object
    y: object = 1


@allow
@dataclass
class Scaled:
    x: int
    factor: InitVar[int] = 2
    product: int = field(init=False, default=0)

    def __post_init__(self, factor):
        self.product = self.x * factor


@allow
class Rich(BaseModel):
    model_config = ConfigDict(extra="allow")
    number: int = Field(default=1, alias="Number")
    _hidden: object = PrivateAttr(default=None)

    @computed_field
    def twice(self) -> int:
        """Return the double."""
        return 2 * self.number


@allow
class Numbers(RootModel[list[int]]):
    pass


Unknown = namedtuple("Unknown", "a")  # noqa: PYI024 - it was not given to allow()


class Own(dict):
    """A class of a user's own."""


def scalar(chance):
    """Return a value without parts, which can be an item of a set."""
    return chance.choice(
        [
            lambda: None,
            lambda: chance.random() < 0.5,
            lambda: chance.randint(-(2**70), 2**70),
            lambda: chance.randint(-5, 5),
            lambda: chance.choice([0.1, -0.0, 1e300, float("inf"), float("-inf"), chance.random()]),
            lambda: "".join(chance.choice("aé✓\n$ \u2028𝄞") for _ in range(chance.randint(0, 6))),
            lambda: chance.randbytes(chance.randint(0, 5)),
            lambda: Decimal(chance.randint(-(10**30), 10**30)).scaleb(-chance.randint(0, 9)),
            lambda: date(2026, chance.randint(1, 12), chance.randint(1, 28)),
            lambda: time(chance.randint(0, 23), 30, fold=chance.randint(0, 1)),
            lambda: timedelta(chance.randint(-99, 99), 1, chance.randint(0, 999)),
            lambda: moment(chance),
            lambda: UUID(int=chance.getrandbits(128)),
            lambda: Fraction(chance.randint(-9, 9), chance.randint(1, 9)),
            lambda: complex(chance.randint(-2, 2), chance.random()),
            lambda: chance.choice([Path("a/b"), PurePosixPath("/x"), PureWindowsPath("c:\\y")]),
            lambda: chance.choice([IPv4Address("10.0.0.1"), IPv6Address("::1"), IPv4Network("10.0.0.0/8")]),
            lambda: IPv6Interface("::1/64"),
            lambda: range(chance.randint(-5, 5), chance.randint(0, 9), chance.choice([-1, 1, 3])),
            lambda: chance.choice([Colour.RED, Colour.PAIR, Size.SMALL, Rights.READ, Rights.READ | Rights.WRITE]),
            lambda: chance.choice([ZoneInfo("Asia/Tokyo"), UTC, timezone(timedelta(hours=2)), timezone.min]),
            lambda: time(1, 2, tzinfo=zone(chance), fold=chance.randint(0, 1)),
            lambda: chance.choice([Word.YES, Mode.READ | Mode.WRITE, Mode(8), ~Mode.READ, Rights(0)]),
            lambda: chance.choice([IPv6Address("fe80::1%eth0"), range(10**30), date.max, date.min, timedelta.max]),
            lambda: Frozen(x=(1, Place("q")), y=chance.randint(0, 5)),
        ]
    )()


def zone(chance, offsets=(0, 3600, -5400, 61, 3600.000001)):
    """Return a time zone: none, at an offset with or without a name, or of the database."""
    offset = timedelta(seconds=chance.choice(offsets))
    fixed = chance.choice([timezone(offset), timezone(offset, "CET"), timezone(offset, "Zone ü")])
    return chance.choice([None, UTC, fixed, fixed, ZoneInfo(chance.choice(ZONES))])


def foreign(chance):
    """Return a scalar, array, series, index or frame of numpy or pandas."""
    day = pd.Timestamp(2026, 10, 25, 2, 30, fold=chance.randint(0, 1), tz=zone(chance, [0, 3600, -5400, 61]))
    series = pd.Series([1, "a", None, (1,), day], dtype=object, name=chance.choice([None, "s", ("s", 1), 3]))
    series.attrs = {"unit": (1, "m")}
    levels = pd.MultiIndex.from_arrays([[1.0, math.nan, 1.0], ["a", None, "b"]], names=["x", None])
    frame = pd.DataFrame({"a": [1.5, None, 2], "b": pd.Categorical(["u", None, "v"], ordered=True)}, index=levels)
    frame.attrs = {"made": datetime(2026, 1, 1, tzinfo=zone(chance))}
    return chance.choice(
        [
            day,
            pd.Timedelta("1 days 1ns"),
            pd.Period("2026Q1", freq="Q-MAR"),
            pd.Interval(1, 2.5, closed="both"),
            pd.NA,
            pd.NaT,
            np.datetime64(5, "25s"),
            np.timedelta64("NaT", "h"),
            np.array(1.5),
            np.array({"a": (1,)}, dtype=object),
            np.array(["2026", "NaT"], dtype="M8[D]"),
            np.array([(1, 2), None, "a"], dtype=object),
            np.empty((2, 0, 3), dtype=">i4"),
            np.array([1 + 2j, complex(math.nan, -0.0)]),
            np.array(["a", "bcd"]),
            series,
            pd.Series([1, None], dtype="Int8"),
            pd.Series(["a", None], dtype="string"),
            pd.Series([day]),
            pd.Series([1]).set_flags(allows_duplicate_labels=False),
            levels,
            levels[:1],
            pd.DatetimeIndex([day], name="at"),
            pd.date_range("2026", periods=3, freq="2D"),
            pd.interval_range(0, 3),
            pd.RangeIndex(1, 9, 3, name="q"),
            frame,
            frame.iloc[:0],
            pd.DataFrame(),
            pd.DataFrame(columns=["a", "a"]),
            pd.DataFrame(index=[1, 2]),
            pd.DataFrame([[1, 2, 3]], columns=[1, "a", None]).rename_axis(columns="z"),
            pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", 1), ("b", 2)])),
        ]
    )


def moment(chance):
    """Return a datetime: naive, at an offset, or in a zone, also within the hour that comes twice."""
    day = chance.choice([(2026, 10, 25), (2026, 3, 29), (2026, 7, 1), (1901, 1, 1)])
    return datetime(*day, chance.randint(0, 23), 30, 0, 7, tzinfo=zone(chance), fold=chance.randint(0, 1))


def value(chance, depth=3):
    """Return a value of any kind that can be recorded."""
    if depth == 0 or chance.random() < 0.3:
        return scalar(chance)

    def inner():
        return value(chance, depth - 1)

    def several(most=3):
        return [inner() for _ in range(chance.randint(0, most))]

    def texts():
        return [chance.choice(["a", "b", "$type", "ünder", ""]) for _ in range(chance.randint(0, 3))]

    return chance.choice(
        [
            several,
            lambda: Decimal(chance.choice(["NaN", "-NaN12", "sNaN", "-sNaN7", "-Infinity", "-0.00", "1e-999999"])),
            lambda: complex(chance.choice([math.nan, -0.0, math.inf]), -0.0),
            lambda: tuple(several()),
            lambda: {name: inner() for name in texts()},
            lambda: {scalar(chance): inner() for _ in range(3)},
            lambda: {(scalar(chance), 1): inner()},
            lambda: {scalar(chance) for _ in range(3)},
            lambda: frozenset([scalar(chance), (1, scalar(chance)), frozenset({2})]),
            lambda: OrderedDict((name, inner()) for name in texts()),
            lambda: Counter({scalar(chance): chance.randint(-2, 5) for _ in range(3)}),
            lambda: defaultdict(chance.choice([None, int, list, deque, Counter]), {scalar(chance): inner()}),
            lambda: deque(several(), maxlen=chance.choice([None, 3])),
            lambda: bytearray(chance.randbytes(chance.randint(0, 5))),
            lambda: Place("p", inner()),
            lambda: Point(inner(), (inner(),)),
            lambda: Item(sku="s", more=inner()),
            lambda: rich(chance, inner()),
            lambda: Numbers([1, chance.randint(2, 9)]),
            lambda: Scaled(chance.randint(1, 3), 5),
            lambda: foreign(chance),
            lambda: foreign(chance),
            lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[3, 4]),
            lambda: np.array([[1.5, 2.5]]),
        ]
    )()


def rich(chance, value):
    """Return a model with an alias, fields beyond its own, and a private attribute."""
    made = Rich(Number=chance.randint(1, 3), more=value, other=(1,))
    made._hidden = chance.choice([None, (1, "a")])
    return made


def zone_from_file(key):
    """Return a zone whose rules are of a file: its key need not be that of the database."""
    with Path(TZPATH[0], "Europe/Berlin").open("rb") as file:
        return ZoneInfo.from_file(file, key)


def refused(chance):
    """Return a value that cannot be recorded, perhaps inside others."""
    odd = chance.choice(
        [
            object(),
            UserList([1]),
            MappingProxyType({}),
            UserDict(a=1),
            Own(a=1),
            Unknown(1),
            defaultdict(lambda: 1),
            iter([1]),
            len,
            Point,
            "\ud800",
            10**5000,
            memoryview(b"x"),
            slice(1, 2),
            pd.Timestamp("2026-01-01", tz=timezone(timedelta(seconds=0.5))),
            re.compile("a"),
            ...,
            zone_from_file(None),
            datetime(2026, 1, 1, tzinfo=zone_from_file("Asia/Tokyo")),
            time(1, tzinfo=zone_from_file("Asia/Tokyo")),
            pd.Timestamp("2026-01-01", tz=zone_from_file("Asia/Tokyo")),
            np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]),
            np.ma.array([1, 2], mask=[0, 1]),
            np.dtype("i4"),
            np.longdouble(1),
            pd.Categorical(["a"]),
            pd.offsets.MonthEnd(2),
        ]
    )
    return chance.choice([lambda: odd, lambda: [1, odd], lambda: {"a": (odd,)}, lambda: {1: odd}])()


def same(one, other):
    """Return whether two values have the same type and are equal, part by part."""
    if type(one) is not type(other):
        return False
    compare = next((compare for kinds, compare in COMPARISONS if isinstance(one, kinds)), None)
    return repr(one) == repr(other) if compare is None else compare(one, other)


def same_items(one, other):
    return len(one) == len(other) and all(map(same, one, other))


def same_mappings(one, other):
    factories = [getattr(each, "default_factory", None) for each in (one, other)]
    pairs = ([list(pair) for pair in each.items()] for each in (one, other))
    return factories[0] is factories[1] and same_items(*map(list, pairs))


def same_frames(one, other):
    """Compare frames, series and indexes in everything that pandas knows of them."""
    check = {pd.DataFrame: pd.testing.assert_frame_equal, pd.Series: pd.testing.assert_series_equal}.get(type(one))
    try:
        if check is None:
            pd.testing.assert_index_equal(one, other, exact=True)
            zones = [getattr(index, "tz", None) for index in (one, other)]
            levels = [getattr(index, "levels", ()) for index in (one, other)]
            return getattr(one, "freq", 0) == getattr(other, "freq", 0) and same(*zones) and same_items(*levels)
        check(one, other, check_exact=True, check_flags=True, check_freq=True)
    except AssertionError:
        return False
    if check is pd.testing.assert_frame_equal:
        cells = [[value.columns, *(value.iloc[:, at] for at in range(value.shape[1]))] for value in (one, other)]
    else:
        cells = [[value.name, *value] for value in (one, other)]
    return same(one.attrs, other.attrs) and same(one.index, other.index) and same_items(*cells)


def same_arrays(one, other):
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    if one.dtype == object:
        return same_items(*(list(value.ravel()) for value in (one, other)))
    return one.tobytes() == other.tobytes()


def parts_of_model(value):
    return [value.__dict__, value.__pydantic_extra__, value.__pydantic_private__, value.model_fields_set]


def same_models(one, other):
    return same_items(parts_of_model(one), parts_of_model(other))


def parts_of_moment(value):
    own = (repr(value), value.fold, value.utcoffset(), value.tzname(), type(value.tzinfo))
    return (*own, getattr(value, "unit", None))


def same_moments(one, other):
    return parts_of_moment(one) == parts_of_moment(other)


COMPARISONS = (
    (pd.api.typing.NaTType, lambda one, other: one is other),
    ((pd.DataFrame, pd.Series, pd.Index), same_frames),
    (np.ndarray, same_arrays),
    (dict, same_mappings),
    (deque, lambda one, other: one.maxlen == other.maxlen and same_items(one, other)),
    ((list, tuple), same_items),
    ((set, frozenset), lambda one, other: one == other and sorted(map(repr, one)) == sorted(map(repr, other))),
    (BaseModel, same_models),
    (Point, lambda one, other: same((one.x, one.tags), (other.x, other.tags))),
    ((datetime, time), same_moments),
)
"""By kind of value, how two of one type are compared; the first that fits counts."""


@step
def echo(value):
    """Return what it is passed."""
    return value


@step(executor="process")
def elsewhere(value):
    """Return what it is passed, in another process."""
    return value


@workflow
async def inner_values(ctx, values):
    """Return what it is passed, as a child."""
    return values


@workflow
async def carried(ctx, values, processes):
    """Pass each value through calls, and all of them through a child, a signal and an answer."""
    threads = [await echo(value) for value in values]
    others = await ctx.gather(*[elsewhere(value) for value in values]) if processes else threads
    child = await ctx.run("inner_values", {"values": values})
    sent = await ctx.wait_signal("values")
    return {"threads": threads, "processes": others, "child": child["result"], "signal": sent, "inputs": values}


_REGISTERED = {name: WORKFLOW_FUNCTIONS[name] for name in ("inner_values", "carried")}
"""Workflow functions of this module: `conftest.py` keeps them for the first module that imports this one."""


class Faults(list):
    """Values that came back otherwise, each with its way."""

    def compare(self, way, before, after):
        if not same(before, after):
            at = next((pair for pair in zip(before, after, strict=False) if not same(*pair)), (before, after))
            self.append(f"{way}: {at[0]!r:.300} -> {at[1]!r:.300}")

    def compare_outputs(self, way, values, outputs):
        result = outputs.get("result")
        if result is None:
            self.append(f"{way}: no result")
            return
        for name, found in result.items():
            self.compare(f"{way}, {name}", values, found)


def run_to_end(execution, values):
    """Send the signal that a run waits for, and return it when it has ended."""
    execution.wait(60)
    assert execution.status == "waiting", f"{execution.status}: {execution.error}"
    execution.signal("values", values)
    return execution.wait(60)


def campaign(count, seed, folder, url=None, processes=True):
    """Let that many values take every way; return what came back otherwise, and how many were refused."""
    WORKFLOW_FUNCTIONS.update(_REGISTERED)
    chance, faults, refusals = random.Random(seed), Faults(), 0
    with ExitStack() as stack:
        locations = [f"sqlite:///{folder}/values.db", *([url] if url else [])]
        # One environment for each store: its processes take longer to start than all calls in them.
        environments = [stack.enter_context(Environment(store=location)) for location in locations]
        for start in range(0, count, BATCH):
            values = [value(chance) for _ in range(min(BATCH, count - start))]
            for location, environment in zip(locations, environments, strict=True):
                check_ways(faults, environment, location, values, Path(folder, f"{start}.jsonl"), processes)
    for _ in range(max(count // 10, 14)):
        refusals += is_refused(faults, refused(chance))
    return faults, refusals


def check_ways(faults, environment, location, values, file, processes):
    """Run the values, and read them again in every way that there is."""
    kind, inputs = location.partition(":")[0], {"values": values, "processes": processes}
    live = run_to_end(environment.start("carried", inputs), values)
    faults.compare_outputs(f"{kind} live", values, live.outputs)
    environment.run_of(live.id).export(file, overwrite=True)
    with Environment(store=MemoryStore()) as other:
        faults.compare_outputs(f"{kind} imported", values, other.open(file, keep=True).outputs)
    with Environment(store=location) as later:
        again = later.run_of(live.id)
        faults.compare_outputs(f"{kind} read again", values, again.outputs)
        faults.compare(f"{kind} variables", values, again.variables["result"]["inputs"])
        faults.compare(f"{kind} inputs", values, again.inputs["values"])
        if (check := later.run_of(live.id).verify()).divergence is not None:
            faults.append(f"{kind} replay: {check.divergence}")
    forked = environment.run_of(live.id).fork(2)
    faults.compare_outputs(f"{kind} fork", values, run_to_end(forked, values).outputs)
    what_if = environment.run_of(live.id).what_if({"inputs": {"values": values[::-1]}})
    faults.compare(f"{kind} what-if", values[::-1], what_if.run.outputs["result"]["inputs"])
    queued = environment.enqueue("carried", inputs)
    with Worker(environment):
        queued.signal("values", values)
        faults.compare_outputs(f"{kind} queue", values, queued.wait(60).outputs)


def is_refused(faults, odd):
    """Return whether a value is refused before a run begins, and before a call is made."""
    calls = []

    @step
    def echo_once(value):
        calls.append(value)

    @workflow
    async def calling(ctx):
        await echo_once(odd)

    with Environment(store="memory:") as environment:
        try:
            environment.start("inner_values", {"values": odd})
        except UnstorableValueError:
            pass
        else:
            faults.append(f"accepted as an input: {odd!r:.100}")
        if environment.store.records():
            faults.append(f"begun with {odd!r:.100}")
        run = environment.start(calling).wait(60)
    if calls or run.status != "failed" or "cannot store" not in (run.error or ""):
        faults.append(f"called with {odd!r:.100}: {run.status}, {run.error}")
        return False
    return True


def main():
    """Run the campaign and print what came back otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("number", metavar="values", nargs="?", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        url = None
        if find_spec("psycopg"):
            from tests.postgres.server import is_available, postgres_server

            if is_available():
                url = stack.enter_context(postgres_server("fsync=off")).url()
        faults, refusals = campaign(given.number, given.seed, folder, url)
    sys.stdout.write("\n".join([*faults[:20], ""]))
    stores = "SQLite and Postgres" if url else "SQLite"
    sys.stdout.write(f"{given.number:,} values on {stores}, {len(faults)} came back otherwise; {refusals} refused\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
