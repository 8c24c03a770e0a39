"""Runner of one execution: asks the engine rules for the next instruction of each path, carries it out, and records the
result.

Each active path has one asyncio task, which follows its steps (`PathRunner`). The rules (`divebook.engine.decide`)
choose; this module only carries out. Step handlers are passed in as a mapping from step type to coroutine function, so
the runner does not depend on agents or actions.

One step of a path runs as follows:

1. `decide_path` returns `RunStep`, and the runner records `step_started`.
2. The handler runs. It records the start and the end of each operation (`divebook.runtime.recorder`).
3. The runner records the variable, the rollback and `step_completed` together, or `step_failed`.
4. `decide_path` returns the facts of the next edge, and the loop continues with the next step.

If the process dies between two of these points, the fold of the log shows the step as open. `decide_path` then returns
`RunStep` again with `resumed=True`, and the handler runs from its start with the recorded results of its operations. If
`step_completed` is recorded, the step does not run again.

Code that can be parked while it waits runs in a task of its own (`PausableTask`), apart from the task that waits for
it.
"""

from __future__ import annotations

import asyncio
import operator
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from divebook.definitions.definition import Workflow
from divebook.definitions.functions import FUNCTION, WORKFLOW_FUNCTIONS
from divebook.definitions.step import Step
from divebook.engine.decide import (
    decide_cancellation,
    decide_end,
    decide_joins,
    decide_leaving,
    decide_path,
    decide_return,
    decide_settled,
    decide_start,
)
from divebook.engine.inbox import facts_of
from divebook.engine.instructions import AwaitAnswer, AwaitJoin, CancelPaths, EvaluateConditions, RecordFacts, RunStep
from divebook.engine.retries import Fault, catching
from divebook.engine.state import ENDED, ExecutionState, unknown
from divebook.errors import DivebookError
from divebook.events import catalog
from divebook.events.event import MICROSECONDS
from divebook.questions.question import is_overdue
from divebook.runtime.clock import Chance, StepLog
from divebook.runtime.concurrency import ConcurrentCalls, ContinuedAsNew, Group, Suspended, Waits, after_start
from divebook.runtime.errors import ErrorDetails, error_details, fault_of
from divebook.runtime.journal import Journal
from divebook.runtime.operations import MissPolicy, OperationLog
from divebook.runtime.recorder import Recorder
from divebook.runtime.step import Outcome, Services, StepRun, definition_place
from divebook.runtime.waiting import engine_code

# --- paths -----------------------------------------------------------------------------------------------------------
#
# A path is followed step by step: the rules decide the next instruction, and the path runner carries it out and records
# the result. `Runner` follows all paths of an execution concurrently. `divebook.replay.verify` follows them one after
# the other, against a log.


def _other_cause(failure: BaseException, error: BaseException) -> BaseException | None:
    """Return `error` as the cause of `failure`. If both are the same object, return its present cause, since an error
    that is its own cause would be followed for ever.
    """
    return failure.__cause__ if error is failure else error


