"""Executions whose code stands where it waits: kept in memory, so that an answer need not replay what came before.

Everybody else sees an execution that rests like any other: it is driven by nobody, and its lease is given back. When
this process drives it again and its log is as it was left, its code goes on; where it is not, or where there is no room
for it, the code is let go with `Suspended` and what it did is replayed. Both record the same
(`tests/execution/test_resting.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Protocol

from divebook.engine.state import ExecutionState
from divebook.execution.apart import Apart
from divebook.execution.beyond import Beyond
from divebook.execution.clock import Chance
from divebook.execution.journal import Journal
from divebook.execution.once import Once
from divebook.execution.recorder import Recorder
from divebook.execution.runner import Runner
from divebook.execution.step_run import Services
from divebook.execution.waits import Waits
from divebook.workflow.definition import Workflow
from divebook.workflow.functions import FUNCTION, WORKFLOW_FUNCTIONS

MOST = 64
"""How many strands of code stand still at a time, in all executions of a process."""


class Resting:
    """All that stands still in this process, the least recently used first; on the engine's loop.

    Parameters
    ----------
    most
        How many strands stand still at a time; with 0 everything that waits is let go, and replayed.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = most
        self._kept: dict[AtRest, Runner] = {}
        self._lost: list[dict[AtRest, Runner]] = []
        """Of a loop that has died, or of the process that this one was forked from: held on to, since Python would
        unwind here what it throws away."""

    def __len__(self) -> int:
        return sum(runner.strands for runner in self._kept.values())

    def keep(self, standing: AtRest, runner: Runner) -> None:
        """Keep a runner that rests, and let go those that there is no room for."""
        self._kept[standing] = runner
        while len(self) > self.most:
            next(iter(self._kept)).let_go()

    def take(self, standing: AtRest) -> Runner | None:
        """Return what stands still of an execution, and keep it no more."""
        return self._kept.pop(standing, None)

    def let_all_go(self) -> list[AtRest]:
        """Unwind everything; return of what."""
        return [standing for standing in list(self._kept) if standing.let_go()]

    def forget(self) -> None:
        """Forget all: the loop that it stood on is gone."""
        self._lost += [self._kept] if self._kept else []
        self._kept = {}


RESTING = Resting()
"""That of this process."""


class Given(Protocol):
    """What a runner is given from above."""

    @property
    def services(self) -> Services:
        """What it needs of others."""

    @property
    def chance(self) -> Chance:
        """Where its random bits come from."""


def _made_of(workflow: Workflow, given: Given) -> tuple[object, object]:
    """Return the function and the agent of the one step of a workflow; None and None where its code stays nowhere."""
    if len(workflow.steps) != 1:
        return None, None
    step = workflow.start
    function = WORKFLOW_FUNCTIONS.get(workflow.name) if step.type == FUNCTION else None
    return function, given.services.hands_of(step)


class AtRest:
    """What stands still of one execution, if anything does.

    Parameters
    ----------
    owner
        What drives it, and is to be found as long as its code stands still.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._made_of: tuple[object, object] = (None, None)
        """The function and the agent of its one step, when its code began."""
        self._unwinding: list[Apart] = []

    def begin(self, workflow: Workflow, journal: Journal, given: Given, beyond: Beyond | None = None) -> Runner:
        """Return a runner, whose code may stand still later if it is a function, or one agent at work.

        Of other steps few are replayed. `beyond` answers in place of the world.
        """
        self._made_of = _made_of(workflow, given)
        may_stay = (
            RESTING.most > 0 and journal.state.rolling_back is None and any(part is not None for part in self._made_of)
        )
        services = given.services
        once, waits = Once(journal, beyond), Waits(journal)
        above = services.texts, services.policy, services.lender, services.surrounded
        recorder = Recorder(once, waits, given.chance, *above)
        return Runner(journal, recorder, services.as_written(workflow), services, may_stay=may_stay)

    def keep(self, runner: Runner, *, is_stored: bool) -> None:
        """Keep the code of a runner where it stands, unless its log could not be written."""
        runner.journal.rest()
        if runner.strands and is_stored:
            RESTING.keep(self, runner)
        else:
            self._unwind(runner)

    def take(self, state: ExecutionState, code: Mapping[str, str], given: Given) -> Runner | None:
        """Return the runner that can go on from a state with the functions of these digests; if none can, let it go.

        Where a function was defined anew, or an agent, the new one is meant, whatever it says
        (test_a_function_that_was_defined_anew_is_replayed).
        """
        runner = RESTING.take(self)
        if runner is None:
            return None
        is_as_left = runner.strands and runner.journal.state is state
        is_same = all(map(operator.is_, self._made_of, _made_of(runner.workflow, given)))
        if is_as_left and is_same and code == dict(state.code):
            return runner
        self._unwind(runner)
        return None

    def let_go(self) -> AtRest | None:
        """Unwind what stands still; return itself if anything does."""
        runner = RESTING.take(self)
        if runner is None:
            return None
        self._unwind(runner)
        return self

    def _unwind(self, runner: Runner) -> None:
        apart = runner.let_go()
        if apart is not None and not apart.has_ended:
            self._unwinding.append(apart)

    async def gone(self) -> None:
        """Return when nothing runs any more of code that was let go."""
        while self._unwinding:
            await (apart := self._unwinding[-1]).gone()
            # Who closes the environment may wait beside who cancels, and more may have been let go meanwhile.
            self._unwinding = [one for one in self._unwinding if one is not apart]
