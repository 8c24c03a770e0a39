"""A step of a run that is tried in a notebook, and a trial that is kept as a cell or a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

from divebook.errors import SetupError
from divebook.notebook.printed import tell
from divebook.store.jsonl import new_file
from divebook.trials import TrialOptions
from divebook.workflow.definition import Definitions, Workflow
from divebook.workflow.functions import FUNCTION
from divebook.workflow.writer import definitions_to_text

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.session import Session
    from divebook.replay.trial import StepTrial


def try_step(
    session: Session, arguments: Arguments, changes: Callable[[Workflow], Workflow] | None = None
) -> StepTrial:
    """Try the step that a line names."""
    from divebook.config.answers import bounds_from
    from divebook.config.changed_words import change_from

    if len(arguments.words) != 1:
        found = " ".join(arguments.words) or "nothing"
        raise UsageError(f"%dive try needs the name of one step, found {found}: %dive try draft --from exec_1f0c")
    options, (step,) = arguments.options, arguments.words
    run = session.run_or_newest(options.get("from"), store=options.get("store"))
    change = change_from(arguments.several("set"), arguments.several("input"))
    said: TrialOptions = {
        "variables": change.variables,
        "inputs": change.inputs,
        "model": options.get("model"),
        "visit": _number(arguments, "visit"),
        "item": _number(arguments, "item"),
        "bounds": bounds_from(options.get("bounds")),
    }
    if "tools" in options:
        said["tools"] = options["tools"]
    times = _number(arguments, "times")
    return run.try_step(step, changes, times=1 if times is None else times, **said)


def _number(arguments: Arguments, option: str) -> int | None:
    written = arguments.options.get(option)
    if written is not None and not written.isdecimal():
        raise UsageError(f"--{option} needs a number, not {written!r}")
    return None if written is None else int(written)


def keep(trial: StepTrial, file: str | Path | None = None, *, overwrite: bool = False) -> Path | None:
    """Write what defines the workflow with the changed step into a new cell, or into a file, whose path is returned.

    Raises
    ------
    SetupError
        The workflow is a Python function, or there is no notebook to write into.
    """
    if trial.entry.call is not None or any(step.type == FUNCTION for step in trial.workflow.steps):
        line = "change the line of its code"
        if trial.entry.call is not None:
            line = f"write the prompt of the try into the line of its code that asks agent {trial.entry.step!r}"
        raise SetupError(
            f"workflow {trial.workflow.name!r} is a Python function, which no cell of keys can hold: "
            f"{line}, and run its cell again"
        )
    if file is not None:
        with new_file(file, overwrite=overwrite) as stream:
            stream.write(definitions_to_text(Definitions(workflows=(trial.workflow,))).encode())
        return Path(file)
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is None:
        raise SetupError("there is no notebook to write a cell into; name a file: trial.keep('draft.yaml')")
    shell.set_next_input(trial.definition, replace=False)
    tell(f"the cell below defines workflow {trial.workflow.name!r} with the changed step; run it to take it")
    return None
