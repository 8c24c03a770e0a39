"""``divebook doctor``: what the agents of a definition, and their models, need before they can be asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divebook.cli.options import Code, Json, Store
from divebook.cli.screen import columns, note, say, write
from divebook.cli.text import as_json, one_line

if TYPE_CHECKING:
    from divebook.agents.examination import Examined
    from divebook.environment import Environment

UNUSABLE = 1
"""Exit code where a model cannot be asked, or an agent names what is not there."""


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
    store: Store = None,
) -> None:
    """Say what each model still needs: a library, a key, a price.

    And what agents name that is not there; the store says which runs can be played again. Keys are named, never shown.
    Exit code 1 if a model cannot be asked, or an agent cannot work.
    """
    from divebook.agents.examination import examine

    environment = _environment(file, code=code)
    problems = _problems(environment, store)
    rows = [
        _row(model, agents, examine(model), [problems[name] for name in agents if name in problems], ping=ping)
        for model, agents in _models(environment, is_given=file is not None).items()
    ]
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
        for problem in row["problems"]:
            note(problem, "red")
    if not all(row["usable"] for row in rows):
        raise typer.Exit(UNUSABLE)


def _environment(file: Path | None, *, code: bool) -> Environment:
    from divebook.cli.project import take_in
    from divebook.environment import Environment

    environment = Environment(store="memory:")
    if file is not None:
        take_in(environment, file, code=code)
    return environment


def _models(environment: Environment, *, is_given: bool) -> dict[str, list[str]]:
    """Return the models to look at, each with the agents that use it."""
    from divebook.agents.models import DEFAULT_MODELS

    if not is_given:
        return {f"{provider}:{model}": [] for provider, model in DEFAULT_MODELS.items()}
    found: dict[str, list[str]] = {}
    for agent in environment.agents.values():
        found.setdefault(agent.model_name, []).append(agent.name)
    return found


def _problems(environment: Environment, store: str | None) -> dict[str, str]:
    """Return what each agent names in error, by its name; those without fault are not there."""
    from divebook.agents.models import RECORDED
    from divebook.cli.project import existing_store
    from divebook.errors import DivebookError
    from divebook.steps.agent_checks import check_model

    found: dict[str, str] = {}
    for agent in environment.agents.values():
        try:
            environment.check_agent(agent)
            runs = existing_store(store) if agent.model_name.startswith(RECORDED) else environment.store
            check_model(agent.model, f"agent {agent.name}", runs)
        except DivebookError as error:
            found[agent.name] = str(error)
    return found


def _row(model: str, agents: list[str], found: Examined, problems: list[str], *, ping: bool) -> dict[str, Any]:
    key = found.key or (f"{found.found_key} is set" if found.found_key else "not needed" if not found.library else "")
    row = {
        "model": model,
        "agents": ", ".join(agents),
        "library": found.library or "installed",
        "key": key,
        "price": "known" if found.has_price else "unknown: max_cost cannot be enforced",
        "hint": found.hint,
        "problems": problems,
        "usable": found.is_usable and not problems,
    }
    if ping:
        row["answer"], can_answer = _answer(found)
        row["usable"] = can_answer and not problems
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
