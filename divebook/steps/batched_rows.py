"""An agent asked for each row of a frame through its provider's batch API: submitted once, collected by whoever comes.

Three operations for each batch. The submission may not be made twice: its result is the handle of the batch, plain data
in the log. Between looks at the batch, which may be made again, a timer runs, so that the execution can rest and its
process end. What is collected is written as the rows of a function are (`divebook.steps.rows`).

Before a submission the provider is asked whether it has that batch, from a process that died; where it cannot tell, and
a submission has begun and has no end in the log, a person is asked (`tests/rows/test_batches.py`).
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import anyio

from divebook.agents import Agent
from divebook.agents.agent import loaded
from divebook.engine.operations import BATCH_LOOK, BATCH_RESULTS, BATCH_SUBMISSION, Reserved
from divebook.errors import ScriptError, StepError, TemplateError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED
from divebook.events.codec import short_hash, storable
from divebook.events.recorded import opened
from divebook.runtime.context import StepContext
from divebook.runtime.recorder import leaves_outcome_unknown
from divebook.runtime.step import Outcome
from divebook.steps.action import render_texts
from divebook.steps.rows import UNKNOWN, Ended, told
from divebook.steps.turns import AgentServices, as_asked
from divebook.workflow.answer_types import answer_type

MOST = 10_000
"""Rows of one batch, where the provider takes so many."""
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 30.0, 900.0, 1.5
"""Seconds until a batch is looked at again: after the first look, at most, and by how much it grows."""
MOST_UNREAD = 3
"""How often results that cannot be read at all are asked for again, before that is the error of their rows."""
MOST_SECONDS = 10
"""How long the end of an execution waits for the provider to take that its batches are to end."""
LATER = "later"
"""What a submission says that is to be made again: after how many seconds at least."""
BATCHES = "divebook.agents.batches"
ENDED = "ended"


async def run_batches(context: StepContext, agent: Agent, frame: Any, offers: AgentServices) -> Outcome:
    """Ask an agent for each row of a frame; return how many rows there are, and how many failed.

    Raises
    ------
    StepError
        The agent does more than answer one request, or its model has no batch API.
    """
    from divebook.events.arrow.rows import records_of

    agent = as_asked(context, agent, offers)
    _require_one_request(agent, offers)
    rows = records_of(opened(frame))
    output = answer_type(agent.output if context.step.output is None else context.step.output)
    module = await loaded(BATCHES)
    batches = await module.AgentBatches.of(agent, agent.instructions(context.started_at), output)
    failed = await BatchedRows(context, agent, batches, rows).run()
    text = f"{len(rows):,} rows" + (f", {failed:,} of which failed" if failed else "")
    return Outcome(text, {"rows": len(rows), "failed": failed})


def _require_one_request(agent: Agent, offers: AgentServices) -> None:
    own = agent.definition
    more = {
        "tools": bool(agent.tools or own.tools or own.servers or own.workspace),
        "capabilities": bool(agent.capabilities) or agent.library is not None,
        "subordinates": bool(offers.subordinates_for(own)),
        "bounds of its own": bool(own.bounds),
        "a cache": bool(own.cache),
    }
    found = next((name for name, has in more.items() if has), None)
    if found is not None:
        raise StepError(
            f"agent {agent.name} has {found}, and a batch is for agents that answer with one request and nothing else: "
            "leave out batch=True (in YAML write Items in place of Rows), or name another agent"
        )


class BatchedRows:
    """The rows of one step, batch by batch, from wherever the log has got to."""

    def __init__(self, context: StepContext, agent: Agent, batches: Any, rows: list[dict[str, Any]]) -> None:
        self._context = context
        self._agent = agent
        self._batches = batches
        self._rows = rows

    async def run(self) -> int:
        """Submit all batches, and collect one after the other; return how many rows failed.

        Where the execution is cancelled the provider is told to end those that are under way, beside the log, which has
        its end by then; one that goes on is looked at as any other.
        """
        submitted: list[tuple[int, Mapping[str, Any]]] = []
        first = 0
        failed = 0
        try:
            while first < len(self._rows):
                submitted.append((first, await self._submitted(first, [batch for _, batch in submitted])))
                first = submitted[-1][1]["last"] + 1
            while submitted:
                failed += await self._collected(*submitted[0])
                submitted.pop(0)
        except asyncio.CancelledError:
            if self._context.is_given_up():
                with anyio.move_on_after(MOST_SECONDS, shield=True):
                    for _, batch in submitted:
                        await self._batches.cancel(batch["batch"])
            raise
        return failed

    def _name(self, first: int, at: int) -> str:
        """Return the id of a row in its batch, the same whenever it is submitted again."""
        return f"{short_hash(self._context.idempotency_key(_key('submit', first)))}-{at}"

    async def _submitted(self, first: int, before: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the batch that begins with a row: its handle, its last row, what has no prompt, and what it may use.

        The bounds must allow that beside what the batches before it may use. While its provider takes none, or cannot
        be reached, a timer runs, and it is submitted then.
        """
        tries = 0
        pause = FIRST_PAUSE
        may_exist = False
        while True:
            found = await self._submission(first, before, tries, may_exist=may_exist)
            if LATER not in found:
                return found
            may_exist = found["may_exist"]
            await self._context.sleep(max(pause, found[LATER]))
            tries = tries + 1
            pause = min(pause * GROWTH, LONGEST_PAUSE)

    async def _submission(
        self, first: int, before: Sequence[Mapping[str, Any]], tries: int, *, may_exist: bool
    ) -> Mapping[str, Any]:
        """Submit the batch that begins with a row; return it as `_submitted` does, or when to do so again.

        `may_exist` says whether an earlier submission may have made it.
        """
        key = _key("submit", first, tries or None)
        batches = self._batches
        context = self._context
        parameters = {"agent": self._agent.name, "first": first, "model": self._agent.model_name}
        record = context.record_of(key)
        is_made = record is not None and record.status == COMPLETED
        prompts: dict[str, str] = {}
        unsaid: dict[str, str] = {}
        requests: list[Any] = []
        if not is_made:
            prompts, unsaid = await self._prompts(first)
            requests = await batches.encode(prompts, MOST)
        last = _last(requests, first + len(prompts) + len(unsaid) - 1, len(prompts))
        reserved = batches.reserved(list(prompts.values())[: len(requests)])
        result = {
            "last": last,
            "unsaid": {at: why for at, why in unsaid.items() if int(at) <= last},
            "held": {"tokens": reserved.tokens, "cost": reserved.cost},
        }
        since = context.started_at or datetime.now(UTC)
        doubts = [may_exist] if record is None else []  # what has begun is asked about, unless the provider tells

        async def submit() -> dict[str, Any]:
            if not requests:
                return {**result, "batch": None}
            # It is looked for always: of a submission that has failed the log keeps nothing for a run that is resumed
            # (test_a_batch_that_was_made_though_the_provider_failed_is_found_there).
            others = [batch["batch"]["id"] for batch in before if batch["batch"] is not None]
            is_doubted = doubts.pop() if doubts else record is not None and await batches.can_list()
            made = await batches.submit(
                requests, since, others, may_exist=is_doubted, leaves_unknown=leaves_outcome_unknown
            )
            if isinstance(made, dict):
                return {**result, "batch": made}
            return {LATER: made.seconds, "why": made.reason, "may_exist": made.may_exist}

        def done(given: Any) -> dict[str, Any]:
            is_named = isinstance(given, str) and given
            return {**result, "batch": batches.handle(given, requests, since) if is_named else None}

        submitted: Mapping[str, Any] = await context.operation(
            BATCH_SUBMISSION,
            parameters,
            submit,
            key=key,
            repeatable=not is_made and await batches.can_list(),
            reserved=functools.reduce(lambda total, batch: total.plus(Reserved(**batch["held"])), before, reserved),
            done=done,
        )
        return submitted

    async def _prompts(self, first: int) -> tuple[dict[str, str], dict[str, str]]:
        """Return the prompts of rows by the ids of their requests, and why others have none, by position."""
        names = self._context.names
        prompts = dict[str, str]()
        unsaid = dict[str, str]()
        for at, row in enumerate(self._rows[first : first + MOST], first):
            try:
                (text,) = await render_texts(
                    [self._context.step.prompt or ""], {**names, "state": {**names["state"], "row": row}, "row": row}
                )
                prompts[self._name(first, at)] = text
            except (StepError, ScriptError, TemplateError) as error:
                unsaid[str(at)] = told(error)
        return prompts, unsaid

    async def _collected(self, first: int, batch: Mapping[str, Any]) -> int:
        """Wait until a batch has ended, and write what it gave; return how many of its rows failed."""
        handle = batch["batch"]
        pause = FIRST_PAUSE
        looks = 0
        unread = 0
        parameters = {"agent": self._agent.name, "first": first}
        while True:
            if handle is not None and handle["status"] != ENDED:
                look = functools.partial(self._batches.refresh, handle)
                key = _key("look", first, looks)
                handle = await self._context.operation(BATCH_LOOK, parameters, look, key=key, repeatable=True)
            if handle is None or handle["status"] == ENDED:
                key = _key("results", first, looks)
                ended = {**batch, "batch": handle}
                collect = functools.partial(self._collect, key, first, ended, is_last=unread >= MOST_UNREAD)
                found = await self._context.operation(
                    BATCH_RESULTS, parameters, collect, key=key, usage=_usage_in, repeatable=True
                )
                if found is not None:
                    return int(found["failed"])
                unread += 1
            await self._context.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE)
            looks = looks + 1

    async def _collect(self, key: str, first: int, batch: Mapping[str, Any], *, is_last: bool) -> dict[str, Any] | None:
        """Write what the rows of a batch gave; None while the provider cannot be reached."""
        from divebook.events.arrow.rows import frame_of, standing_of

        unsaid = batch["unsaid"]
        rows = range(first, batch["last"] + 1)
        names = {at: self._name(first, at) for at in rows if str(at) not in unsaid}
        if batch["batch"] is None:
            answers: Mapping[str, Any] | None = {}
        else:
            answers = await self._batches.answers(batch["batch"], list(names.values()), is_last=is_last)
        if answers is None:
            return None
        ended = [_ended(at, unsaid.get(str(at)), answers.get(names.get(at, ""))) for at in rows]
        written = standing_of(list(self._context.items.values()))
        if not written.keys() & set(rows):  # else a process died after it wrote them
            failed = sum(error is not None for *_, error in ended)
            number = len(self._context.items)
            operation_id = self._context.place(key).operation_id
            result = storable(frame_of(ended), "rows")
            fact = catalog.RowsCompleted(number, operation_id, result, len(ended), failed, len(self._rows))
            self._context.note(fact)
        return {"rows": len(rows), "failed": sum(error is not None for *_, error in ended), "usage": _summed(answers)}


def _ended(at: int, unsaid: str | None, answer: Any) -> Ended:
    """Return what became of a row: it had no prompt, or nobody knows its batch, or it has an answer."""
    if unsaid is not None:
        return at, None, unsaid
    return (at, None, UNKNOWN) if answer is None else (at, answer.value, answer.error)


def _last(requests: list[Any], last: int, prompts: int) -> int:
    """Return the position of the last row of a batch: where it is full, that of its last request."""
    return last if len(requests) == prompts else int(requests[-1].custom_id.rpartition("-")[2])


def _key(kind: str, first: int, number: int | None = None) -> str:
    return f"batch-{kind}-{first}" + ("" if number is None else f"-{number}")


def _summed(answers: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for answer in answers.values():
        for name, amount in answer.usage.items():
            total[name] = total.get(name, 0) + amount
    return total


def _usage_in(found: Any) -> Mapping[str, int]:
    usage: Mapping[str, int] = found["usage"] if found else {}
    return usage