class PathRunner(ABC):
    """Base class of runners, which execute the instructions of the engine rules for each path. Subclasses decide in
    which order the paths run, and whether they run concurrently.
    """

    def __init__(self, recorder: Recorder, workflow: Workflow, services: Services) -> None:
        self.journal: StepLog = recorder.journal
        self.workflow = workflow
        self._services = services
        self._recorder = recorder

    @abstractmethod
    def _start(self, path_id: str) -> None:
        """Start to carry out the instructions of a path that has just become active."""

    @abstractmethod
    def _stop(self) -> None:
        """Stop all paths, because one path has failed and the workflow does not continue without it."""

    @abstractmethod
    def _release_joins(self) -> None:
        """Start the paths at joins that need not wait for other paths any more."""

    async def _follow(self, path_id: str) -> bool:
        """Execute the instructions that the engine rules give for a path, until the path ends, reaches a join or has to
        wait.

        Return True if it has ended or reached a join. Return False if it waits for something, failed at a condition or
        cannot start its next step.
        """
        # The state is read anew in each round: other paths and messages change it while this path waits.
        while (instruction := decide_path(self.workflow, self.journal.present, path_id)) is not None:
            match instruction:
                case RecordFacts():
                    self.journal.record_all(instruction.facts)
                    if await self._has_ended(instruction):
                        break
                case RunStep():
                    if not await self._run_step(instruction):
                        return False
                case EvaluateConditions():
                    if not await self._evaluate(instruction):
                        return False
                case AwaitAnswer():
                    self.journal.record_all(instruction.facts)
                    return False
                case AwaitJoin():
                    # The task ends here. `_release_joins` starts a new one when the join is complete.
                    break
        return True

    async def _has_ended(self, record: RecordFacts) -> bool:
        """Return whether the last of some recorded events is the end of a path. If so, also start the paths into which
        it has branched, or stop the other paths if it has failed.
        """
        match record.facts[-1].data:
            case catalog.PathCompleted():
                await self._start_new_paths(record)
                return True
            case catalog.PathFailed():
                self._stop_siblings()
                return True
        return False

    async def _start_new_paths(self, record: RecordFacts) -> None:
        for fact in record.facts:
            if isinstance(fact.data, catalog.PathBranched):
                for number, new_path in enumerate(fact.data.new_paths, 1):
                    self._start(new_path["id"])
                    await after_start(number)

    async def _evaluate(self, instruction: EvaluateConditions) -> bool:
        path = self.journal.state.paths[instruction.path]
        names = {"inputs": self.journal.state.inputs, "state": path.variables}
        # All conditions are evaluated, even after one is true: the path continues on each edge whose condition holds.
        # Results that the log has already are not among them.
        for condition, target in instruction.conditions:
            try:
                result = await self._services.evaluate_condition(condition, names)
            except DivebookError as error:
                step = self.workflow.step(instruction.step)
                message = f'failed to evaluate condition "{condition}" in step "{step.name}": {error}'
                place = definition_place(self.workflow, step, error, condition)
                event = catalog.StepFailed(message, **error_details(error, place)._asdict())
                self.journal.record(event, instruction.path, step.name)
                self._fail(instruction.path, step, fault_of(error, place, message))
                return False
            evaluation = catalog.ConditionEvaluated(condition, target, result)
            self.journal.record(evaluation, instruction.path, instruction.step)
        return True

    # --- one step ----------------------------------------------------------------------------------------------------

    async def _run_step(self, instruction: RunStep) -> bool:
        """Run a step on its path, as the instruction says, and record its end. Return whether the path continues with
        another instruction.

        If the step is suspended, it runs again at once if a message for its path arrived meanwhile. Otherwise the path
        waits.
        """
        # A pause was requested. The step starts when the execution is resumed.
        if self._recorder.operations.is_stopping:
            return False
        run = StepRun(self._recorder, self._services, self.workflow, instruction)
        operations = self._recorder.operations
        # Counted before the code runs: a message that wakes the path while the code unwinds raises the number, and the
        # step runs again instead of waiting for ever.
        wakes = self.journal.present.paths[instruction.path].woken
        if instruction.first:
            self.journal.record_all(instruction.first)
        # A resumed step has its `step_started` in the log already.
        operations.enter(instruction.path, is_new=not instruction.resumed)
        if not instruction.resumed:
            event = catalog.StepStarted(
                run.step.type or "unknown", dict(run.step.parameters) or None, instruction.visit
            )
            self.journal.record(event, instruction.path, run.step.name)
        while True:
            self._recorder.waits.enter(instruction.path)
            try:
                outcome = await run.run()
                # Code may have caught its `DivergenceError` and returned. Its result must not be recorded.
                if operations.diverged:
                    operations.require_agreement(instruction.path)
            except ContinuedAsNew as continuation:
                return self._leave(run, instruction.path, continuation)
            except Suspended:
                wakes_before = wakes
                wakes = self.journal.state.paths[instruction.path].woken
                # No message has arrived, so the path waits. Its task ends, and `wake` starts another one.
                if wakes_before == wakes:
                    return False
                operations.enter(instruction.path, is_new=False)
            except Exception as error:  # noqa: BLE001 - any error of step code is the recorded failure of the step
                # If the log cannot be written, errors of step code are its consequence, and cannot be recorded.
                if self.journal.error is not None:
                    raise self.journal.error from _other_cause(self.journal.error, error)
                # A divergence counts more than the error that the code raised because of it.
                cause = operations.diverged.get(instruction.path, error)
                return self._give_up(run, instruction.path, cause)
            else:
                self._complete(run, instruction.path, outcome)
                return True

    def _leave(self, run: StepRun, path: str, continuation: ContinuedAsNew) -> bool:
        """Record that the execution continues as a successor, which has started: its step, its path and the execution
        end in one commit. Return False, because the path does not continue.
        """
        # No await between these records, so that they share one commit.
        self.journal.record(catalog.StepCompleted(f"continues as {continuation.successor}"), path, run.step.name)
        self.journal.record(catalog.PathCompleted(run.step.name), path)
        self.journal.record(
            catalog.ExecutionContinuedAsNew(continuation.successor, continuation.reason, continuation.inputs)
        )
        return False

    def _give_up(self, run: StepRun, path: str, error: Exception) -> bool:
        """Record the failure of a step. Return whether its path continues at the step that a `Catch` policy names.

        Otherwise the path fails. A failure is not caught if the execution was stopped, or if the step's code diverged
        from the log.
        """
        step = run.step
        place = definition_place(self.workflow, run.step, error)
        failure = fault_of(error, place)
        policy = catching(step, failure)
        operations = self._recorder.operations
        gives_up = policy is None or self.journal.state.stopped is not None or path in operations.diverged
        # A resumption repeats these operations. A caught failure is final, so it names none.
        causes = operations.failures_behind(path, error) if gives_up else None
        details = (
            ErrorDetails() if failure.item else error_details(error, place)
        )  # for an item, the log has the details already
        self.journal.record(catalog.StepFailed(failure.message, causes, failure.index, *details), path, step.name)
        if policy is None or gives_up:
            self._fail(path, step, failure)
            return False
        # The results of the items before the failed one stay available to the step that handles the failure.
        if failure.item is not None and step.store:
            results_mutation = catalog.Mutation("set", step.store, failure.item.results)
            self.journal.record(catalog.StateMutated((results_mutation,)), path, step.name)
        if policy.store:
            failures = max((count for count, _ in run.open_step.failures.values()), default=0)
            mutation = catalog.Mutation("set", policy.store, failure.to_data(step.name, failures + 1))
            self.journal.record(catalog.StateMutated((mutation,)), path, step.name)
        self.journal.record(catalog.StepCaught(policy.step, failure.message), path, step.name)
        return True

    def _complete(self, run: StepRun, path_id: str, outcome: Outcome) -> None:
        step = run.step
        # A fresh path has used nothing, and reading the open step would fold the state.
        usage = None if path_id in self._recorder.operations.fresh else run.open_step.usage.to_dict()
        facts: list[catalog.Payload] = []
        if step.store:
            facts.append(catalog.StateMutated((catalog.Mutation("set", step.store, outcome.value),)))
        if outcome.rollback is not None and step.rollback is not None:
            facts.append(catalog.RollbackAdded(step.rollback.action, outcome.rollback))
        facts.append(catalog.StepCompleted(outcome.text, step.store, usage or None))
        first, *more = facts
        self.journal.record(first, path_id, step.name, more=more)

    def _fail(self, path_id: str, step: Step, failure: Fault) -> None:
        """Record the failure of a path after one of its steps has failed. The first failed path stops the other paths,
        unless the workflow continues on failure.
        """
        error = failure.message if self.workflow.manner.keeps_text else failure.shown(step)
        self.journal.record(catalog.PathFailed(error, failure.reason), path_id)
        # A join may wait for the failed path only; it must learn that this path will not arrive.
        if not self._stop_siblings():
            self._release_joins()

    async def fail_unsettled(self) -> None:
        """Fail the paths that cannot find out whether their interrupted calls took effect, because their code was
        changed and does not request these calls again
        (test_changed_code_that_waits_before_the_call_to_be_settled_fails).
        """
        for path in self.journal.state.unsettled:
            if path.phase == ENDED or not unknown(path.open):
                continue
            step = self.workflow.step(path.current_step)
            error = await self._recorder.operations.unsettled_error(path)
            place = definition_place(self.workflow, step, error)
            failure = fault_of(error, place)
            event = catalog.StepFailed(failure.message, None, failure.index, *error_details(error, place))
            self.journal.record(event, path.id, step.name)
            self._fail(path.id, step, failure)

    def _stop_siblings(self) -> bool:
        """Stop the other paths if one path has failed, unless the workflow continues on failure. Return whether they
        were stopped.
        """
        stops = isinstance(decide_end(self.workflow, self.journal.present), CancelPaths)
        if stops:
            self._stop()
        return stops


