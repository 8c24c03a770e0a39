"""Refusal of clocks and races in a workflow function's own code, on the engine's event loop.

A time limit (`asyncio.timeout`), a pause, a look at the loop's clock, or the question which of several calls ended
first depends on how fast things are. On replay recorded calls return at once, so that the code would take another
branch, and nothing in the log would tell. All of these ask the running loop: for its time, for a timer, or for a
future to wait with. So the engine's loop refuses them there, with the durable alternative, the first time the code runs
(`tests/workflow/test_unrecorded_waits.py`).

A request counts as the function's own if a person's code is nearer to it than divebook's: `ctx.sleep` may set a timer.
Recorded calls (steps, actions, agents and their tools) may use all of them, since their result is in the log.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from divebook.errors import StepError
from divebook.execution.tracing import is_own, present_place

_IS_OWN_CODE: ContextVar[bool] = ContextVar("divebook_own_code", default=False)
"""Whether a workflow function's own code runs, and not a recorded call that it has made."""
_OURS = str(Path(__file__).parents[1]) + os.sep
_BETWEEN = frozenset({"asyncio", "anyio", "contextlib"})
"""Libraries through which code asks the loop for a timer."""
_PUBLIC = {"_AsCompletedIterator._wait_for_one": "as_completed"}
"""Functions of asyncio that are called by one with a public name."""
_RUNS = frozenset({"_run", "_run_once", "run_forever", "run_until_complete"})
"""Functions of asyncio that run everything."""
_LOOP = _OURS + str(Path("execution", "engine_thread.py"))
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
