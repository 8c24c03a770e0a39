"""``divebook keys``: what a definition can say."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from typing import Annotated

import typer

from divebook.cli.options import Json
from divebook.cli.screen import columns, say, write


def keys(
    part: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="Such as Step, Agent, Each; without it, all.")
    ] = None,
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="The whole reference as a page.")] = False,
    json: Json = False,
) -> None:
    """List the keys of definitions: what each holds and means."""
    from divebook.workflow.keys import TABLES, page, reference

    if markdown:
        write(page())
        return
    found = dict(map(reference, TABLES if part is None else [part]))
    if json:
        # as it is: what stands under a part's name, such as TokenStore, is no secret
        write(dumps({label: [asdict(line) for line in lines] for label, lines in found.items()}, indent=2))
        return
    for label, lines in found.items():
        say(label)
        titles = ("key", "holds", "means", "notes")
        columns(titles, ([line.key, line.holds, line.means, line.notes] for line in lines))
