"""Waiting for people, time and signals: questions, budgets, approvals of tool calls and timers. Also the check that
workflow functions use no unrecorded clocks or races.

`Asking` asks questions and enforces budgets, `Approving` decides which tool calls need approval, `Signals` has timers
and signal waits. `guard` makes the engine's event loop refuse clocks and races in workflow functions, because they are
not recorded.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol

from divebook.definitions.resources import ALLOW, ASK, ApprovalRule, Approvals
from divebook.definitions.tools import FileSpellings
from divebook.engine.approvals import ALWAYS, RUN, StandingRule, ToolCall, Verdict, rules_of_run, verdict_of
from divebook.engine.bounds import Exhausted, call_bound, facts_about, fails_at_bounds, question_about, require_price
from divebook.engine.operations import SIGNAL_WAIT, TIMER, Place, Reserved
from divebook.engine.retries import names_of
from divebook.engine.state import OperationRecord
from divebook.errors import BoundExceededError, InterruptExpiredError, SetupError, StepError, shown_number
from divebook.events import catalog
from divebook.events.codec import checked
from divebook.events.event import MICROSECONDS
from divebook.events.values import normalize
from divebook.questions import Question
from divebook.questions.question import is_expired_unanswered
from divebook.runtime.concurrency import Waits
from divebook.runtime.errors import is_user_code, present_place
from divebook.runtime.operations import CallOptions, OperationLog, OperationRequest
from divebook.text.arguments import seconds_of
from divebook.text.ranges import MOST_SECONDS


class Asking:
    """Questions of one execution to people, and the check of its budget for model calls. A question is asked only once,
    even if code is replayed, and its answer is not used for a different question.
    """

    def __init__(self, operations: OperationLog, waits: Waits) -> None:
        self._operations = operations
        self._waits = waits
        self._model_calls = 0
        """Number of running model calls. Each reserves its maximum cost until it ends."""
        self._next_end: asyncio.Event | None = None
        """Set when the next model call ends; None while no call waits for that."""

    async def ask(self, place: Place, question: Question, expires_in: float | None = None) -> Question:
        """Ask a person the question of the running code, unless the log has it at this place already. Wait for the
        answer, and return the question with it.

        Raises
        ------
        Suspended
            The question is unanswered.
        InterruptExpiredError
            The question expired and has no default.
        DivergenceError
            The log has another question, or a call, at this place.
        """
        request = question._replace(id=self._operations.question_id(place))
        recorded = await self._operations.look_up_question(place, request)
        # During a rollback this code runs only to learn the outcome of an interrupted call. It asks nothing, and waits
        # for no answer.
        is_unanswered = recorded is None or recorded.is_open
        if is_unanswered and self._operations.only_settles(place):
            await self._operations.never_return(place)
        if recorded is None:
            self._raise(place, request, expires_in)
            # A what-if records the answer of its source directly after the question, so that the wait below returns
            # at once.
            settled = None if self._operations.miss_policy is None else self._operations.miss_policy.settled(request)
            if settled is not None:
                self._operations.record(place, settled)
        answered = await self._waits.wait_for_answer(place.path, request.id)
        if is_expired_unanswered(answered):
            raise InterruptExpiredError(answered.id, answered.question)
        return answered

    def _raise(self, place: Place, question: Question, expires_in: float | None) -> None:
        expires_at = None
        if expires_in is not None:
            expires_at = self._operations.journal.clock.now() + int(expires_in * MICROSECONDS)
        event = catalog.InterruptRaised(
            question.id,
            question.kind,
            question.question,
            question.message,
            normalize(question.data, "data"),
            normalize(question.schema, "schema"),
            question.operation_id,
            expires_at=expires_at,
            default=question.default,
            optional=question.optional or None,
        )
        self._operations.record(place, checked(event))
        # After the record: when the timer rings, the question must be in the state.
        self._waits.look_again(place.path, expires_at)

    def is_within_bounds(self, reserved: Reserved) -> bool:
        """Return whether the bounds (budget) of the execution allow a model call. `reserved` has the most that the call
        may consume.
        """
        return self._exhausted_bound(reserved) is None

    def _exhausted_bound(self, reserved: Reserved) -> Exhausted | None:
        return call_bound(self._operations.journal.state, reserved, is_alone=not self._model_calls)

    async def within_bounds(self, place: Place, reserved: Reserved) -> None:
        """Wait until the bounds (budget) of the execution allow a model call. `reserved` has the most that the call may
        consume.

        If running model calls hold the missing part of the budget, wait for one of them to end. Otherwise ask a person,
        or fail.

        Raises
        ------
        BoundExceededError
            The bound is reached, and a person stopped the execution or it fails at its bounds.
        """
        journal = self._operations.journal
        require_price(journal.state.bounds, reserved)
        # In a loop: several calls may wait for the same part of the budget, and only one of them gets it.
        # Example: $0.30 are left, and a running call has reserved $0.25 of them. A call of at most $0.10 waits for its
        # end. The running call has cost $0.05 in the end, so the waiting one starts.
        while (exhausted := self._exhausted_bound(reserved)) is not None:
            # Running calls reserve their maximum, and most use less. Their end may free enough.
            if exhausted.may_pass and await self.model_call_ended():
                continue
            if fails_at_bounds(journal.state):
                raise BoundExceededError(str(exhausted), exhausted.bound, exhausted.reason)
            # A person has answered the question about the bound, for this or another path, with "stop".
            if journal.state.stopped is not None:
                raise BoundExceededError(journal.state.stopped[0], exhausted.bound, journal.state.stopped[1])
            # Paths that reach the same bound share one question.
            interrupt_id = question_about(journal.state, exhausted)
            journal.record_all(facts_about(journal.state, exhausted, place.path, place.step))
            await self._waits.wait_for_answer(place.path, interrupt_id)

    @contextmanager
    def model_call(self) -> Iterator[None]:
        """Count a model call as running inside the `with` block. When the block ends, wake the calls that wait for
        budget.
        """
        self._model_calls += 1
        try:
            yield
        finally:
            self._model_calls -= 1
            # All waiting callers wake and check their bounds again; a new event serves those that wait once more.
            if self._next_end is not None:
                self._next_end.set()
                self._next_end = None

    async def model_call_ended(self) -> bool:
        """Wait until any running model call ends. Return False at once if none is running.

        A model call waits only for its provider, so this always ends. A caller therefore counts as running meanwhile,
        and is not parked as if it waited for a person (test_calls_wait_for_the_budget_that_others_under_way_hold).
        """
        if not self._model_calls:
            return False
        if self._next_end is None:
            self._next_end = asyncio.Event()
        await self._next_end.wait()
        return True


# --- approval of tool calls: rules of the execution and of its environment -------------------------------------------


class ApprovalPolicy(Protocol):
    """Protocol of the object through which the environment provides approval rules for the tool calls of an
    execution.
    """

    def table(self, agent: str, /) -> Approvals:
        """Return the approval rules and modes for the tool calls of the agent with this name. The name is empty for
        calls that no agent makes.
        """

    async def lasting(self) -> Iterable[StandingRule]:
        """Return the standing approval rules that people have made for all executions."""

    async def keep(self, rule: StandingRule) -> None:
        """Store a standing approval rule that applies to all executions from now on. Storing it again has no effect."""


class NoApprovalPolicy:
    """Approval policy without any rules, for runners outside an environment."""

    def table(self, _agent: str, /) -> Approvals:
        """Return an empty table of approval rules."""
        return Approvals()

    async def lasting(self) -> Iterable[StandingRule]:
        """Return an empty tuple: there are no standing approval rules for all executions."""
        return ()

    async def keep(self, rule: StandingRule) -> None:
        """Discard a standing approval rule, because it cannot be stored here."""
        del rule


def _about_files(table: Approvals, files: FileSpellings) -> Approvals:
    """Return a copy of a table of approval rules. In the copy, arguments that name files also match other spellings of
    the same paths.

    Rules that allow a call get paths without detours (``a/../b``). Rules that ask or deny apply as written, and also
    with links followed.
    """
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
    """Decisions of the approval rules about the tool calls of one execution: allow, ask a person, or deny."""

    def __init__(self, operations: OperationLog, policy: ApprovalPolicy) -> None:
        self._operations = operations
        self._policy = policy

    async def verdict(self, call: ToolCall) -> Verdict:
        """Return the approval decision about a tool call that is not in the log: allow it, ask a person, or deny it."""
        table = self._policy.table(call.agent)
        now = self._operations.journal.clock.now()
        files = call.files
        if files is not None:
            call = replace(call, spellings=tuple(files.spellings(call.arguments)))
            table = _about_files(table, files)
        # Lasting rules are read from outside the log, which takes longer, so only for calls that would ask a person.
        verdict = verdict_of(table, _without_detours(self.rules, files), call, now)
        if verdict.outcome != ASK:
            return verdict
        return verdict_of(table, _without_detours(await self._policy.lasting(), files), call, now)

    @property
    def rules(self) -> list[StandingRule]:
        """Standing approval rules that people made in this execution and that apply to this execution only."""
        return [rule for rule in self._rules_made if rule.scope == RUN]

    @property
    def _rules_made(self) -> list[StandingRule]:
        state = self._operations.journal.state
        return rules_of_run(state.execution_id, state.rules.values())

    async def keep(self, question: Question) -> None:
        """Store the standing approval rule that the answer to a question has created for all executions (scope
        ``always``). Do nothing for other answers.
        """
        rule_of_question = next((rule for rule in self._rules_made if rule.question == question.id), None)
        if rule_of_question is not None and rule_of_question.scope == ALWAYS:
            await self._policy.keep(rule_of_question)


# --- ban on clocks and races in workflow functions -------------------------------------------------------------------
#
# A time limit (`asyncio.timeout`), a pause, the loop's time, or which of several calls ends first depend on speed. On
# replay recorded calls return at once, so the code could take another branch without a trace in the log. All of these
# use the running loop: its time, a timer, or a future to wait with. The engine's loop therefore refuses them the first
# time the code runs, and the error names the durable alternative (`tests/definitions/test_unrecorded_waits.py`).
#
# A request counts as the function's own if user code is nearer on the stack than divebook: `ctx.sleep` may set a timer.
# Recorded calls (steps, actions, agents and their tools) may use all of them, because their results are in the log.


_IS_WORKFLOW_CODE: ContextVar[bool] = ContextVar("divebook_own_code", default=False)
"""True while a workflow function's own code runs, False inside a recorded call that it makes."""
is_workflow_code = _IS_WORKFLOW_CODE.get
"""Return whether a workflow function's own code runs."""
_OURS = str(Path(__file__).parents[1]) + os.sep
_BETWEEN = frozenset({"asyncio", "anyio", "contextlib"})
"""Libraries through which code requests a timer from the loop."""
_PUBLIC = {"_AsCompletedIterator._wait_for_one": "as_completed"}
"""Internal asyncio functions, and the public functions that call them."""
_RUNS = frozenset({"_run", "_run_once", "run_forever", "run_until_complete"})
"""Functions of asyncio that run the loop."""
_LOOP = _OURS + str(Path("runtime", "loop.py"))
_CALLER = "FunctionStep.__call__"
"""Name of the function that calls a workflow function, which may be part of an installed library."""
_RACING = frozenset({"asyncio.locks", "asyncio.queues"})
"""Modules whose waits end in an unrecorded order. Locks and semaphores only delay code and are allowed."""
_HARMLESS = ("Lock.", "Semaphore.", "BoundedSemaphore.")
_IN_STEP = "in an async @step function, whose result is recorded"
_ADVICE = {
    "sleep": "write `await ctx.sleep(seconds)`",
    "time": "write `await ctx.now()`",
    "race": f"wait for all of them with `await ctx.gather(...)`, or race them {_IN_STEP}",
    "limit": (
        "give the call a time limit, @step(timeout=seconds), and a wait its own: "
        f"`ctx.wait_signal(name, within=seconds)`, `ctx.ask(..., expires_in=seconds)`; or measure {_IN_STEP}"
    ),
}


