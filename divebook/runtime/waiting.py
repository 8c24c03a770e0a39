"""Questions that code asks a person, and those that a bound asks before a model is called."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

from divebook.engine.approvals import ALWAYS, RUN, StandingRule, ToolCall, Verdict, rules_of_run, verdict_of
from divebook.engine.bounds import Exhausted, call_bound, facts_about, fails_at_bounds, question_about, require_price
from divebook.engine.operations import SIGNAL_WAIT, TIMER, Place, Reserved
from divebook.engine.retries import names_of
from divebook.engine.state import OperationRecord
from divebook.errors import BoundExceededError, InterruptExpiredError, StepError, shown_number
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import EXPIRED
from divebook.runtime.concurrency import Suspended, Waits
from divebook.runtime.errors import is_own, present_place
from divebook.runtime.operations import CallOptions, OperationLog, OperationRequest
from divebook.text.format import parse_duration
from divebook.text.ranges import MOST_SECONDS
from divebook.workflow.servers import ALLOW, ASK, ApprovalRule, Approvals
from divebook.workflow.tools import FileSpellings

MICROSECONDS = 1_000_000


class Asking:
    """Asks each question once; its answer stays with the question that was shown."""

    def __init__(self, once: OperationLog, waits: Waits) -> None:
        self._once, self._waits = once, waits
        self._model_calls = 0
        """Model calls that are under way: each holds back what it may spend at most until it has ended."""
        self._next_end: asyncio.Event | None = None
        """Set when the next of them ends; None while nothing waits for that."""

    async def ask(self, place: Place, asked: Question, expires_in: float | None = None) -> Question:
        """Return the question that belongs to `place` with its answer; ask it if that has not been done.

        Raises
        ------
        Suspended
            There is no answer yet.
        InterruptExpiredError
            There never will be, and the question has no default.
        DivergenceError
            The log has another question, or a call, at this place.
        """
        wanted = asked._replace(id=self._once.question_id(place))
        if await self._once.look_up_question(place, wanted) is None:
            if self._once.only_settles(self._once.journal.present, place):
                raise Suspended
            self._raise(place, wanted, expires_in)
            settled = None if self._once.beyond is None else self._once.beyond.settled(wanted)
            if settled is not None:
                self._once.record(place, settled)
        answered = await self._waits.answer(place.path, wanted.id)
        if answered.status == EXPIRED and answered.response is None:
            raise InterruptExpiredError(answered.id, answered.question)
        return answered

    def _raise(self, place: Place, asked: Question, expires_in: float | None) -> None:
        expires_at = None
        if expires_in is not None:
            expires_at = self._once.journal.clock.now() + int(expires_in * MICROSECONDS)
        raised = catalog.InterruptRaised(
            asked.id,
            asked.kind,
            asked.question,
            asked.message,
            normalize(asked.data, "data"),
            normalize(asked.schema, "schema"),
            asked.operation_id,
            expires_at=expires_at,
            default=asked.default,
            optional=asked.optional or None,
        )
        self._once.record(place, checked(raised))
        self._waits.look_again(place.path, expires_at)

    def is_within_bounds(self, reserved: Reserved) -> bool:
        """Whether the bounds of the execution allow a model call that may consume so much."""
        return self._reached(reserved) is None

    def _reached(self, reserved: Reserved) -> Exhausted | None:
        return call_bound(self._once.journal.state, reserved, is_alone=not self._model_calls)

    async def within_bounds(self, place: Place, reserved: Reserved) -> None:
        """Return when the bounds of the execution allow a model call that may consume so much.

        Raises
        ------
        BoundExceededError
            They do not, and a person said stop, or no person is to be asked.
        """
        journal = self._once.journal
        require_price(journal.state.bounds, reserved)
        while (found := self._reached(reserved)) is not None:
            if found.may_pass and await self.model_call_ended():
                continue
            if fails_at_bounds(journal.state):
                raise BoundExceededError(str(found), found.bound, found.reason)
            if journal.state.stopped is not None:
                raise BoundExceededError(journal.state.stopped[0], found.bound, journal.state.stopped[1])
            interrupt_id = question_about(journal.state, found)
            journal.record_all(facts_about(journal.state, found, place.path, place.step))
            await self._waits.answer(place.path, interrupt_id)

    @contextmanager
    def model_call(self) -> Iterator[None]:
        """Surround a model call that has reserved a part of a budget, until its end is recorded."""
        self._model_calls += 1
        try:
            yield
        finally:
            self._model_calls -= 1
            if self._next_end is not None:
                self._next_end.set()
                self._next_end = None

    async def model_call_ended(self) -> bool:
        """Wait until one of the model calls that are under way ends; return False at once where there is none.

        A model call waits for nothing but its provider, so this comes to an end. A caller therefore counts as running
        meanwhile, and is not parked as if it waited for a person
        (test_calls_wait_for_the_budget_that_others_under_way_hold).
        """
        if not self._model_calls:
            return False
        if self._next_end is None:
            self._next_end = asyncio.Event()
        await self._next_end.wait()
        return True


# What an execution knows of calls that need a person's yes: its own rules, and what its environment says.


class ApprovalPolicy:
    """What is said of calls beside an execution; here nothing. `divebook.Environment` has one that says more."""

    def table(self, _agent: str) -> Approvals:
        """Return the rules and modes for the calls of an agent; of no agent for an empty name."""
        return Approvals()

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the rules that people made for every execution, as they stand."""
        return ()

    async def keep(self, rule: StandingRule) -> None:
        """Let a rule hold in every execution; done twice it is done once."""


