"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

ExecutionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the execution; its beginning is enough if unique.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Where executions are kept; default: $DIVEBOOK_STORE, else .divebook/executions.db.",
    ),
]
Durability = Annotated[
    Literal["full", "relaxed"] | None,
    typer.Option(
        "--durability",
        help="full: every event survives a power failure. relaxed: faster, a power failure may take the latest ones.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Actions = Annotated[
    list[str] | None,
    typer.Option("--actions", "-a", metavar="MODULE|FILE.py", help="Python that defines actions; may be repeated."),
]
Agents = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE|FOLDER", help="Definitions with the agents the workflow needs; its own steps are in the log."
    ),
]