# --- timers ----------------------------------------------------------------------------------------------------------
#
# Times at which a path must be checked without a message: a signal is late, a question expires.


class Alarms:
    """Timers of the paths of one execution. At the end of a timer, due questions expire, and its path checks whether it
    can continue.

    Parameters
    ----------
    claim_expired
        Mark a question of an execution as expired.
    """

    def __init__(
        self, journal: Journal, group: Group, runner: Runner, claim_expired: Callable[[str, str], Awaitable[object]]
    ) -> None:
        self._journal = journal
        self._group = group
        self._runner = runner
        self._claim_expired = claim_expired

    def set(self, path: str, deadline: int) -> None:
        """Set a timer that checks whether a path can continue, at a time in microseconds since 1970."""
        # In the background: a timer alone does not keep the execution driven.
        self._group.spawn(self._ring(path, deadline), is_background=True)

    async def expire(self, interrupt_id: str) -> None:
        """Make an open question expire before its time, and continue the paths that wait for it. An answer that was
        stored first counts instead.
        """
        # The store decides between an answer and the expiry: the first one that it has counts, and `take` reads it
        # from the inbox.
        await self._claim_expired(self._journal.execution_id, interrupt_id)
        await self._runner.take()

    def set_all(self) -> None:
        """Set a timer for each deadline (end of a sleep or signal wait, expiry of a question) in the state of the
        execution.
        """
        for path, deadline in self._journal.state.deadlines():
            self.set(path, deadline)

    def stop(self) -> None:
        """Cancel all timers of the execution."""
        self._group.cancel_background()

    async def restart(self) -> None:
        """Set the timers again when an execution whose code was parked in memory continues. Deadlines that have passed
        meanwhile are handled first.
        """
        for path, deadline in self._journal.state.deadlines():
            if deadline <= self._journal.clock.now():
                await self._ring(path, deadline)
            else:
                self.set(path, deadline)

    async def _ring(self, path: str, deadline: int) -> None:
        """Wait until a deadline, expire the questions that are due and still unanswered, and make the path check
        whether it can continue.
        """
        remaining = deadline - self._journal.clock.now()
        # In a loop, because the clock may wake early.
        while remaining > 0:
            with engine_code():  # a clock may be user code
                await self._journal.clock.sleep(remaining / MICROSECONDS)
            remaining = deadline - self._journal.clock.now()
        if not self._runner.may_continue():
            return
        # All questions due by now are marked together, so that one read of the inbox records them all.
        questions = self._journal.state.pending_interrupts()
        expired = [question for question in questions if is_overdue(question.expires_us, deadline)]
        for question in expired:
            await self._claim_expired(self._journal.execution_id, question.id)
        if expired:
            await self._runner.take()
        # Asked again: the execution may have stopped while the questions were marked.
        if self._runner.may_continue():
            self._runner.wake(path)


