"""A value of each kind that a log can hold has its type and value in every place of a run: as an input, result of a
step, argument and result of an action, answer, variable and result of the run; live, resumed in another environment,
replayed, forked and imported; in SQLite, in memory and in a store of files.
"""

import random
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path, PurePosixPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel

from divebook import Environment, Step, Workflow, allow
from divebook.definitions import step, workflow
from divebook.definitions.answer_types import schema_of
from divebook.errors import InterruptError, SetupError
from divebook.steps.actions import Action
from divebook.stores import MemoryStore, SqliteStore
from divebook.stores.memory import StoreAdapter
from tests.runtime.any_values import Colour, Frozen, Item, Mode, Numbers, Place, Point, Rich, Size, Word, same, value
from tests.store.test_adapter import JsonLines

PATIENCE = 30
T = typing.TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, 0, 7, tzinfo=BERLIN, fold=1)
"""The second of two equal hours."""


@allow
class Box(BaseModel, typing.Generic[T]):
    """A generic model."""

    content: T


allow(Box[int], Box[date])

VALUES = {
    "none": None,
    "boolean": True,
    "integer": 5,
    "big integer": 2**70,
    "float": 1.5,
    "whole float": 2.0,
    "minus zero": -0.0,
    "infinity": float("inf"),
    "nan": float("nan"),
    "text": "a ✓\u2028",
    "text of a number": "1.10",
    "bytes": b"ab\0",
    "date": date(2026, 1, 31),
    "naive datetime": datetime(2026, 1, 31, 10, 0, 0, 1),  # noqa: DTZ001
    "datetime in utc": datetime(2026, 1, 31, 10, tzinfo=UTC),
    "datetime at an offset": datetime(2026, 1, 31, 10, tzinfo=timezone(timedelta(hours=2))),
    "datetime in a zone": datetime(2026, 7, 31, 10, tzinfo=BERLIN),
    "datetime that comes twice": TWICE,
    "naive datetime that comes twice": TWICE.replace(tzinfo=None),
    "time": time(1, 2, fold=1),
    "time in a zone": time(1, 2, tzinfo=BERLIN),
    "duration": timedelta(days=1, microseconds=5),
    "zone": BERLIN,
    "uuid": UUID(int=7),
    "path": Path("a/b"),
    "posix path": PurePosixPath("/a"),
    "decimal": Decimal("1.50"),
    "fraction": Fraction(1, 3),
    "complex": 1 + 2j,
    "list": [1, "a", None],
    "tuple": (1, (2, "a")),
    "set": {1, "a"},
    "frozen set": frozenset({(1, 2)}),
    "mapping": {"a": 1, "$type": "x"},
    "mapping with integers as keys": {1: "a", 2: "b"},
    "mapping with dates as keys": {date(2026, 1, 31): 1},
    "counter": Counter("aab"),
    "default dict": defaultdict(list, {"a": [1]}),
    "ordered dict": OrderedDict(b=1, a=2),
    "deque": deque([1, 2], maxlen=3),
    "range": range(3),
    "enum": Colour.RED,
    "enum of a tuple": Colour.PAIR,
    "integer enum": Size.SMALL,
    "text enum": Word.YES,
    "flag": Mode.READ | Mode.WRITE,
    "named tuple": Place("a", (1,)),
    "dataclass": Point({1, 2}, ("a",)),
    "frozen dataclass": Frozen(x=Decimal("1.50")),
    "model": Item(sku="a", more=(1, date(2026, 1, 31))),
    "model with an alias": Rich(Number=2, more=TWICE),
    "root model": Numbers([1, 2]),
    "generic model": Box(content=TWICE),
    "generic model of integers": Box[int](content=5),
    "generic model of dates": Box[date](content=date(2026, 1, 31)),
    "nested": {"a": [(Point(TWICE), {1: {UUID(int=1): Counter("ab")}}), Box[int](content=3)], "b": {Decimal("1.50")}},
    **{f"random {seed}": value(random.Random(seed)) for seed in range(20)},
}
STORES = {
    "memory": lambda folder: MemoryStore(),
    "sqlite": lambda folder: SqliteStore(folder / "runs.db"),
    "files": lambda folder: StoreAdapter(JsonLines(folder / "lines")),
}


@step
def echo(given):
    """Return what it is passed."""
    return given


