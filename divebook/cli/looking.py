"""``divebook why`` and ``inspect``: where a value of an execution came from, and what it waited for."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from divebook.cli.options import ExecutionId, Store
from divebook.cli.screen import write


def why(
    execution_id: ExecutionId,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The variable; inputs.NAME for an input, state for all variables.")
    ],
    store: Store = None,
    *,
    at: Annotated[
        int | None, typer.Option("--at", metavar="N", min=1, help="As it was at event N, and not at the end.")
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", metavar="N", min=0, help="Of a list or frame that items have made: row N.")
    ] = None,
    column: Annotated[str | None, typer.Option("--column", metavar="NAME", help="And of that row this column.")] = None,
    form: Annotated[
        Literal["text", "mermaid"], typer.Option("--form", help="In words, or as a flow chart for Mermaid.")
    ] = "text",
) -> None:
    """Say where the value of a variable came from.

    Which events, steps, calls, variables, inputs and choices made it, all the way back.
    """
    from divebook.cli.project import existing_environment

    found = existing_environment(store).why(execution_id, name, at, row=row, column=column)
    write(str(found) if form == "text" else found.graph)


def inspect(execution_id: ExecutionId, store: Store = None) -> None:
    """Say what an execution waited for and spent.

    The critical path, time by kind, what was tried again, and what agents, models and steps cost.
    """
    from divebook.cli.project import existing_environment

    write(str(existing_environment(store).inspect(execution_id)))
