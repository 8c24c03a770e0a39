"""``python -m tests.execution.any_values [VALUES]``: random values of all kinds take every way through the engine.

A value is an input, the argument and result of a call in a thread and in another process, the input and output of a
child, a variable, a signal and an answer. Then it is read again from a file, an export, a queue's worker, a fork, a
what-if, and from Postgres where there is one. It has the same type and value everywhere; a value that cannot be
recorded is refused before the call that it is passed to, and before anything is started.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, auto
from fractions import Fraction
from importlib.util import find_spec
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Interface
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from pydantic import BaseModel

from divebook import Environment, MemoryStore, Worker, allow
from divebook.errors import UnstorableValueError
from divebook.workflow import step, workflow
from divebook.workflow.functions import WORKFLOW_FUNCTIONS

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
        ]
    )()


def moment(chance):
    """Return a datetime: naive, at an offset, or in a zone, also within the hour that comes twice."""
    zone = chance.choice([None, UTC, timezone(timedelta(minutes=90)), *map(ZoneInfo, ZONES)])
    day = chance.choice([(2026, 10, 25), (2026, 3, 29), (2026, 7, 1), (1901, 1, 1)])
    return datetime(*day, chance.randint(0, 23), 30, 0, 7, tzinfo=zone, fold=chance.randint(0, 1))


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
            lambda: tuple(several()),
            lambda: {name: inner() for name in texts()},
            lambda: {scalar(chance): inner() for _ in range(3)},
            lambda: {(scalar(chance), 1): inner()},
            lambda: {scalar(chance) for _ in range(3)},
            lambda: frozenset([scalar(chance), (1, scalar(chance)), frozenset({2})]),
            lambda: OrderedDict((name, inner()) for name in texts()),
            lambda: Counter({scalar(chance): chance.randint(-2, 5) for _ in range(3)}),
            lambda: defaultdict(chance.choice([None, int, list, dict]), {scalar(chance): inner()}),
            lambda: Place("p", inner()),
            lambda: Point(inner(), (inner(),)),
            lambda: Item(sku="s", more=inner()),
            lambda: pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=[3, 4]),
            lambda: np.array([[1.5, 2.5]]),
        ]
    )()


def refused(chance):
    """Return a value that cannot be recorded, perhaps inside others."""
    odd = chance.choice(
        [
            object(),
            deque([1]),
            bytearray(b"x"),
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


COMPARISONS = (
    (pd.DataFrame, lambda one, other: one.equals(other) and one.index.equals(other.index)),
    (np.ndarray, lambda one, other: one.dtype == other.dtype and bool((one == other).all())),
    (dict, same_mappings),
    ((list, tuple), same_items),
    ((set, frozenset), lambda one, other: one == other and sorted(map(repr, one)) == sorted(map(repr, other))),
    (BaseModel, lambda one, other: same(one.__dict__, other.__dict__)),
    (Point, lambda one, other: same((one.x, one.tags), (other.x, other.tags))),
    ((datetime, time), lambda one, other: (repr(one), one.fold) == (repr(other), other.fold)),
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
"""Workflow functions of this module: `tests/conftest.py` keeps them for the first module that imports this one."""


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
    environment.export_log(live.id, file, overwrite=True)
    with Environment(store=MemoryStore()) as other:
        faults.compare_outputs(f"{kind} imported", values, other.import_log(file).outputs)
    with Environment(store=location) as later:
        again = later.execution(live.id)
        faults.compare_outputs(f"{kind} read again", values, again.outputs)
        faults.compare(f"{kind} variables", values, again.variables["result"]["inputs"])
        faults.compare(f"{kind} inputs", values, again.inputs["values"])
        if (check := later.verify(live.id)).divergence is not None:
            faults.append(f"{kind} replay: {check.divergence}")
    forked = environment.fork(live.id, 2)
    faults.compare_outputs(f"{kind} fork", values, run_to_end(forked, values).outputs)
    what_if = environment.what_if(live.id, {"inputs": {"values": values[::-1]}})
    faults.compare(f"{kind} what-if", values[::-1], what_if.execution.outputs["result"]["inputs"])
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
        if environment.executions():
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
