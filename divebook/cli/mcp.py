"""``divebook mcp``: offer workflows as tools of the Model Context Protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from divebook.cli.options import Actions, Code, Store, within
from divebook.cli.screen import note
from divebook.dialects import OWN, Dialect
from divebook.text.ranges import SECONDS


def mcp(
    file: Annotated[
        Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions: YAML, JSON, a notebook or Python.")
    ] = Path(),
    *,
    code: Code = False,
    actions: Actions = None,
    store: Store = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", callback=within(SECONDS), help="How long a call waits for its run, which goes on."
        ),
    ] = 50.0,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve http://HOST:PORT/mcp instead of standard input and output."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="env://NAME", help="What HTTP clients send as bearer token; needed beyond this machine."),
    ] = None,
    dialect: Annotated[Dialect, typer.Option(help="dive: as the old system read it.")] = OWN,
) -> None:
    """Serve workflows to MCP clients, on pipes or over HTTP.

    Each workflow is a tool. A run that asks a person asks the client's; it can be answered in a notebook or with
    `divebook answer` as well. A run outlives the call, the client and this process.
    """
    import asyncio

    if token is not None and http is None:
        raise typer.BadParameter("a token is asked of HTTP clients: give --http HOST:PORT as well")

    from divebook.cli.project import open_environment, take_in
    from divebook.documents.policy import KINDS, Policy
    from divebook.documents.references import resolved
    from divebook.serve import serve_stdio
    from divebook.serve.http import serve_http

    with open_environment(store, actions or (), note) as environment:
        take_in(environment, file, dialect, code=code)
        given = resolved(token, Policy(*KINDS))  # the command line names it, and no definition
        asyncio.run(
            serve_stdio(environment, wait=wait)
            if http is None
            else serve_http(environment, http, token=given, wait=wait)
        )
