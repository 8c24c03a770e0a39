"""Prompts for the rows of a frame, sent through the batch API of a model provider.

Each batch has three operations: submission, status checks and fetching of the results. The submission must not be
repeated; its result is the handle of the batch, plain data in the log. Status checks may be repeated. A timer runs
between the checks, so that the execution can be parked and its process can end. Results are recorded like those of
`divebook.steps.row_calls`.

Before a submission, the provider is asked whether it already has the batch, submitted by a process that died. If the
provider cannot tell, and the log has the start of a submission but not its end, a person is asked
(`tests/rows/test_batches.py`). Example: a process submits the batch of rows 0 to 9,999 and dies before it records the
handle. The next process finds the recorded start, lists the batches of the provider since then, recognizes the batch by
the id of its first request, and records its handle instead of paying twice.
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
from divebook.steps.row_calls import UNKNOWN, RowResult, error_text
from divebook.steps.script_step import render_texts
from divebook.steps.step_turn import AgentServices, agent_for_run
from divebook.workflow.answer_types import answer_type

MOST = 10_000
"""Maximum number of rows in one batch. The provider may accept fewer."""
FIRST_PAUSE = 30.0
"""Seconds between the first two checks of a batch."""
LONGEST_PAUSE = 900.0
"""Maximum number of seconds between two checks."""
GROWTH = 1.5
"""Factor by which the pause grows after each check."""
MOST_UNREAD = 3
"""Number of further attempts to read unreadable results, before the rows fail."""
MOST_SECONDS = 10
"""Seconds for which a cancelled execution waits until the provider has accepted the cancellation of its batches."""
LATER = "later"
"""Key in the result of a postponed submission: minimum delay in seconds."""
BATCHES = "divebook.agents.batches"
ENDED = "ended"


async def run_batches(context: StepContext, agent: Agent, frame: Any, services: AgentServices) -> Outcome:
    """Execute a prompt step for the rows of a frame: send one prompt per row to an agent, as batches. The result states
    the number of rows and of failed rows.

    Raises
    ------
    StepError
        The agent does more than answer one request, or its model has no batch API.
    """
    from divebook.events.arrow.rows import records_of

    agent = agent_for_run(context, agent, services)
    _require_one_request(agent, services)
    rows = records_of(opened(frame))
    output = answer_type(agent.output if context.step.output is None else context.step.output)
    module = await loaded(BATCHES)
    batches = await module.AgentBatches.of(agent, agent.instructions(context.started_at), output)
    failed = await BatchedRows(context, agent, batches, rows).run()
    text = f"{len(rows):,} rows" + (f", {failed:,} of which failed" if failed else "")
    return Outcome(text, {"rows": len(rows), "failed": failed})


def _require_one_request(agent: Agent, services: AgentServices) -> None:
    # Each of these needs further requests, or a decision before a request is sent.
    definition = agent.definition
    features = {
        "tools": bool(agent.tools or definition.tools or definition.servers or definition.workspace),
        "capabilities": bool(agent.capabilities) or agent.library is not None,
        "subordinates": bool(services.subordinates_for(definition)),
        "bounds of its own": bool(definition.bounds),
        "a cache": bool(definition.cache),
    }
    feature = next((name for name, is_present in features.items() if is_present), None)
    if feature is not None:
        raise StepError(
            f"agent {agent.name} has {feature}, and a batch is for agents that answer with one request and nothing "
            "else: leave out batch=True (in YAML write Items in place of Rows), or name another agent"
        )


class BatchedRows:
    """Batches of prompts for one prompt step, with one prompt for each row of a frame. A batch that the log already has
    is not submitted again.
    """

    def __init__(self, context: StepContext, agent: Agent, batches: Any, rows: list[dict[str, Any]]) -> None:
        self._context = context
        self._agent = agent
        self._batches = batches
        self._rows = rows

    async def run(self) -> int:
        """Send all batches to the provider, then wait for the results of each batch in order. Return the number of
        failed rows.

        If the execution is cancelled, running batches are cancelled at the provider. This is not recorded, because the
        log of the execution has ended by then.
        """
        submitted: list[tuple[int, Mapping[str, Any]]] = []
        first = 0
        failed = 0
        try:
            # All batches are submitted first, because the provider processes them concurrently. Each begins after the
            # last row for which the batch before had room.
            while first < len(self._rows):
                submitted.append((first, await self._submit(first, [batch for _, batch in submitted])))
                first = submitted[-1][1]["last"] + 1
            while submitted:
                # Removed only after its results are recorded, so that a batch that is being collected is cancelled as
                # well.
                failed += await self._collect_when_ended(*submitted[0])
                submitted.pop(0)
        except asyncio.CancelledError:
            # Only a cancelled execution gives its batches up. A parked one continues with them later.
            if self._context.is_given_up():
                # This task is cancelled already, so the requests to the provider need a shield.
                with anyio.move_on_after(MOST_SECONDS, shield=True):
                    for _, batch in submitted:
                        await self._batches.cancel(batch["batch"])
            raise
        return failed

    def _request_id(self, first: int, at: int) -> str:
        """Return the id of the request for one row within its batch. If the batch is submitted again, the request has
        the same id.
        """
        return f"{short_hash(self._context.idempotency_key(_key('submit', first)))}-{at}"

    async def _submit(self, first: int, earlier_batches: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the record of the batch that begins with row `first`. If the log does not have it, submit the batch to
        the provider first.

        The result has the provider's handle, the position of the last row, the errors of rows whose prompt could not be
        rendered, and the reserved consumption.

        The bounds must allow the reservation in addition to those of earlier batches. While the provider accepts no
        batch or cannot be reached, the submission is repeated after a timer.
        """
        tries = 0
        pause = FIRST_PAUSE
        may_exist = False
        while True:
            submission = await self._try_to_submit(first, earlier_batches, tries, may_exist=may_exist)
            if LATER not in submission:
                return submission
            may_exist = submission["may_exist"]
            await self._context.sleep(max(pause, submission[LATER]))
            tries = tries + 1
            pause = min(pause * GROWTH, LONGEST_PAUSE)

    async def _try_to_submit(
        self, first: int, earlier_batches: Sequence[Mapping[str, Any]], tries: int, *, may_exist: bool
    ) -> Mapping[str, Any]:
        """Send the batch that begins with row `first` to the provider, without retries. Return the record of the batch.
        If the provider fails, return instead a dict whose key `LATER` has the seconds to wait before the next attempt.

        `may_exist` is True if an earlier try may have created the batch at the provider.
        """
        # First try: `batch-submit-0`, its repetition after a pause: `batch-submit-0-1`.
        key = _key("submit", first, tries or None)
        batches = self._batches
        context = self._context
        parameters = {"agent": self._agent.name, "first": first, "model": self._agent.model_name}
        record = context.record_of(key)
        is_recorded = record is not None and record.status == COMPLETED
        prompts: dict[str, str] = {}
        errors: dict[str, str] = {}
        requests: list[Any] = []
        # A recorded submission needs no prompts: its result comes from the log.
        if not is_recorded:
            prompts, errors = await self._prompts(first)
            requests = await batches.encode(prompts, MOST)
        last = _last_position(requests, first + len(prompts) + len(errors) - 1, len(prompts))
        reserved = batches.reserved(list(prompts.values())[: len(requests)])
        # "unsaid": {position: error} of rows without a prompt. The positions are text, because JSON has no other keys.
        result = {
            "last": last,
            "unsaid": {at: why for at, why in errors.items() if int(at) <= last},
            "held": {"tokens": reserved.tokens, "cost": reserved.cost},
        }
        since = context.started_at or datetime.now(UTC)
        # Empty if a submission has begun: only the provider's list, or else a person, can tell whether it arrived.
        unchecked = [may_exist] if record is None else []

        async def submit() -> dict[str, Any]:
            # All prompts of the batch have failed, so no request is left to send.
            if not requests:
                return {**result, "batch": None}
            # Always search the provider's list, because a resumed run forgets failed submissions, which may have
            # created the batch (test_a_batch_that_was_made_though_the_provider_failed_is_found_there).
            other_ids = [batch["batch"]["id"] for batch in earlier_batches if batch["batch"] is not None]
            may_exist_now = unchecked.pop() if unchecked else record is not None and await batches.can_list()
            outcome = await batches.submit(
                requests, since, other_ids, may_exist=may_exist_now, leaves_unknown=leaves_outcome_unknown
            )
            if isinstance(outcome, dict):
                return {**result, "batch": outcome}
            return {LATER: outcome.seconds, "why": outcome.reason, "may_exist": outcome.may_exist}

        # A person answers with the id of the batch that the provider shows, or with nothing if it has none.
        def done(batch_id: Any) -> dict[str, Any]:
            is_id = isinstance(batch_id, str) and batch_id
            return {**result, "batch": batches.handle(batch_id, requests, since) if is_id else None}

        # Earlier batches may still be running, so their reservations count as well.
        total_reserved = reserved
        for batch in earlier_batches:
            total_reserved = total_reserved.plus(Reserved(**batch["held"]))
        submitted: Mapping[str, Any] = await context.operation(
            BATCH_SUBMISSION,
            parameters,
            submit,
            key=key,
            repeatable=not is_recorded and await batches.can_list(),
            reserved=total_reserved,
            done=done,
        )
        return submitted

    async def _prompts(self, first: int) -> tuple[dict[str, str], dict[str, str]]:
        """Render the prompts of up to `MOST` rows, beginning with row `first`. Return two dicts: the prompts by request
        id, and the errors by row position for rows whose prompt cannot be rendered.
        """
        names = self._context.names
        prompts = dict[str, str]()
        errors = dict[str, str]()
        for at, row in enumerate(self._rows[first : first + MOST], first):
            try:
                # Templates name the row as `row` or, like other variables, as `state.row`.
                (text,) = await render_texts(
                    [self._context.step.prompt or ""], {**names, "state": {**names["state"], "row": row}, "row": row}
                )
                prompts[self._request_id(first, at)] = text
            except (StepError, ScriptError, TemplateError) as error:
                errors[str(at)] = error_text(error)
        return prompts, errors

    async def _collect_when_ended(self, first: int, batch: Mapping[str, Any]) -> int:
        """Wait until the provider has processed a submitted batch, then record the results of its rows. Return the
        number of failed rows.
        """
        handle = batch["batch"]
        pause = FIRST_PAUSE
        checks = 0
        unreadable_count = 0
        parameters = {"agent": self._agent.name, "first": first}
        while True:
            # The handle is None for a batch without requests: all its prompts failed to render.
            if handle is not None and handle["status"] != ENDED:
                check = functools.partial(self._batches.refresh, handle)
                key = _key("look", first, checks)
                handle = await self._context.operation(BATCH_LOOK, parameters, check, key=key, repeatable=True)
            if handle is None or handle["status"] == ENDED:
                key = _key("results", first, checks)
                ended_batch = {**batch, "batch": handle}
                # Each unreadable result costs one attempt. With the last one, the rows fail instead.
                is_last = unreadable_count >= MOST_UNREAD
                collect = functools.partial(self._collect, key, first, ended_batch, is_last=is_last)
                result = await self._context.operation(
                    BATCH_RESULTS, parameters, collect, key=key, usage=_usage_in, repeatable=True
                )
                if result is not None:
                    return int(result["failed"])
                unreadable_count += 1
            await self._context.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE)
            checks = checks + 1

    async def _collect(self, key: str, first: int, batch: Mapping[str, Any], *, is_last: bool) -> dict[str, Any] | None:
        """Fetch the results of a batch that the provider has processed, and record the result of each row. Return a
        dict: the number of rows, the number of failed rows, and the usage. Return None if the provider cannot be
        reached.
        """
        from divebook.events.arrow.rows import failures_by_position, frame_of

        errors = batch["unsaid"]
        rows = range(first, batch["last"] + 1)
        names = {at: self._request_id(first, at) for at in rows if str(at) not in errors}
        if batch["batch"] is None:
            answers: Mapping[str, Any] | None = {}
        else:
            answers = await self._batches.answers(batch["batch"], list(names.values()), is_last=is_last)
        if answers is None:
            return None
        results = [_row_result(at, errors.get(str(at)), answers.get(names.get(at, ""))) for at in rows]
        recorded_rows = failures_by_position(list(self._context.items.values()))
        failed = sum(error is not None for *_, error in results)
        if not recorded_rows.keys() & set(rows):  # otherwise a process died after it recorded the rows
            number = len(self._context.items)
            operation_id = self._context.place(key).operation_id
            result = storable(frame_of(results), "rows")
            event = catalog.RowsCompleted(number, operation_id, result, len(results), failed, len(self._rows))
            self._context.note(event)
        return {"rows": len(rows), "failed": failed, "usage": _total_usage(answers)}


def _row_result(at: int, error: str | None, answer: Any) -> RowResult:
    """Return the result of one row in recorded form: its position, its value and its error. A row without an answer
    from the provider gets the error "outcome unknown".
    """
    if error is not None:
        return at, None, error
    return (at, None, UNKNOWN) if answer is None else (at, answer.value, answer.error)


def _last_position(requests: list[Any], last: int, prompts: int) -> int:
    """Return the position of the last row in a batch. This is `last` if `requests` has all prompts. If the batch is
    full, `requests` has fewer, and the last row is that of the last request.
    """
    return last if len(requests) == prompts else int(requests[-1].custom_id.rpartition("-")[2])


def _key(kind: str, first: int, number: int | None = None) -> str:
    return f"batch-{kind}-{first}" + ("" if number is None else f"-{number}")


def _total_usage(answers: Mapping[str, Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for answer in answers.values():
        for name, amount in answer.usage.items():
            total[name] = total.get(name, 0) + amount
    return total


def _usage_in(result: Any) -> Mapping[str, int]:
    usage: Mapping[str, int] = result["usage"] if result else {}
    return usage