class _LoopRequest(NamedTuple):
    """Request of code to the event loop for the time, a timer or a future. Contains the name of the called function,
    and whether divebook or user code called it.
    """

    name: str
    """Called function, such as ``asyncio.timeout``; empty if the code called the loop itself."""
    is_ours: bool
    """True if divebook made the request."""


class _CodeMark:
    """Context manager that marks the code in its `with` block: it is either a workflow function's own code, which may
    not use unrecorded clocks, or other code, which may.

    A step enters four of these. Entering and leaving one takes 1 microsecond, and took 4 as a function with
    `contextlib.contextmanager`.
    """

    __slots__ = ("_is_own", "_token")

    def __init__(self, *, is_user_code: bool) -> None:
        self._is_own = is_user_code

    def __enter__(self) -> None:
        self._token = _IS_WORKFLOW_CODE.set(self._is_own)

    def __exit__(self, *_error: object) -> None:
        try:
            _IS_WORKFLOW_CODE.reset(self._token)
        except ValueError:  # a coroutine that is closed ends in another context
            return


def workflow_code() -> _CodeMark:
    """Mark the code in the `with` block as a workflow function's own code, including the tasks that it creates."""
    return _CodeMark(is_user_code=True)


def engine_code() -> _CodeMark:
    """Mark the code in the `with` block as other code than the workflow function's own, for example because it is a
    recorded call. Such code may use any clock.
    """
    return _CodeMark(is_user_code=False)


