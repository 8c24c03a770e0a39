"""``divebook doctor``: what the models of a definition need before they can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.options import Code, Json
from divebook.cli.screen import columns, note, say, write
from divebook.cli.text import as_json, one_line

if TYPE_CHECKING:
    from divebook.agents.examination import Examined

UNUSABLE = 1
"""Exit code where a model cannot be asked."""


def doctor(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE|FOLDER]", help="Definitions; without them, every provider's default."),
    ] = None,
    *,
    ping: Annotated[
        bool, typer.Option("--ping", help="Make one small request to each model; it may cost a little.")
    ] = False,
    code: Code = False,
    json: Json = False,
) -> None:
    """Say what each model still needs: a library, a key, a price.

    Keys are named, never shown. Exit code 1 if a model cannot be asked.
    """
    from divebook.agents.examination import examine

    rows = [_row(model, agents, examine(model), ping=ping) for model, agents in _models(file, code=code).items()]
    if json:
        write(as_json(rows, indent=2))
    elif not rows:
        say("no agents are defined, so no model is needed")
    else:
        titles = ["model", "agents", "library", "key", "price", *(["answer"] if ping else [])]
        columns(titles, ([one_line(str(row[title])) for title in titles] for row in rows), whole=("library", "key"))
    for row in rows:
        if row["hint"]:
            note(f"{row['model']}: {row['hint']}", "yellow")
    if not all(row["usable"] for row in rows):
        raise typer.Exit(UNUSABLE)


def _models(file: Path | None, *, code: bool) -> dict[str, str]:
    """Return the models to look at, each with the agents that use it."""
    from divebook.agents.models import DEFAULT_MODELS
    from divebook.cli.project import take_in
    from divebook.environment import Environment

    if file is None:
        return {f"{provider}:{model}": "" for provider, model in DEFAULT_MODELS.items()}
    environment = Environment(store="memory:")
    take_in(environment, file, code=code)
    found: dict[str, list[str]] = {}
    for agent in environment.agents.values():
        found.setdefault(agent.model_name, []).append(agent.name)
    return {model: ", ".join(agents) for model, agents in found.items()}


def _row(model: str, agents: str, found: Examined, *, ping: bool) -> dict[str, Any]:
    key = found.key or (f"{found.found_key} is set" if found.found_key else "not needed" if not found.library else "")
    row = {
        "model": model,
        "agents": agents,
        "library": found.library or "installed",
        "key": key,
        "price": "known" if found.has_price else "unknown: max_cost cannot be enforced",
        "hint": found.hint,
        "usable": found.is_usable,
    }
    if ping:
        row["answer"], row["usable"] = _answer(found)
    return row


def _answer(found: Examined) -> tuple[str, bool]:
    """Return what a model answered, or why it did not, and whether it did."""
    import anyio

    from divebook.agents.examination import ping
    from divebook.agents.scripted import SCRIPTED

    if found.model == SCRIPTED:
        return "answers offline", True
    if not found.is_usable:
        return "not asked", False
    try:
        return anyio.run(ping, found.model) or "an empty answer", True
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is what the person wants to read
        return f"{type(error).__name__}: {error}", False
