"""One life of a process: it takes up executions, a person answers its questions, and it may die at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from divebook.definitions.definition import Workflow
from divebook.definitions.json_schemas import FITTING
from divebook.engine.evolve import fold
from divebook.engine.inbox import ANSWER, SIGNAL, Message, answer_payload, signal_payload
from divebook.engine.instructions import Fact
from divebook.engine.state import ExecutionState, awaited_signals
from divebook.errors import CorruptStoreError, ExecutionError, ExecutionNotFoundError, LeaseHeldError, StoreError
from divebook.events import catalog
from divebook.events.catalog import COMPLETED, FAILED, WAITING
from divebook.questions import Question, checked_answer
from divebook.runtime.clock import Ids
from divebook.runtime.commit import GroupCommit, StoreCalls
from divebook.runtime.concurrency import Waits
from divebook.runtime.journal import Journal
from divebook.runtime.leases import LeaseKeeper
from divebook.runtime.operations import OperationLog
from divebook.runtime.queueing import next_attempt
from divebook.runtime.recorder import Recorder
from divebook.runtime.runner import Runner
from divebook.runtime.step import Handler, Services
from divebook.steps.function import FunctionStep
from divebook.steps.handlers import wait_step
from divebook.stores.append import FIRST_TOKEN
from divebook.stores.follow import follow
from divebook.stores.leases import LEASE_SECONDS, Lease, Owner
from tests.simulation.audit import Audit
from tests.simulation.disk import CommitFault, FaultyStore
from tests.simulation.machine import Machine, StuckError, VirtualLoop
from tests.simulation.meddling import cancel_elsewhere, disturb, set_clock
from tests.simulation.scenario import SIGNAL_NAME, Scenario
from tests.simulation.world import FAILURE, World, result_of

BUDGET = 30 * 24 * 3600.0
"""Virtual seconds in which a life must come to its end."""
ROUNDS = 200
"""How often an execution may be taken up again in one life."""
POLL = 4 * 3600.0


@dataclass(frozen=True)
class Life:
    """What goes wrong in one life of the process."""

    fault: CommitFault | None = None
    kill_at: float | None = None
    """Virtual seconds after its beginning."""
    cancel_at: float | None = None
    pause_at: float | None = None
    jump_at: float | None = None
    """When somebody sets the clock."""
    steal_at: float | None = None
    """When another process cancels what this one drives."""
    calm: bool = False


class Subject:
    """One execution and everything around it that outlives a process."""

    def __init__(self, execution_id: str, scenario: Scenario, disk: FaultyStore, world: World) -> None:
        self.id, self.scenario, self.world = execution_id, scenario, world
        self.audit = Audit(execution_id, disk, world)

    @property
    def workflow(self) -> Workflow:
        """The workflow that runs."""
        return self.scenario.workflow

    def services(self, inbox: Inbox) -> Services:
        """Return what its runner is given."""

        async def no_child(_workflow: str, _inputs: Any) -> dict[str, Any]:
            raise NotImplementedError("simulated functions start no other workflow")

        handlers: dict[str, Handler] = {
            "action": self.world.action,
            "wait": wait_step,
            "function": FunctionStep(no_child, no_child, no_child),
        }

        async def never_expires(_execution_id: str, interrupt_id: str) -> None:
            raise NotImplementedError(f"simulated questions do not expire: {interrupt_id}")

        evaluated = self.world.condition_holds, self.world.items_of, self.world.fill
        return Services(handlers, *evaluated, inbox.above, never_expires)


class Inbox:
    """What people send to an execution in one life of its process."""

    def __init__(self) -> None:
        self._messages: list[Message] = []

    async def above(self, _execution_id: str, after: int) -> list[Message]:
        """Return the messages with higher numbers."""
        return [message for message in self._messages if message.number > after]

    def answer(self, state: ExecutionState, interrupt_id: str, response: Mapping[str, Any]) -> None:
        """Answer a question."""
        self._send(state, ANSWER, interrupt_id, answer_payload(response, "a person"))

    def signal(self, state: ExecutionState) -> None:
        """Send the signal that scenarios wait for."""
        self._send(state, SIGNAL, f"signal {len(self._messages)}", signal_payload(SIGNAL_NAME, "gone"))

    def _send(self, state: ExecutionState, kind: str, key: str, payload: Any) -> None:
        number = 1 + max(state.taken, *(message.number for message in self._messages), 0)
        self._messages.append(Message(state.execution_id, kind, key, payload, "a person", 0, number))


class WatchedJournal(Journal):
    """A journal that tells of events which do not fit: the engine may take the error for that of a step."""

    audit: Audit

    def _fold(self) -> None:
        """Fold what was recorded."""
        super()._fold()
        if isinstance(self.error, CorruptStoreError):
            self.audit.violations.append(str(self.error))


class Process:
    """One life."""

    def __init__(
        self, machine: Machine, disk: FaultyStore, subjects: Sequence[Subject], random: Random, *, honest: bool
    ) -> None:
        self._machine, self._disk, self._subjects = machine, disk, subjects
        self._random, self._honest = random, honest
        self._runners: dict[str, Runner] = {}
        self._calm = True
        self.is_dead = False

    def live(self, life: Life) -> None:
        """Run until every execution is done, or the process dies.

        Raises
        ------
        AssertionError
            Something that must hold does not.
        """
        self._calm = life.calm
        loop = VirtualLoop(self._machine, None if life.calm else self._random)
        failures: list[BaseException] = []
        loop.set_exception_handler(lambda _, context: failures.append(context.get("exception") or StuckError(context)))
        self._disk.plug_in(life.fault)
        for subject in self._subjects:
            subject.world.dead, subject.world.calm = False, life.calm
        main = loop.create_task(self._main(life))
        self._disk.power = lambda: self._die(main)
        if life.kill_at is not None:
            loop.call_later(life.kill_at, self._die, main)
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(main)
        finally:
            _close(loop)
        if failures:
            raise AssertionError(f"inside the loop: {failures[0]!r}") from failures[0]

    def _die(self, main: asyncio.Task[None]) -> None:
        """End: from now on nothing that still runs has any effect."""
        self.is_dead = True
        self._disk.unplug()
        for subject in self._subjects:
            subject.world.dead = True
        main.cancel()

    async def _main(self, life: Life) -> None:
        commit, keeper = GroupCommit(StoreCalls(self._disk)), LeaseKeeper(StoreCalls(self._disk))
        disturb(self._disturbances(life))
        begun = self._machine.uptime
        try:
            async with asyncio.timeout(BUDGET), asyncio.TaskGroup() as tasks:
                for subject in self._subjects:
                    tasks.create_task(self._drive(subject, commit, keeper))
        except TimeoutError as error:
            raise StuckError(f"not done after {self._machine.uptime - begun:.0f} virtual seconds") from error

    def _disturbances(self, life: Life) -> list[tuple[float | None, Callable[[], object]]]:
        """Return what happens, and when."""
        runners, random = self._runners, self._random

        def steal() -> None:
            for subject in self._subjects:
                if subject.id in runners:
                    subject.audit.live = lambda: None  # what is believed here is no longer so
                    cancel_elsewhere(subject.id, self._disk, self._machine)

        return [
            (life.cancel_at, lambda: [runner.end_as_cancelled("by the simulation") for runner in runners.values()]),
            (life.pause_at, lambda: [runner.pause_when_idle("by the simulation") for runner in runners.values()]),
            (life.jump_at, lambda: set_clock(self._machine, random)),
            (life.steal_at, steal),
        ]

    # --- one execution ---------------------------------------------------------------------------------------------

    async def _drive(self, subject: Subject, commit: GroupCommit, keeper: LeaseKeeper) -> None:
        """Take an execution up, again and again, until it has come to what it must."""
        rounds = 0
        while rounds < ROUNDS:
            state = self._state(subject)
            if state.lifecycle == COMPLETED or (state.lifecycle == FAILED and self._is_final(subject)):
                return
            try:
                await self._run_once(subject, commit, keeper, state)
            except LeaseHeldError:
                await asyncio.sleep(LEASE_SECONDS)
                continue  # the owner died and cannot be seen to be dead
            except StoreError:
                if self.is_dead:
                    return
            rounds += 1
            if not self._calm:
                await asyncio.sleep(self._random.choice((0.0, 1.0, 1000.0)))
        raise AssertionError(f"{subject.id} was taken up {ROUNDS} times and is still {self._state(subject).status}")

    def _state(self, subject: Subject) -> ExecutionState:
        try:
            return fold(subject.id, self._disk.read(subject.id))
        except ExecutionNotFoundError:
            return ExecutionState(subject.id)

    @staticmethod
    def _is_final(subject: Subject) -> bool:
        """Whether failing is what the execution does when nothing goes wrong: then only permanent failures are left."""
        world, failed = subject.world, subject.audit.state.failed_path
        if not subject.workflow.continue_on_failure or failed is None:
            return False
        paths = subject.audit.state.paths.values()
        return all(world.always_fails(path.current_step) for path in paths if path.status == FAILED)

    def _openings(self, subject: Subject, state: ExecutionState) -> list[Fact]:
        if not state.last_sequence:
            workflow = subject.workflow
            return [Fact(catalog.ExecutionStarted(workflow.name, {}, workflow.to_dict(), workflow.fingerprint))]
        resumed = Fact(catalog.ExecutionResumed(state.status, None, self._recovery(subject)))
        questions = state.pending_interrupts()
        if not questions or (state.status != WAITING and self._random.random() < 0.5):
            return [resumed]
        question = self._random.choice(questions)
        return [resumed, Fact(self._resolution(subject, question), question.path, question.step)]

    def _recovery(self, subject: Subject) -> int | None:
        """Return the number of the attempt where nobody asked for it; None where a person resumes."""
        if self._calm or self._random.random() < 0.5:
            return None
        with suppress(ExecutionError):  # a person has to
            return next_attempt(self._disk, subject.id, self._machine.now())
        return None

    async def _run_once(
        self, subject: Subject, commit: GroupCommit, keeper: LeaseKeeper, state: ExecutionState
    ) -> None:
        """Do what `Execution` does on the engine's thread."""
        owner = Owner.current()
        lease = self._disk.acquire(subject.id, owner) if state.last_sequence else None
        token = None if lease is None else lease.token
        journal = WatchedJournal(state, commit, self._machine, Ids(self._machine, self._machine), token=token)
        journal.audit = subject.audit
        subject.audit.live = lambda: journal.state
        inbox = Inbox()
        if self._calm or self._random.random() < 0.5:
            for _ in awaited_signals(state):
                inbox.signal(state)
        services = subject.services(inbox)
        waits = Waits(journal)
        once = OperationLog(journal, waits)
        recorder = Recorder(once, waits, self._machine, services.texts, services.policy)
        runner = Runner(journal, recorder, subject.workflow, services)
        self._runners[subject.id] = runner
        journal.record_all(self._openings(subject, state))
        await journal.durable()
        held = lease or Lease(subject.id, FIRST_TOKEN, owner, expires_at=0)
        keeper.keep(held)
        others = [asyncio.create_task(self._read_along(subject, state.last_sequence))]
        if not self._calm:
            others.append(asyncio.create_task(self._answer_now_and_then(subject, runner, inbox)))
        try:
            await runner.run()
            self._check_ended(subject, journal)  # before others have it
        finally:
            if not self.is_dead:
                await keeper.release(held)
            del self._runners[subject.id]
            await _stopped(others)
        subject.audit.live = lambda: None

    def _check_ended(self, subject: Subject, journal: Journal) -> None:
        assert journal.written == journal.state.last_sequence, "the runner ended before all was written"
        if subject.audit.state.last_sequence > journal.written:  # it rested when it was cancelled elsewhere
            return
        assert journal.state == subject.audit.state, "the runner believes what is not written"
        assert journal.state.is_over or journal.state.status == WAITING, f"it ended as {journal.state.status}"
        state = journal.state
        rests = state.pending_interrupts() or awaited_signals(state) or state.paused
        assert state.is_over or rests, "it waits for nobody"

    # --- people ----------------------------------------------------------------------------------------------------

    async def _read_along(self, subject: Subject, after: int) -> None:
        """Follow the log, as a screen does: every event once, in order, however badly it is delivered."""
        last = after
        async for event in follow(self._disk, subject.id, after, poll_interval=POLL):
            assert event.sequence == last + 1, f"a reader saw event {event.sequence} after {last}"
            last = event.sequence

    async def _answer_now_and_then(self, subject: Subject, runner: Runner, inbox: Inbox) -> None:
        """Answer questions while the execution goes on elsewhere."""
        while True:
            await asyncio.sleep(self._random.choice((0.0, 1.0, 20.0, 3000.0)))
            if self._random.random() < 0.2 and runner.journal.error is None:
                inbox.signal(runner.journal.state)
                with suppress(StoreError):
                    await runner.take()
            for question in runner.journal.state.pending_interrupts():
                if self._random.random() < 0.3 and runner.journal.error is None:
                    resolution = self._resolution(subject, question)
                    with suppress(StoreError):
                        inbox.answer(runner.journal.state, question.id, resolution.response)
                        await runner.take()

    def _resolution(self, subject: Subject, question: Question) -> catalog.InterruptResolved:
        response = checked_answer(question, self._response(subject, question), FITTING, self._machine.now())
        return catalog.InterruptResolved(question.id, response)

    def _response(self, subject: Subject, question: Question) -> dict[str, Any]:
        """Return what a person says: the truth if they looked, else anything that does not change the result."""
        world, parameters = subject.world, (question.data or {})["parameters"]
        done = {"choice": "done", "result": result_of(parameters)}
        if self._honest or self._calm:
            site = world.site_of(question.operation_id or "", parameters)
            return done if world.effects[site] else {"choice": "retry"}
        plan = world.plan_of(question.step, parameters)
        choices: list[dict[str, Any]] = [{"choice": "retry"}]
        if not plan.permanent:
            choices.append(done)
        if not plan.permanent and not plan.guarded:
            choices.append({"choice": "fail", "error": FAILURE})
        return self._random.choice(choices)


async def _stopped(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for them; pass on what they found wrong."""
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, Exception) and not isinstance(found, StoreError):
            raise found


def _close(loop: VirtualLoop) -> None:
    """Stop what still runs beside the executions, the heartbeat of leases, and close."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks))
    loop.close()