def _about_files(table: Approvals, files: FileSpellings) -> Approvals:
    """Return a table whose rules are about files, wherever they name paths."""
    rules: list[ApprovalRule] = []
    for rule in table.rules:
        if rule.arguments is None:
            rules.append(rule)
        elif rule.outcome == ALLOW:
            rules.append(rule.like(arguments=files.without_detours(rule.arguments)))
        else:
            rules += [rule, rule.like(arguments=files.with_links_followed(rule.arguments))]
    stricter = None if table.stricter is None else _about_files(table.stricter, files)
    return replace(table, rules=tuple(rules), stricter=stricter)


def _without_detours(rules: Iterable[StandingRule], files: FileSpellings | None) -> Iterable[StandingRule]:
    if files is None:
        return rules
    return [
        rule if rule.arguments is None else rule._replace(arguments=files.without_detours(rule.arguments))
        for rule in rules
    ]


class Approving:
    """Judges the calls of one execution."""

    def __init__(self, once: OperationLog, policy: ApprovalPolicy) -> None:
        self._once, self._policy = once, policy

    async def verdict(self, call: ToolCall) -> Verdict:
        """Return what becomes of a call that the log does not have."""
        table, now = self._policy.table(call.agent), self._once.journal.clock.now()
        files = call.files
        if files is not None:
            call = replace(call, spellings=tuple(files.spellings(call.arguments)))
            table = _about_files(table, files)
        found = verdict_of(table, _without_detours(self.rules, files), call, now)
        if found.outcome != ASK:
            return found
        return verdict_of(table, _without_detours(await self._policy.lasting(), files), call, now)

    @property
    def rules(self) -> list[StandingRule]:
        """The rules that people made in this execution, for it alone."""
        return [rule for rule in self._made if rule.scope == RUN]

    @property
    def _made(self) -> list[StandingRule]:
        state = self._once.journal.state
        return rules_of_run(state.execution_id, state.rules.values())

    async def keep(self, question: Question) -> None:
        """Let the rule that the answer to a question made hold in every execution, if it is to."""
        made = next((rule for rule in self._made if rule.question == question.id), None)
        if made is not None and made.scope == ALWAYS:
            await self._policy.keep(made)


# Refusal of clocks and races in a workflow function's own code, on the engine's event loop.
#
# A time limit (`asyncio.timeout`), a pause, a look at the loop's clock, or the question which of several calls ended
# first depends on how fast things are. On replay recorded calls return at once, so that the code would take another
# branch, and nothing in the log would tell. All of these ask the running loop: for its time, for a timer, or for a
# future to wait with. So the engine's loop refuses them there, with the durable alternative, the first time the code
# runs (`tests/workflow/test_unrecorded_waits.py`).
#
# A request counts as the function's own if a person's code is nearer to it than divebook's: `ctx.sleep` may set a
# timer. Recorded calls (steps, actions, agents and their tools) may use all of them, since their result is in the log.


