"""A definition that was edited since a cell's run: what of that run it would do again, and what is offered.

A new run stays what comes without a choice, and the cell waits for nobody long: Run All comes to its end. Where nothing
would be saved, nothing is asked (`tests/notebook/test_redefined.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from divebook.errors import DivebookError, EditedError
from divebook.notebook.edits import AGAIN, REUSE

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.environment import Environment
    from divebook.notebook.reattach import Earlier
    from divebook.notebook.run import Run
    from divebook.replay.going_on import ResumePlan
    from divebook.starting import StartOptions
    from divebook.workflow.definition import Workflow


@dataclass(frozen=True, slots=True)
class Redefined:
    """What a cell's run and its edited definition have in common."""

    plan: ResumePlan
    has_ended: bool
    """Whether that run has; one that has not is not cancelled without being asked for."""

    def offer(self, begin: Callable[[str], Run]) -> EditedError:
        """Return what a person may choose; without a choice all of it is run."""
        told = f"The definition of {self.plan.workflow!r} changed since this cell's run {self.plan.source}."
        ways = {REUSE: str(self.plan), AGAIN: "runs all of it, as a new run"}
        return EditedError(told, ways, begin, AGAIN if self.has_ended else None)

    @property
    def advice(self) -> str:
        """What is said beside a new run."""
        return (
            f"the definition changed since this cell's run {self.plan.source}, so that this is a new run; "
            f"--changed {REUSE} would have gone on with it: {self.plan}"
        )

    def run_again(self, environment: Environment, answers: Answers | None, options: StartOptions) -> Run:
        """Begin a run that goes on with what still holds."""
        from divebook.notebook.run import Run

        run = Run(environment.run_again(self.plan.source, **options), environment, answers)
        run.remark = self.note(run.id)
        return run

    def note(self, new: str) -> str:
        """Return what is said beside the run that takes its place."""
        return (
            f"the definition changed since this cell's run {self.plan.source}; {new} goes on from event {self.plan.at} "
            f"of it: {self.plan}. To run all of it: --new"
        )


def redefined(environment: Environment, workflow: Workflow, earlier: Earlier | None) -> Redefined | None:
    """Return what is to be offered; None where the inputs changed as well, or nothing would be saved."""
    now = environment.workflows.get(workflow.name)
    if earlier is None or earlier.changed != ("definition",) or now is None or now.fingerprint != workflow.fingerprint:
        return None
    try:
        plan = environment.run_again(earlier.record.execution_id, plan=True)
    except DivebookError:  # it is driven elsewhere, damaged, or needs what is not here: no run to go on with
        return None
    return Redefined(plan, earlier.is_over) if plan.saves else None
