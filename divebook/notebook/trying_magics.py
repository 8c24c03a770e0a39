"""``%dive try`` and the cell ``%%dive try``: one step of a run done again, with other keys if the cell has some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divebook.notebook.commands import command
from divebook.notebook.file_magics import FileMagics

if TYPE_CHECKING:
    from divebook.notebook.arguments import Arguments
    from divebook.notebook.expressions import Names
    from divebook.notebook.session import Session
    from divebook.replay.trial import StepTrial
    from divebook.workflow.definition import Workflow

TRY = "try"


class TryingMagics(FileMagics):
    """The sub-command that tries a step; its docstring is its help, and names its options."""

    @command("try STEP")
    def try_(self, arguments: Arguments) -> StepTrial:
        """Do one step of a run again with the state it had, and show what it comes to beside what is recorded.

        The run stays as it is. Models are asked; actions and tools have the recorded result of the same call, and are
        else not executed. The cell `%%dive try STEP` takes the same words, and below them the keys that the step is to
        have in place of its own, such as `Prompt: Shorter, please`.

        STEP           the step, as the workflow of the run names it; of a workflow function, an agent that it asked
        --from RUN     the execution; the beginning of its id is enough; by default the newest
        --times N      how often; 1 by default
        --set NAME=VALUE            a variable that it is to find otherwise, also several; values in YAML
        --input NAME=VALUE          an input that is to be otherwise, also several
        --visit N      which time that the run entered it, from 1 on; by default the last
        --item N       of Each, this item alone, from 0 on; by default all
        --model NAME   the model that it asks: provider:model, or scripted (offline)
        --tools recorded|read-only|live   which actions and tools may be executed where no result is recorded
        --bounds max_cost=0.50,...  what each try may spend
        --store PATH   where the log of the run is

        `t = %dive try draft --times 3`, then `t.tries[0].value`, `t.frame()`; `t.keep()` writes the workflow with the
        changed step into a new cell.
        """
        from divebook.notebook.trying import try_step

        return try_step(self._session, arguments)


def try_cell(
    session: Session, words: list[str], text: str, lines_above: int, names: Names, *, number: int
) -> StepTrial:
    """Try a step with the keys that a cell has.

    Parameters
    ----------
    words
        Those of its first line after ``%%dive try``; `divebook.notebook.defining.take_cell` says what the rest is.
    """
    from divebook.notebook.cards import short_errors
    from divebook.notebook.trying import try_step
    from divebook.workflow.changed_step import with_keys

    with short_errors([""] * lines_above + text.splitlines()):
        arguments = TryingMagics.try_.parse(words, names)
        source_name = f"Cell [{number}]" if number else "cell"

        def changed(workflow: Workflow) -> Workflow:
            return with_keys(workflow, arguments.words[0], text, source_name=source_name, line_offset=lines_above)

        return try_step(session, arguments, changed if text.strip() else None)