_IS_OWN_CODE: ContextVar[bool] = ContextVar("divebook_own_code", default=False)
"""Whether a workflow function's own code runs, and not a recorded call that it has made."""
_OURS = str(Path(__file__).parents[1]) + os.sep
_BETWEEN = frozenset({"asyncio", "anyio", "contextlib"})
"""Libraries through which code asks the loop for a timer."""
_PUBLIC = {"_AsCompletedIterator._wait_for_one": "as_completed"}
"""Functions of asyncio that are called by one with a public name."""
_RUNS = frozenset({"_run", "_run_once", "run_forever", "run_until_complete"})
"""Functions of asyncio that run everything."""
_LOOP = _OURS + str(Path("runtime", "loop.py"))
_CALLER = "FunctionStep.__call__"
"""Calls a workflow function, which may be that of an installed library."""
_RACING = frozenset({"asyncio.locks", "asyncio.queues"})
"""Modules whose waits end in an order that is not recorded; locks and semaphores, which only hold up, do not count."""
_HARMLESS = ("Lock.", "Semaphore.", "BoundedSemaphore.")
_IN_STEP = "in an async @step function, whose result is recorded"
_OTHERWISE = {
    "sleep": "write `await ctx.sleep(seconds)`",
    "time": "write `await ctx.now()`",
    "race": f"wait for all of them with `await ctx.gather(...)`, or let the first one win {_IN_STEP}",
    "limit": (
        "give the call a time limit, @step(timeout=seconds), and a wait its own: "
        f"`ctx.wait_signal(name, within=seconds)`, `ctx.ask(..., expires_in=seconds)`; or measure {_IN_STEP}"
    ),
}


class _Asked(NamedTuple):
    """A request to the loop."""

    name: str
    """What the code has called, such as ``asyncio.timeout``; empty if it has asked the loop itself."""
    is_ours: bool
    """Whether divebook has made it."""


@contextmanager
def own_code() -> Iterator[None]:
    """Surround a workflow function's own code, with the tasks that it makes."""
    with _set_to(is_own=True):
        yield


@contextmanager
def engine_code() -> Iterator[None]:
    """Surround what is not the function's own code, such as a call whose outcome is recorded."""
    with _set_to(is_own=False):
        yield


@contextmanager
def _set_to(*, is_own: bool) -> Iterator[None]:
    token = _IS_OWN_CODE.set(is_own)
    try:
        yield
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away ends in another context
            _IS_OWN_CODE.reset(token)


def guard(loop: asyncio.AbstractEventLoop) -> None:
    """Let a loop refuse what a workflow function's own code may not ask for.

    The loop's methods are replaced on the instance, since its class differs by platform. What it costs is a look at a
    context variable for each timer.
    """
    target: Any = loop
    time, call_at, call_later, create_future = loop.time, loop.call_at, loop.call_later, loop.create_future

    def guarded_time() -> float:
        if _IS_OWN_CODE.get():
            _refuse_time(_asked(_caller()), "time")
        return time()

    def guarded_call_at(*given: Any, **more: Any) -> asyncio.TimerHandle:
        if _IS_OWN_CODE.get():
            _refuse_time(_asked(_caller()), "limit")
        return call_at(*given, **more)

    def guarded_call_later(*given: Any, **more: Any) -> asyncio.TimerHandle:
        if _IS_OWN_CODE.get():
            _refuse_time(_asked(_caller()), "limit")
        return call_later(*given, **more)

    def guarded_create_future() -> asyncio.Future[Any]:
        if _IS_OWN_CODE.get() and _is_race(frame := _caller()):
            asked = _asked(frame)
            if not asked.is_ours:
                raise _refused(asked.name, "which call ends first", _OTHERWISE["race"])
        return create_future()

    target.time, target.call_at, target.call_later = guarded_time, guarded_call_at, guarded_call_later
    target.create_future = guarded_create_future


def _caller() -> FrameType:
    """Return the frame that has called the caller of this function."""
    return sys._getframe(2)  # noqa: SLF001 - `inspect.currentframe` gives the same, typed as if there were none


def _refuse_time(asked: _Asked, kind: str) -> None:
    if asked.is_ours:
        return
    last = asked.name.rpartition(".")[2]
    kind = "sleep" if last.startswith("sleep") else kind if not asked.name or last == "current_time" else "limit"
    raise _refused(asked.name or f"loop.{'time' if kind == 'time' else 'call_later'}", "the clock", _OTHERWISE[kind])


def _refused(name: str, what: str, way_on: str) -> StepError:
    place = present_place()
    where = "" if place is None else f" ({place['label']})"
    return StepError(
        f"{name} in a workflow function asks {what}, which is not recorded, so that a replay could take another "
        f"branch; {way_on}{where}"
    )


