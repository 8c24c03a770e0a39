"""`Each`: one step, once per item, in order or several at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from divebook.engine.records import NO_FAILURE, OpenStep
from divebook.engine.retries import Fault, chain_of, names_of, told_chain
from divebook.engine.rolling_back import unknown
from divebook.errors import BoundExceededError, DivergenceError, ItemFailedError, StoreError
from divebook.events import catalog
from divebook.events.frozen import quickly_made
from divebook.execution.definition_places import definition_place
from divebook.execution.groups import Group, after_start
from divebook.execution.raised import fault_of, own_facts
from divebook.execution.recorder import Recorder
from divebook.execution.strands import Suspended
from divebook.questions.kinds import RESOURCE_EXHAUSTED
from divebook.scripting.values import value_text
from divebook.workflow.definition import Workflow
from divebook.workflow.step import KEEP, SKIP, Step

SKIPPED = {"skipped": True}
"""What stands in the log for an item that failed and is left out."""
THROUGH = (BoundExceededError, DivergenceError, StoreError)
"""Errors that are not an item's own."""

Keyed: TypeAlias = dict[str, Any]
"""Items that are the values of a mapping."""
RunItem = Callable[[int | None, Any], Awaitable["Outcome"]]
"""Carries out the step for one item: ``(index, item)``; without `Each` the index is None."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step, or of one item of it."""

    text: str = ""
    """Shown, and kept as the step's output."""
    value: Any = None
    """What `Store` keeps."""
    rollback: Mapping[str, Any] | None = None
    """What the call is given that undoes it, where its step names one."""


