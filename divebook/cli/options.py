"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from divebook.errors import shown_number
from divebook.text.ranges import NumberRange


def within(allowed: NumberRange) -> Callable[[float | None], float | None]:
    """Return the callback of an option that takes a number of a range; a usage error names the range."""

    def check(value: float | None) -> float | None:
        if value is not None and not allowed.fits(value):
            raise typer.BadParameter(f"it must be {allowed}, not {shown_number(value)}")
        return value

    return check


ExecutionId = Annotated[
    str, typer.Argument(metavar="ID", help="Id of the execution; its beginning is enough if unique.")
]
Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Where executions are kept, a file or a postgresql:// URL; default: $DIVEBOOK_STORE, else "
        ".divebook/executions.db.",
    ),
]
Durability = Annotated[
    Literal["full", "relaxed"] | None,
    typer.Option(
        "--durability",
        help="full: every event survives a power failure. relaxed: faster, a power failure may take the latest ones.",
    ),
]
Answer = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="STEP=VALUE",
        help="An answer up front, for the questions of a step, its second one (STEP:2=...), or one by id; "
        "STEP:=JSON for data. Also in $DIVEBOOK_ANSWERS, as YAML.",
    ),
]
AnswersFile = Annotated[
    Path | None, typer.Option("--answers", metavar="FILE", help="Answers up front: YAML that maps steps to answers.")
]
ModelName = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model of all agents: provider:model, or scripted (offline)."),
]
VariablesChanged = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A variable from there on, in YAML; may be repeated."),
]
InputsChanged = Annotated[
    list[str] | None,
    typer.Option("--input", "-v", metavar="NAME=VALUE", help="An input from there on, in YAML; may be repeated."),
]
AnswersChanged = Annotated[
    list[str] | None,
    typer.Option("--answer", metavar="QUESTION=VALUE", help="Another answer to a question, by its id."),
]
ResultsChanged = Annotated[
    list[str] | None,
    typer.Option("--result", metavar="OPERATION=VALUE", help="Another result of a call, by its id."),
]
PromptsChanged = Annotated[
    list[str] | None,
    typer.Option("--prompt", metavar="STEP=TEXT", help="Another prompt of a step; may be repeated."),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="A tag to find it by (divebook runs --tag); may be repeated."),
]
Note = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="A note to keep with it.")]
OnConflict = Annotated[
    Literal["warn", "refuse", "return"],
    typer.Option("--on-conflict", help="What to do where the run that has the key was started with other inputs."),
]
BoundsText = Annotated[
    str | None,
    typer.Option("--bounds", metavar="NAME=N,...", help="What it may spend: max_cost=2.50,max_llm_calls=40."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Fail, with exit code 1, if it has to wait for an answer.")]
Waits = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait until a question with a Default expires, or return at once; by default it waits where it cannot ask "
        "a person, since its input is not a terminal.",
    ),
]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Your name, for the log; default: you@this-machine.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Actions = Annotated[
    list[str] | None,
    typer.Option("--actions", "-a", metavar="MODULE|FILE.py", help="Python that defines actions; may be repeated."),
]
Code = Annotated[
    bool, typer.Option("--code", help="Run the cells of a notebook that define in Python, and those they need.")
]
Agents = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE|FOLDER", help="Definitions with the agents the workflow needs; its own steps are in the log."
    ),
]
