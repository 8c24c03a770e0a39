"""``divebook why``: where a value of an execution came from."""

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
    form: Annotated[
        Literal["text", "mermaid"], typer.Option("--form", help="In words, or as a flow chart for Mermaid.")
    ] = "text",
) -> None:
    """Say where the value of a variable came from.

    Which events, steps, calls, variables, inputs and choices made it, all the way back.
    """
    from divebook.cli.project import existing_environment

    found = existing_environment(store).why(execution_id, name, at)
    write(str(found) if form == "text" else found.graph)