def _is_race(frame: FrameType) -> bool:
    """Return whether the caller of `create_future` waits for whichever comes first."""
    module = frame.f_globals.get("__name__")
    if module in _RACING:
        return not frame.f_code.co_qualname.startswith(_HARMLESS)
    if module != "asyncio.tasks" or frame.f_code.co_name != "_wait":
        return False
    waits_for_all = frame.f_locals.get("return_when") == asyncio.ALL_COMPLETED
    return not waits_for_all and len(frame.f_locals.get("fs") or ()) > 1


def _asked(frame: FrameType | None) -> _Asked:
    """Return what a person's code has called, and whether divebook has called it instead.

    Other libraries ask for whoever has called them; a background task of theirs counts as divebook's.
    """
    name, is_of_library = "", False
    while frame is not None:
        library, code = str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code
        if code.co_filename == _LOOP:
            break  # where the loop runs: a task of which no code is a person's, such as `asyncio.wait_for(...)` itself
        if code.co_filename.startswith(_OURS):
            return _Asked(name, is_ours=code.co_qualname != _CALLER)
        if library in ("asyncio", "anyio"):
            called = code.co_qualname.partition(".<locals>")[0]
            name = name if code.co_name in _RUNS else f"{library}.{_PUBLIC.get(called, called)}"
        elif library not in _BETWEEN:
            if is_own(code.co_filename):
                return _Asked(name, is_ours=False)
            is_of_library = True
        frame = frame.f_back
    return _Asked(name, is_ours=is_of_library or not name)


# Waiting for time to pass, and for signals from outside.


def seconds_of(value: Any, call: str) -> float:
    """Return a number of seconds as it is.

    Raises
    ------
    StepError
        It is something else.
    """
    is_number = type(value) is not bool and isinstance(value, Real)
    if is_number and abs(value) <= MOST_SECONDS:
        return cast("float", value)
    wanted = ""
    with suppress(ValueError):
        wanted = f"; write {parse_duration(value):g}" if isinstance(value, str) else ""
    if isinstance(value, timedelta):
        wanted = "; write its total_seconds()"
    allowed = f" of at most {MOST_SECONDS:,} (100 years)" if is_number and abs(value) > MOST_SECONDS else ""
    raise StepError(f"{call} takes a number of seconds{allowed}, got {shown_number(value)}{wanted}")


class Signals:
    """The timers and the waits for signals of one execution."""

    def __init__(self, once: OperationLog, waits: Waits) -> None:
        self._once, self._waits = once, waits

    async def sleep(self, place: Place, seconds: float, holder: str | None = None) -> None:
        """Let time pass, counted from when the timer was first set; `holder` is the operation that holds it, if any."""
        wanted = OperationRequest.of(place, TIMER, {"seconds": seconds})

        async def carry_out(record: OperationRecord | None) -> None:
            begun = record or self._once.begin(wanted, within=holder)
            await self._once.journal.durable()
            await self._let_pass(begun.started_at, seconds)
            self._once.complete(place, begun)

        await self._once.run(wanted, carry_out, CallOptions(within=holder))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        clock = self._once.journal.clock
        left = seconds - (clock.now() - started_at) / MICROSECONDS
        if left > 0:
            with engine_code():  # the clock may be a person's
                await clock.sleep(min(left, seconds))

    async def take(self, place: Place, name: str, within: float | None) -> Any:
        """Return the payload of the next signal of that name that no step has taken yet.

        Raises
        ------
        OperationError
            None came in time.
        """
        checked(catalog.SignalReceived(name))  # one that could not be recorded never comes
        wanted = OperationRequest.of(place, SIGNAL_WAIT, {"signal": name, "seconds": within})

        async def carry_out(record: OperationRecord | None) -> Any:
            begun = record or self._once.begin(wanted)
            until = None if within is None else begun.started_at + int(within * MICROSECONDS)
            self._waits.look_again(place.path, until)
            await self._arrived(place.path, name, until)
            arrived = self._once.journal.state.signals.get(name)
            if arrived is None:
                error = TimeoutError(f"no signal {name!r} came within {within:g} seconds")
                raise self._once.fail(place, begun, str(error), names_of(error))
            self._once.complete(place, begun, arrived[0])
            return arrived[0]

        return await self._once.run(wanted, carry_out)

    async def _arrived(self, path: str, name: str, until: int | None) -> None:
        journal = self._once.journal

        def is_ready() -> bool:
            return name in journal.state.signals or (until is not None and journal.clock.now() >= until)

        while not is_ready():  # another strand may have taken what this one was woken for
            await self._waits.until(path, is_ready)