# --- pausable tasks --------------------------------------------------------------------------------------------------


class PausableTask:
    """Asyncio task whose waiting code can stay in memory (be parked) while no caller waits for the task. The code
    continues when `run` is called again.
    """

    def __init__(self) -> None:
        self.is_parked = False
        """True if the task is parked and has no waiting caller."""
        self._task: asyncio.Task[None] | None = None
        self._pause_future: asyncio.Future[None] | None = None
        """Future that is done when the task has ended or is parked."""

    @property
    def has_ended(self) -> bool:
        """True if the task has ended, or was never started."""
        return self._task is None or self._task.done()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that runs the coroutine `work`."""
        self._task = asyncio.get_running_loop().create_task(work, name="divebook-paths")
        self._task.add_done_callback(self._note_end)

    def park(self) -> None:
        """Mark the task as parked: its code stays in memory, and the caller that waits in `run` returns."""
        # Set before the wait ends: `run` must not take the parked task for one that has ended.
        self.is_parked = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._pause_future is not None and not self._pause_future.done():
            self._pause_future.set_result(None)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if self.is_parked and not task.cancelled():
            task.exception()  # the error of discarded code does not matter, because the code is replayed
        self._end_wait()

    async def run(self, continuation: Coroutine[Any, Any, None] | None = None) -> None:
        """Resume the task, and return when it has ended or its code waits again (is parked). Raise the exception of the
        task, if it has one.

        If this call is cancelled, it cancels the task and waits for its end.
        """
        assert self._task is not None  # noqa: S101 - `begin` comes first
        self.is_parked = False
        self._pause_future = asyncio.get_running_loop().create_future()
        try:
            # The future exists before the continuation runs, since the work may park again at once.
            if continuation is not None:
                await continuation
            await self._pause_future
        except BaseException:
            # Without the wait, code of the task could still record while the caller closes the journal.
            self._task.cancel()
            await self.wait_end()
            raise
        # Only an ended task has a result.
        if not self.is_parked:
            self._task.result()

    async def wait_end(self) -> None:
        """Wait until the task has ended. Return at once if it was never started."""
        if self._task is not None:
            await asyncio.wait((self._task,))


class Runner(PathRunner):
    """Runner of one execution, which runs all its paths concurrently.

    Parameters
    ----------
    journal
        The log in which the recorder records.
    may_park
        True if the code of its single path may stay parked in memory between calls of `run`. Otherwise it is unwound.
    """

    journal: Journal

    def __init__(
        self, journal: Journal, recorder: Recorder, workflow: Workflow, services: Services, *, may_park: bool = False
    ) -> None:
        super().__init__(recorder, workflow, services)
        self.journal = journal
        self._group = Group()
        self._alarms = Alarms(self.journal, self._group, self, services.claim_expired)
        self._recorder.waits.idle = self._note_idle
        self._recorder.waits.changed = self._note_blocked
        self.blocked: Callable[[], None] = lambda: None
        """Called when the execution may have become blocked or unblocked; see `is_blocked`."""
        self._pausable_task = PausableTask() if may_park else None
        self._parked_calls: ConcurrentCalls | None = None
        """Counter of the parked concurrent tasks, if the code is parked."""
        self._cancel_reason: str | None = None
        self._pause_reason: str | None = None
        self._gives_back = False
        self._driven: set[str] = set()
        """Paths that have a task, including tasks that have not started yet."""

    def end_as_cancelled(self, reason: str) -> None:
        """Stop all paths, and end the execution as cancelled. Call on the engine's loop."""
        if self._cancel_reason is None:
            self._cancel_reason = reason
            # Set before `_stop`: the cancelled calls look at it while they unwind.
            self._recorder.is_given_up = True
            self._stop()
            self.blocked()

    def _stop(self) -> None:
        """Cancel the tasks of all paths of the execution, each at its next await."""
        # Buffered facts are recorded first, while code of the paths still runs.
        self._recorder.leave()
        self.journal.is_stopping = True
        self._group.cancel_all()

    def pause_when_idle(self, reason: str, *, gives_back: bool = False) -> None:
        """Start no more operations, wait for running calls that must not be repeated, then stop all paths and record
        the pause of the execution. Call on the engine's loop.

        With `gives_back`, the execution returns to its queue.
        """
        if self._pause_reason is None and self._cancel_reason is None:
            self._pause_reason = reason
            self._gives_back = gives_back
            self._recorder.stop_when_idle(self._stop)

    def abandon_calls(self) -> None:
        """Stop waiting for running calls that have a rollback. The execution is left as if the process had ended."""
        self._recorder.is_abandoned = True

    async def leave_workspaces(self) -> None:
        """Close the workspaces in which calls of the execution ran. The next call in a workspace opens it again."""
        await self._recorder.workspaces.close()

    async def take(self) -> bool:
        """Record all unread messages of the execution in order, and continue the paths that waited for them. Call on
        the engine's loop.

        Order matters: reading a message before an earlier one would hide the earlier one for ever. Return False if this
        runner has ended. The next driver of the execution then reads the messages.
        """
        woken = await self._record_messages()
        for path in woken or ():
            self.wake(path)
        return woken is not None

    async def _record_messages(self) -> list[str] | None:
        """Record the unread messages. Return the ids of the paths that waited for them, or None if the runner has
        ended.
        """
        if not self.may_continue():
            return None
        messages = await self._services.inbox(self.journal.execution_id, self.journal.state.taken)
        if not self.may_continue():  # it ended meanwhile
            return None
        facts = facts_of(self.journal.state, messages)  # another call may have read some of them meanwhile
        # `woken` counts the messages for a path. A changed number shows that the path can check its condition again.
        before = self.journal.state.paths
        self.journal.record_all(facts)
        return [path.id for path in self.journal.state.active_paths() if path.woken != before[path.id].woken]

    def may_continue(self) -> bool:
        """Return whether this runner reads messages and its paths may continue."""
        return self._group.is_open and not self._group.is_cancelled and not self.is_parked

    def wake(self, path: str) -> None:
        """Make a waiting path check whether it can continue with the messages that have arrived. If its task has ended,
        start a new one.
        """
        # The code of the path waits in memory (for example one item of a parallel step). Otherwise the code has been
        # unwound.
        if path in self._driven:
            self._recorder.waits.concurrent_calls(path).wake()
        else:
            self._start(path)

    async def run(self, first: Callable[[], object] = lambda: None) -> None:
        """Run the execution until it ends, or can only continue with an answer or a signal.

        The records of `first` share one commit with the first work.

        Raises
        ------
        StoreError
            The log could not be written. The execution can be resumed from the events in the store.
        """
        try:
            if self._pausable_task is None:
                first()
                await self._run_paths()
            else:
                await self._run_pausable(self._pausable_task, first)
        except Exception:
            if self.journal.error is not None:  # each path raised this error or an error caused by it
                raise self.journal.error from None
            raise
        if not self.is_parked:
            self._end()
        await self.journal.durable()

    async def _run_pausable(self, task: PausableTask, first: Callable[[], object]) -> None:
        if self._parked_calls is not None:
            await task.run(self._continue_parked(self._parked_calls, first))
        else:
            task.begin(self._run_paths())
            first()  # after `begin`, so that the write at the end of the turn comes after the first work
            await task.run()

    async def _run_paths(self) -> None:
        async with self._group.running():
            self._recorder.waits.deadlines = self._alarms.set
            self._recorder.waits.expire = self._alarms.expire
            # Timers are set before the inbox is read, and the paths start last: a path then finds every message and
            # expiry that exists. Nothing waits yet in an execution without paths.
            # An execution of which nothing is written has none, so that its state need not be folded to see that.
            is_new = not self.journal.written or not self.journal.present.paths
            if is_new:
                self.journal.record_all((decide_start(self.workflow),))
            else:
                self._alarms.set_all()
            if self.journal.written:  # before its first write, an execution can have no messages
                await self._record_messages()
            # The process may have died after a path had failed, and before the failure stopped the other paths.
            if is_new or not self._stop_siblings():
                await self._drive_active(is_new=is_new)

    # --- parking -----------------------------------------------------------------------------------------------------

    @property
    def is_parked(self) -> bool:
        """True if the code of the execution waits in memory without being driven, so that other processes may drive the
        execution.
        """
        return self._parked_calls is not None

    @property
    def parked_tasks(self) -> int:
        """Number of concurrent tasks whose waiting code is parked in memory and can continue; 0 if it is not parked."""
        return self._parked_calls.parked if self._parked_calls is not None and self._parked_calls.is_idle else 0

    @property
    def is_blocked(self) -> bool:
        """True if every running path waits for the answer to a question that a running call has asked, so that nothing
        else can happen before the answer.

        The execution stays driven, because leaving it would abort the call.
        """
        is_stopped = self._cancel_reason is not None
        return bool(self._driven) and not is_stopped and all(map(self._recorder.waits.is_blocked, self._driven))

    def _note_blocked(self) -> None:
        self.blocked()

    def _note_idle(self, calls: ConcurrentCalls) -> None:
        """Stop driving the code of a path that can only continue with an answer or a signal. The code stays in memory
        (parked), or is ended by raising `Suspended` in it.
        """
        # A runner that was cancelled or has ended must not be parked: its code has to end.
        if self._pausable_task is None or not self.may_continue():
            calls.unwind()
            return
        self._parked_calls = calls
        calls.are_parked = True
        # The deadlines stay in the state. `wake_at` of the execution makes a worker or this process resume it in
        # time.
        self._alarms.stop()
        self._pausable_task.park()

    async def _continue_parked(self, calls: ConcurrentCalls, first: Callable[[], object]) -> None:
        """Resume waiting code that was kept in memory (parked). Before that, record the events in `first` and the
        messages that have arrived meanwhile.
        """
        self._parked_calls = None
        calls.are_parked = False
        # The resumption, the messages and the first call of the continued code share one commit.
        with self.journal.delayed_writes():
            first()
            await self.take()
        await self._alarms.restart()
        # The messages concerned nothing that the code waits for, so it is parked again.
        if calls.is_idle:
            self._note_idle(calls)

    def unwind(self) -> PausableTask | None:
        """End the code that is parked in memory, if there is any, by raising `Suspended` in it. Return the task of the
        code, which then ends soon. Return None for a runner that never parks code.
        """
        if self._parked_calls is not None:
            self._parked_calls.unwind()
        return self._pausable_task

    # --- scheduling of paths -----------------------------------------------------------------------------------------

    async def _drive_active(self, *, is_new: bool) -> None:
        """Run every active path until it ends or waits. A single path without deadlines runs in the present task,
        because a new task would cost time. The path of a new execution has none.

        Passed deadlines are handled before that (test_a_later_process_finds_that_it_has_expired).
        """
        present = self.journal.present
        active = [path.id for path in present.active_paths()]
        if len(active) == 1 and not self._driven and (is_new or not present.deadlines()):
            # Noted before the first await, so that a message does not start a second task.
            self._driven.add(active[0])
            await self._drive(active[0])
            return
        for path_id in active:
            self._start(path_id)

    def _end(self) -> None:
        """Record the end or the pause of the execution, once the tasks of all paths have ended. If the execution only
        waits, record nothing.

        In this order: a cancellation, a pause, the failure of a path that stops the others, the regular end.
        """
        if self.journal.present.is_over:
            return
        if self._cancel_reason is not None:
            # The paths end first. Only then can the rules decide whether a rollback is needed.
            self.journal.record_all(decide_leaving(self.journal.state, self._cancel_reason).facts)
            self.journal.record_all(decide_cancellation(self.journal.state, self._cancel_reason).facts)
            return
        end = decide_end(self.workflow, self.journal.state)
        # A pause that comes too late changes nothing: without active paths the execution has reached its regular end.
        if self._pause_reason is not None and self.journal.state.active and not isinstance(end, CancelPaths):
            self.journal.record(catalog.ExecutionPaused(self._pause_reason))
            if self._gives_back:
                self.journal.record_all(decide_return(self.journal.state))
            return
        if isinstance(end, CancelPaths):
            self.journal.record_all(decide_leaving(self.journal.state, end.reason).facts)
            end = decide_end(self.workflow, self.journal.state, is_left=True)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)

    # --- one path ----------------------------------------------------------------------------------------------------

    def _start(self, path_id: str) -> None:
        """Run a path in a task of its own, unless the path has a task already."""
        if path_id not in self._driven:
            self._group.spawn(self._drive(path_id))
            self._driven.add(path_id)
            self.blocked()

    async def _drive(self, path_id: str) -> None:
        """Execute the instructions that the engine rules give for one path, until the path ends or has to wait. Then
        check the joins and the end of the execution.
        """
        try:
            has_arrived = await self._follow(path_id)
        finally:
            # Before the joins and the end are checked, because both look at the paths that still have a task.
            self._driven.discard(path_id)
            self.blocked()
        if has_arrived:
            self._release_joins()
        # During a rollback, a path may have run only to find out whether an interrupted call took effect.
        if self._cancel_reason is None and self._pause_reason is None:
            settled = decide_settled(self.journal.present, path_id)
            self.journal.record_all(() if settled is None else settled.facts)
        self._end_if_idle()

    def _end_if_idle(self) -> None:
        """Record the end of the execution, or start its next rollback, if its last path has ended. The tasks of the
        paths may still be finishing.
        """
        if self._driven or self._cancel_reason is not None or self._pause_reason is not None:
            return
        end = decide_end(self.workflow, self.journal.present)
        if isinstance(end, RecordFacts):
            self.journal.record_all(end.facts)
            if isinstance(end.facts[0].data, catalog.PathStarted):  # the next part of a rollback
                self._start(end.facts[0].path)

    def _release_joins(self) -> None:
        """Start the paths at joins that need not wait for other paths any more. Their tasks ended when they reached the
        join, so they get new tasks.
        """
        if not self.workflow.has_joins:  # avoids folding the state for every path that ends
            return
        for record in decide_joins(self.workflow, self.journal.present):
            self.journal.record_all(record.facts)
            self._start(record.facts[-1].path)