def guard(loop: asyncio.AbstractEventLoop) -> None:
    """Replace methods of an event loop, so that a workflow function's own code gets an error if it uses time, timers or
    races that are not recorded. Such code could behave differently on replay.

    The methods are replaced on the instance, because the class of the loop differs by platform. The cost is one read of
    a context variable for each timer.
    """
    target: Any = loop
    time = loop.time
    call_at = loop.call_at
    call_later = loop.call_later
    create_future = loop.create_future

    # Each replacement first reads the context variable, because nearly all requests come from other code. Only for a
    # request of workflow code is the stack examined.
    def guarded_time() -> float:
        if _IS_WORKFLOW_CODE.get():
            _refuse_time(_loop_request(_caller()), "time")
        return time()

    def guarded_call_at(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        if _IS_WORKFLOW_CODE.get():
            _refuse_time(_loop_request(_caller()), "limit")
        return call_at(*arguments, **options)

    def guarded_call_later(*arguments: Any, **options: Any) -> asyncio.TimerHandle:
        if _IS_WORKFLOW_CODE.get():
            _refuse_time(_loop_request(_caller()), "limit")
        return call_later(*arguments, **options)

    def guarded_create_future() -> asyncio.Future[Any]:
        if _IS_WORKFLOW_CODE.get():
            frame = _caller()
            request = _loop_request(frame) if _is_race(frame) else None
            if request is not None and not request.is_ours:
                raise _refusal(request.name, "which call ends first", _ADVICE["race"])
        return create_future()

    # `Any` as type, because a type checker refuses to assign to methods.
    target.time = guarded_time
    target.call_at = guarded_call_at
    target.call_later = guarded_call_later
    target.create_future = guarded_create_future


def _caller() -> FrameType:
    """Return the stack frame of the code that called the function from which `_caller` is called."""
    return sys._getframe(2)  # noqa: SLF001 - `inspect.currentframe` is equal but typed as optional


def _refuse_time(request: _LoopRequest, kind: str) -> None:
    """Raise `StepError` if user code asked the loop for the time or a timer. The error names the durable alternative.
    Do nothing if divebook itself asked.

    `kind` is ``time`` or ``limit``, used for a direct request to the loop. A function named ``sleep...`` gets the
    advice for pauses, any other function the advice for time limits.
    """
    if request.is_ours:
        return
    last = request.name.rpartition(".")[2]
    if last.startswith("sleep"):
        kind = "sleep"
    elif request.name and last != "current_time":
        kind = "limit"
    raise _refusal(request.name or f"loop.{'time' if kind == 'time' else 'call_later'}", "the clock", _ADVICE[kind])


def _refusal(name: str, what: str, way_on: str) -> StepError:
    place = present_place()
    where = "" if place is None else f" ({place['label']})"
    return StepError(
        f"{name} in a workflow function depends on {what}, which is not recorded, so a replay could take another "
        f"branch; {way_on}{where}"
    )


def _is_race(frame: FrameType) -> bool:
    """Return whether code waits for the first of several results, as `asyncio.wait` can. The code has asked the event
    loop for a future; `frame` is its stack frame.
    """
    module = frame.f_globals.get("__name__")
    if module in _RACING:
        return not frame.f_code.co_qualname.startswith(_HARMLESS)
    if module != "asyncio.tasks" or frame.f_code.co_name != "_wait":
        return False
    waits_for_all = frame.f_locals.get("return_when") == asyncio.ALL_COMPLETED
    return not waits_for_all and len(frame.f_locals.get("fs") or ()) > 1


def _loop_request(frame: FrameType | None) -> _LoopRequest:
    """Return the name of the function by which code asked the event loop for something, and whether divebook or user
    code called it. `frame` is the stack frame of that request.

    Walks up the stack. Frames of asyncio and anyio give the name. The first frame of divebook or of user code decides.
    Frames of other libraries act on behalf of their callers; a background task of a library counts as divebook's.
    """
    name = ""
    is_of_library = False
    # Example, innermost frame first: `asyncio.timeouts.timeout` (names the request), then a cell of the user
    # (decides: refused).
    while frame is not None:
        library = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        code = frame.f_code
        if code.co_filename == _LOOP:
            break  # the loop itself: a task without user code, such as `asyncio.wait_for(...)`
        if code.co_filename.startswith(_OURS):
            return _LoopRequest(name, is_ours=code.co_qualname != _CALLER)
        if library in ("asyncio", "anyio"):
            called = code.co_qualname.partition(".<locals>")[0]
            name = name if code.co_name in _RUNS else f"{library}.{_PUBLIC.get(called, called)}"
        elif library not in _BETWEEN:
            if is_user_code(code.co_filename):
                return _LoopRequest(name, is_ours=False)
            is_of_library = True
        frame = frame.f_back
    return _LoopRequest(name, is_ours=is_of_library or not name)


# --- timers and signals ----------------------------------------------------------------------------------------------


def timer_seconds(value: Any, call: str) -> float:
    """Convert a duration that the code of a workflow function passes to a call, and check its range. `call` is the name
    of the called function, for the error.

    Raises
    ------
    SetupError
        It is not a duration, or exceeds 100 years.
    """
    seconds = seconds_of(value, call)
    if abs(seconds) > MOST_SECONDS:
        raise SetupError(f"{call} must be at most {MOST_SECONDS:,} seconds (100 years), not {shown_number(value)}")
    return seconds


class Signals:
    """Timers and signal waits of one execution, as recorded operations."""

    def __init__(self, operations: OperationLog, waits: Waits) -> None:
        self._operations = operations
        self._waits = waits

    async def sleep(self, place: Place, seconds: float, holder: str | None = None) -> None:
        """Sleep until `seconds` after the recorded start of the timer. After a restart, only the remaining time is
        waited for.

        `holder` is the id of the enclosing operation, if any.
        """
        request = OperationRequest.of(place, TIMER, {"seconds": seconds})

        async def carry_out(record: OperationRecord | None) -> None:
            # Durable before the wait: if the process dies during the wait, the next one waits for the remaining time
            # only.
            timer = record or self._operations.begin(request, within=holder)
            await self._operations.journal.durable()
            with self._operations.open_wait(place):
                await self._let_pass(timer.started_at, seconds)
            self._operations.complete(place, timer)

        await self._operations.run(request, carry_out, CallOptions(within=holder))

    async def _let_pass(self, started_at: int, seconds: float) -> None:
        clock = self._operations.journal.clock
        remaining = seconds - (clock.now() - started_at) / MICROSECONDS
        if remaining > 0:
            with engine_code():  # a clock may be user code
                # A system clock that was set back would otherwise lengthen the sleep.
                await clock.sleep(min(remaining, seconds))

    async def take(self, place: Place, name: str, within: float | None) -> Any:
        """Wait for a signal and return its payload: the oldest signal of this name that no step has consumed yet.

        Raises
        ------
        OperationError
            No signal came in time.
        """
        checked(catalog.SignalReceived(name))  # a signal that cannot be recorded never arrives
        request = OperationRequest.of(place, SIGNAL_WAIT, {"signal": name, "seconds": within})

        async def carry_out(record: OperationRecord | None) -> Any:
            wait_record = record or self._operations.begin(request)
            until = None if within is None else wait_record.started_at + int(within * MICROSECONDS)
            self._waits.look_again(place.path, until)
            with self._operations.open_wait(place):
                await self._wait_for_signal(place.path, name, until)
            payloads = self._operations.journal.state.signals.get(name)
            if payloads is None:
                error = TimeoutError(f"no signal {name!r} came within {within:g} seconds")
                raise self._operations.fail(place, wait_record, str(error), names_of(error))
            # This record also removes the signal from the state, so that each signal is consumed once.
            self._operations.complete(place, wait_record, payloads[0])
            return payloads[0]

        return await self._operations.run(request, carry_out)

    async def _wait_for_signal(self, path: str, name: str, until: int | None) -> None:
        journal = self._operations.journal

        def is_ready() -> bool:
            return name in journal.state.signals or (until is not None and journal.clock.now() >= until)

        while not is_ready():  # another strand may have consumed the signal for which this one was woken
            await self._waits.until(path, is_ready)
