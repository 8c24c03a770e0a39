"""A trial: one step of a run done again with the state it had, as often as wanted, beside what is recorded of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from divebook import extensions
from divebook.engine.change import Change
from divebook.events.readable import readable
from divebook.execution.execution import Execution
from divebook.replay.trial_entry import Entered
from divebook.replay.trial_shown import as_html, as_text
from divebook.replay.tried import Tried
from divebook.text.cuts import one_line
from divebook.workflow.changed_step import workflow_text
from divebook.workflow.definition import Workflow

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class StepTrial:
    """One step of a run done again, beside what the run has of it; the run stays as it is.

    `Run.try_step`, `Environment.try_step` and ``%dive try`` make them. As the last value of a cell it shows all
    outcomes beside each other.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> environment = Environment(store="memory:")
    >>> flow = Workflow("w", [Step("add", script="inputs.n + 1", store="sum")], inputs=["n"])
    >>> run = environment.start(flow, {"n": 1}).wait()
    >>> trial = environment.try_step(run.id, "add", {"Script": "inputs.n + 10"})
    >>> trial.recorded.value, [tried.value for tried in trial.tries]
    (2, [11])
    """

    source: str
    """Id of the execution that it was forked from."""
    entry: Entered
    recorded: Tried
    tries: Sequence[Tried]
    workflow: Workflow
    """The whole workflow, in which the step has the changed keys."""
    change: Change = field(default=Change())
    """What else the step found otherwise: variables, inputs, the model."""
    written: str = ""
    """The text that defined the workflow of the run; empty if none did."""
    executions: Sequence[Execution] = field(default=())
    """Those of the tries, of origin ``trial``."""

    @property
    def cost(self) -> float | None:
        """What all tries have spent together, in US dollars; None where no price is known."""
        known = [tried.cost for tried in self.tries if tried.cost is not None]
        return sum(known) if known else None

    def frame(self) -> pd.DataFrame:
        """Return a row for what is recorded and for each try: `divebook.analysis.trial_frame.trial_frame`."""
        made: pd.DataFrame = extensions.extension(extensions.FRAMES)("trial", self)
        return made

    @property
    def definition(self) -> str:
        """The whole workflow, in which the step has the changed keys, as a cell that defines it."""
        return f"%%dive workflow {self.workflow.name}\n{workflow_text(self.workflow, self.written, self.entry.step)}"

    def keep(self, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
        """Write the workflow with the changed step into a new cell below this one, or into a file; return its path.

        The cell, once it is run, defines the workflow so; the run and the cell that defined it stay as they are.

        Parameters
        ----------
        file
            A file of definitions, ``draft.yaml``.
        """
        keep: Any = extensions.extension(extensions.KEEP)
        kept: Path | None = keep(self, file, overwrite=overwrite)
        return kept

    @property
    def _title(self) -> str:
        told: dict[str, Any] = dict(self.change.variables)
        told |= {f"inputs.{name}": value for name, value in self.change.inputs.items()}
        if self.change.model is not None:
            told["model"] = self.change.model
        given = ", ".join(f"{name} = {one_line(readable(value), 60)}" for name, value in told.items())
        return f"{self.entry.label} of {self.source}" + (f" with {given}" if given else "")

    def __str__(self) -> str:
        return as_text(self._title, self.recorded, self.tries)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self._title, self.recorded, self.tries)