# --- parked executions -----------------------------------------------------------------------------------------------
#
# Code of a waiting execution is kept in memory, so that an answer need not replay everything before it.
#
# To other processes a parked execution looks like any waiting one: it is not driven, and its lease is released. If this
# process drives it again and its log is unchanged, its code continues. If the log has changed, or memory is needed, the
# code is unwound with `Suspended` and later replayed. Both ways record the same events
# (`tests/runtime/test_resting.py`).


MOST = 64
"""Maximum number of parked concurrent tasks in all executions of a process."""


class ParkedRuns:
    """All runners of this process whose waiting code is parked (kept) in memory, least recently used first. Lives on
    the engine's loop.

    Parameters
    ----------
    most
        Maximum number of parked concurrent tasks. With 0, all waiting code is unwound and replayed.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._parked: dict[ParkedRun, Runner] = {}
        self._orphaned: list[dict[ParkedRun, Runner]] = []
        """Runners of a dead loop, or of the process from which this one was forked. They are kept referenced, because
        Python would unwind their coroutines when it frees them."""

    def __len__(self) -> int:
        return sum(runner.parked_tasks for runner in self._parked.values())

    def keep(self, parked: ParkedRun, runner: Runner) -> None:
        """Keep a runner whose waiting code stays in memory. At most `most` tasks may be kept: above that number, the
        runners that were parked first are unwound.
        """
        self._parked[parked] = runner
        # `unwind` removes the runner from `_parked`, so the loop ends.
        while len(self) > self.most:
            next(iter(self._parked)).unwind()

    def take(self, parked: ParkedRun) -> Runner | None:
        """Remove the runner that was kept for an execution (given as its `ParkedRun`), and return it. Return None if
        none was kept.
        """
        return self._parked.pop(parked, None)

    def unwind_all(self) -> list[ParkedRun]:
        """End all code that is parked in memory, by unwinding it. Return the `ParkedRun` of each execution that had
        such code.
        """
        return [parked for parked in list(self._parked) if parked.unwind()]

    def forget(self) -> None:
        """Forget all code that is parked in memory, without unwinding it, because its event loop is gone."""
        self._orphaned += [self._parked] if self._parked else []
        self._parked = {}


PARKED_RUNS = ParkedRuns()
"""The parked code of this process."""


def _code_identity(workflow: Workflow, services: Services) -> tuple[object, object]:
    """Return the function and the agent of a workflow's single step, to notice if one is redefined while the code is
    parked in memory. Each is None if there is none. For other workflows both are None.
    """
    if len(workflow.steps) != 1:
        return None, None
    step = workflow.first_step
    function = WORKFLOW_FUNCTIONS.get(workflow.name) if step.type == FUNCTION else None
    return function, services.agent_of_step(step)


class ParkedRun:
    """Holder of the waiting code of one execution while it is parked (kept in memory). The code is later either
    continued, or unwound and replayed from the log.

    Parameters
    ----------
    owner
        The driver of the execution. It must stay registered while code is parked.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._identity: tuple[object, object] = (None, None)
        """The function and the agent of the single step, at the time its code started."""
        self._unwinding: list[PausableTask] = []

    def begin(
        self,
        workflow: Workflow,
        journal: Journal,
        services: Services,
        chance: Chance,
        miss_policy: MissPolicy | None = None,
    ) -> Runner:
        """Create a runner for an execution. Its waiting code can be parked in memory if the workflow is a function or a
        single agent step.

        Other workflows have few operations per step to replay. `miss_policy` is the miss policy of a what-if.
        """
        self._identity = _code_identity(workflow, services)
        has_code = self._identity != (None, None)
        may_park = has_code and PARKED_RUNS.most > 0 and journal.present.rolling_back is None
        waits = Waits(journal)
        operations = OperationLog(journal, waits, miss_policy)
        services_of_recorder = services.texts, services.policy, services.workspace_provider, services.tracing
        recorder = Recorder(operations, waits, chance, *services_of_recorder)
        return Runner(journal, recorder, services.with_source(workflow), services, may_park=may_park)

    def keep(self, runner: Runner, *, is_stored: bool) -> None:
        """Keep the waiting code of a runner in memory. The code is unwound instead if it cannot continue, or if its log
        could not be written (`is_stored` is False).
        """
        runner.journal.park()
        if runner.parked_tasks and is_stored:
            PARKED_RUNS.keep(self, runner)
        else:
            self._unwind(runner)

    def take(self, state: ExecutionState, code: Mapping[str, str], services: Services) -> Runner | None:
        """Return the runner whose code is parked in memory, if the code can continue from `state` and its functions are
        unchanged (`code` has their digests). Otherwise unwind the code and return None.

        If a function or agent was redefined, the code is replayed with the new definition, even if both are equal
        (test_a_function_that_was_defined_anew_is_replayed).
        """
        runner = PARKED_RUNS.take(self)
        if runner is None:
            return None
        is_unchanged = runner.parked_tasks and runner.journal.state is state
        is_same = all(map(operator.is_, self._identity, _code_identity(runner.workflow, services)))
        # The journal of the runner has the same state object only if no other process has appended to the log since.
        # The agent and the function are compared by identity, and further functions by their digests.
        if is_unchanged and is_same and code == dict(state.code):
            return runner
        self._unwind(runner)
        return None

    def unwind(self) -> ParkedRun | None:
        """End the code that is parked in memory by unwinding it. Return this object if there was such code,
        else None.
        """
        runner = PARKED_RUNS.take(self)
        if runner is None:
            return None
        self._unwind(runner)
        return self

    def _unwind(self, runner: Runner) -> None:
        task = runner.unwind()
        if task is not None and not task.has_ended:
            self._unwinding.append(task)

    async def wait_end(self) -> None:
        """Wait until the tasks of all code that was unwound here have ended."""
        while self._unwinding:
            await (task := self._unwinding[-1]).wait_end()
            # Another caller may wait here at the same time, and more code may have been unwound meanwhile.
            self._unwinding = [other for other in self._unwinding if other is not task]