def flow_of(annotation, asked, seen):
    """Return a workflow whose input and question have types, and that appends all it gets to `seen`."""

    async def places(ctx, given):
        returned = await echo(given)
        child = (await ctx.run("declared", {"given": returned}))["kept"]
        answer = await ctx.ask("Which?", asked)
        seen.append({"input": given, "step": returned, "action": child, "answer": answer})
        return seen[-1]

    places.__annotations__["given"] = annotation
    return workflow(places)


DECLARED = Workflow(
    "declared",
    [
        Step("call", action="Echo", parameters={"value": "$(inputs.given)"}, store="first"),
        Step("again", action="Echo", parameters={"value": "$(state.first)"}, store="kept"),
    ],
    inputs=["given"],
    outputs=["kept"],
)


def types_of(given):
    """Return the pairs of types of the input and the question: none, the type of the value, and optional."""
    own = type(given)
    if own in (type(None), ZoneInfo, range):
        return [(typing.Any, typing.Any)]
    try:
        schema_of(own)
    except SetupError:  # pydantic does not know the class
        return [(typing.Any, typing.Any), (own, typing.Any)]
    return [(typing.Any, typing.Any), (own, own), (own | None, typing.Optional[own])]  # noqa: UP045


def environment(store, flow):
    return Environment(
        store=store, workflows=[flow, DECLARED], actions=[Action("Echo", lambda value: value, idempotent=True)]
    )


def answered(run, given):
    """Answer the question of a run with a value, and return the run at its end; None if the answer is refused."""
    assert run.open_questions, run.error
    try:
        run.answer(run.open_questions[0].id, given)
    except InterruptError:
        run.cancel()
        return None
    return run.wait(PATIENCE)


NO_ANSWERS = {
    *("bytes", "path", "posix path", "tuple", "set", "frozen set", "counter"),
    *("naive datetime", "naive datetime that comes twice", "mapping with integers as keys", "ordered dict", "deque"),
    *("mapping with dates as keys", "enum of a tuple", "flag", "named tuple", "dataclass", "frozen dataclass", "model"),
    *("model with an alias", "root model", "generic model"),
}
"""Values that a question of their type refuses, since only its JSON schema is known where it is answered."""


@pytest.mark.filterwarnings("ignore::divebook.errors.DeterminismWarning")  # the workflow notes what it gets
@pytest.mark.parametrize("where", STORES)
@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_the_same_in_every_place_of_a_run(name, where, tmp_path):
    given = VALUES[name]
    refused = set()
    # The type is independent of the store.
    types = types_of(given) if where == "memory" else [(typing.Any, typing.Any)]
    for number, (annotation, asked) in enumerate(types):
        folder = tmp_path / str(number)
        folder.mkdir()
        if not is_same_everywhere(given, annotation, asked, partial(STORES[where], folder), folder / "run.jsonl"):
            refused.add(asked)
            assert is_same_everywhere(given, annotation, typing.Any, MemoryStore, folder / "other.jsonl")
    assert typing.Any not in refused
    if where == "memory" and not name.startswith("random"):
        assert bool(refused) is (name in NO_ANSWERS), refused


def is_same_everywhere(given, annotation, asked, open_store, file):
    """Check a value in all places of runs in a store. Return False if the question of a run does not accept it."""
    seen = []
    flow = flow_of(annotation, asked, seen)
    store = open_store()
    with environment(store, flow) as first:
        live = answered(first.start("places", {"given": given}).wait(PATIENCE), given)
        if live is None:
            return False
        check(live, seen, given, "live")
        waiting = first.start("places", {"given": given}).wait(PATIENCE)
        live.export(file)
    if not isinstance(store, MemoryStore) or isinstance(store, StoreAdapter):
        store = open_store()
    with environment(store, flow) as later:
        check(answered(later.run_of(waiting.id), given), seen, given, "resumed")
        again = later.run_of(live.id)
        check(again, seen, given, "read again")
        assert again.verify()
        check(None, seen, given, "replayed")
        check(answered(again.fork(1).wait(PATIENCE), given), seen, given, "forked")
    with environment(MemoryStore(), flow) as other:
        check(other.open(file, keep=True), seen, given, "imported")
    return True


def check(run, seen, given, way):
    """Check the value in all places where the code of a run got it last, and in the results of the run."""
    if run is not None:
        assert run.status == "completed", (way, run.error)
    places = dict(seen[-1])
    if run is not None:
        places |= {f"result of the run, {place}": value for place, value in run.result().items()}
        places["input of the run"] = run.inputs["given"]
        places["variable"] = run.variables["result"]["step"]
    wrong = {place: value for place, value in places.items() if not same(given, value)}
    assert wrong == {}, (way, given)