class Iterations:
    """The items of one step, from wherever the log has got to."""

    def __init__(self, recorder: Recorder, path: str, workflow: Workflow, step: Step, items: list[Any] | Keyed) -> None:
        assert step.each is not None, "only steps with `Each` have items"  # noqa: S101 - an invariant of the runner
        self._recorder, self._journal, self._strands = recorder, recorder.journal, recorder.waits.strands(path)
        self._path, self._workflow, self._step, self._each = path, workflow, step, step.each
        self._keys = list(items) if isinstance(items, dict) else None
        self._items: Sequence[Any] = list(items.values()) if isinstance(items, dict) else items
        self._keeps_text, self._is_counted = False, False
        tried = self._journal.state.only.get("item")
        self._indexes = [index for index in range(len(self._items)) if tried in (None, index)]

    async def run(self, run_item: RunItem, *, keeps_text: bool = False) -> Outcome:
        """Carry out the items that are not done yet; return all of them together.

        With `keeps_text` the items' texts are kept and not their values, and nothing is known of failed items.
        """
        self._keeps_text = keeps_text
        if self._each.parallel > 1:
            await self._run_parallel(run_item)
        else:
            await self._run_in_order(run_item)
        self._restore_variable()
        ended = self._opened.iterations
        done = [index for index in self._indexes if ended[index] != SKIPPED]
        outcomes = [_unpacked(ended[index]) for index in done]
        texts = [outcome.text for outcome in outcomes]
        document = self._document([self._items[index] for index in done], texts)
        return Outcome(document, texts if keeps_text else [outcome.value for outcome in outcomes])

    @property
    def _opened(self) -> OpenStep:
        opened = self._journal.present.paths[self._path].open
        assert opened is not None, "the step is open while its items run"  # noqa: S101 - an invariant of the runner
        return opened

    async def _run_in_order(self, run_item: RunItem) -> None:
        for index in self._indexes:
            if index not in self._opened.iterations:
                await self._run_one(run_item, index, self._items[index])

    async def _run_parallel(self, run_item: RunItem) -> None:
        """Run items side by side; one that has to wait for an answer does not hold up the others.

        After a failure that ends the step no further item or attempt begins, and those under way are let end: what they
        have called, and paid for, is kept for the resumption.
        """
        ended = self._opened.iterations
        left = deque(index for index in self._indexes if index not in ended)
        suspended: list[Suspended] = []
        failed: list[Exception] = []

        async def work(strand: Callable[[], AbstractContextManager[None]]) -> None:
            with strand():
                while left and not (suspended and self._meets_bound()):  # as the items that are left would
                    index = left.popleft()
                    try:
                        await self._run_one(run_item, index, self._items[index])
                    except Suspended as stopped:
                        suspended.append(stopped)
                    except Exception as error:
                        if self._journal.error is not None:
                            raise
                        failed.append(error)
                        begun = [other for other in left if other in self._unknown_items()]
                        left.clear()
                        left.extend(begun)
                        self._strands.end()

        workers = min(self._each.parallel, len(left))
        tasks = Group()
        with self._strands.side_by_side(workers) as strand:
            async with tasks.running():
                for number in range(1, workers + 1):
                    if not left:  # those that began earlier have taken all
                        with strand():
                            continue
                    tasks.start(work(strand))
                    await after_start(number)
        if failed and not (suspended and self._unknown_items()):
            raise _joined(failed)
        if suspended:
            raise suspended[0]

    def _unknown_items(self) -> set[int | None]:
        """Return the items whose call may have taken effect and is undone then: that is asked before the step fails."""
        return {record.item for record in unknown(self._opened)}

    def _meets_bound(self) -> bool:
        """Whether the path waits for a bound to be raised."""
        pending = self._journal.state.pending_interrupts()
        return any(asked.kind == RESOURCE_EXHAUSTED and self._path in (asked.path, *asked.waiting) for asked in pending)

    async def _run_one(self, run_item: RunItem, index: int, item: Any) -> None:
        if self._recorder.once.begins_nothing:  # an item that began now would only be a long bar (test_pausing.py)
            raise Suspended
        key = None if self._keys is None else self._keys[index]
        total, self._is_counted = None if self._is_counted else len(self._items), True
        self._record(catalog.IterationStarted(index, item, key, total))
        if self._each.as_ and self._each.parallel == 1:
            self._record(catalog.StateMutated((catalog.Mutation("set", self._each.as_, item),)))
        try:
            outcome = await run_item(index, item)
        except Exception as error:
            if self._journal.error is not None or self._keeps_text:
                raise
            self._note_failure(index, item, error)
        else:
            if outcome.rollback is not None and self._step.rollback is not None:
                self._record(catalog.RollbackAdded(self._step.rollback.action, outcome.rollback))
            self._record(catalog.IterationCompleted(index, _packed(outcome), item_key=key))

    def _note_failure(self, index: int, item: Any, error: Exception) -> None:
        """Record that an item failed for good; raise if that ends the step."""
        failure = fault_of(error)
        goes_on = self._each.on_item_error in (KEEP, SKIP) and not any(
            isinstance(link, THROUGH) for link in chain_of(error)
        )
        attempts = self._opened.failures.get(index, NO_FAILURE)[0] + 1
        result = self._result_of(failure, index, item, attempts) if goes_on else None
        names = names_of(told_chain(error)[-1])
        own = own_facts(error, definition_place(self._workflow, self._step, error))
        self._record(catalog.IterationFailed(index, failure.message, names, attempts, result, own.trace, own.place))
        if not goes_on:
            key = None if self._keys is None else self._keys[index]
            raise ItemFailedError(failure.message, index, item, self._results_so_far(), key) from error

    def _result_of(self, failure: Fault, index: int, item: Any, attempts: int) -> dict[str, Any]:
        if self._each.on_item_error == SKIP:
            return SKIPPED
        told = {**failure.to_data(self._step.name, attempts), "iteration": index, "item": item}
        return {"text": failure.message, "value": {"error": told}}

    def _results_so_far(self) -> list[Any]:
        entries = [self._opened.iterations.get(index) for index in range(len(self._items))]
        return [None if entry in (None, SKIPPED) else _unpacked(entry).value for entry in entries]

    def _restore_variable(self) -> None:
        """Give the loop variable back what it held before, as the seed does even for no items."""
        name = self._each.as_
        if not name or self._each.parallel > 1:
            return
        before = self._opened.entry_variables
        mutation = catalog.Mutation("set", name, before[name]) if name in before else catalog.Mutation("delete", name)
        self._record(catalog.StateMutated((mutation,)))

    def _document(self, items: Sequence[Any], texts: Sequence[str]) -> str:
        return "\n\n".join(f"{self._heading(item)}\n\n{text}" for item, text in zip(items, texts, strict=True))

    def _heading(self, item: Any) -> str:
        shown = value_text(item)
        return f"# {self._each.as_}: {shown}" if self._each.as_ else f"# {shown}"

    def _record(self, data: catalog.Payload) -> None:
        self._journal.record(data, self._path, self._step.name)


def _joined(failed: Sequence[Exception]) -> Exception:
    """Return the first error of items, with the others beside it: a resumption makes the calls of all of them again."""
    first, *others = failed
    if isinstance(first, ItemFailedError):
        first.beside += others
    return first


def _packed(outcome: Outcome) -> dict[str, Any]:
    """Return what the log keeps of one item; a value that is its own text is written once."""
    if isinstance(outcome.value, str) and outcome.value == outcome.text:
        return {"text": outcome.text}
    return {"text": outcome.text, "value": outcome.value}


def _unpacked(entry: dict[str, Any]) -> Outcome:
    return Outcome(entry["text"], entry.get("value", entry["text"]))
