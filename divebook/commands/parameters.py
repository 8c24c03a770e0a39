"""Parameters that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from divebook.commands.command import NOTEBOOK, SHELL, option, word
from divebook.text.ranges import COUNT, INTEGER

Status = Literal[
    "pending",
    "enqueued",
    "running",
    "waiting",
    "paused",
    "interrupted",
    "completed",
    "failed",
    "cancelled",
    "moved",
    "continued_as_new",
    "picture",
]
Origin = Literal["run", "resume", "fork", "what-if", "trial", "child", "import", "book"]
Tools = Literal["recorded", "read-only", "live"]

RunId = Annotated[str, word("RUN", "The run; the beginning of its id is enough.", completes="run")]
RunOrNewest = Annotated[
    str | None,
    word(
        "RUN",
        "The run; the beginning of its id is enough; by default the newest, and in a notebook the last of the session.",
        completes="run",
    ),
]
RunIds = Annotated[list[str], word("RUN", "Runs; the beginning of an id is enough.", completes="run")]
OptionalRunIds = Annotated[list[str] | None, word("RUN", "Runs; the beginning of an id is enough.", completes="run")]
Files = Annotated[
    list[str] | None, word("FILE", "Only these files, by their paths in the workspace.", completes="file of the run")
]
Definitions = Annotated[
    Path,
    word("FILE|FOLDER", "Definitions: YAML, JSON, a notebook or Python.", completes="file", interfaces=[SHELL]),
]
AtEvent = Annotated[int | None, option("--at", allowed=COUNT, help="As it was at event N, and not at the end.")]
SinceEvent = Annotated[
    int | None, option("--since", allowed=COUNT, help="From event N on, and not from the beginning.")
]
Workspace = Annotated[
    str | None, option("--workspace", metavar="NAME", help="Which workspace, where the run has used several.")
]
Force = Annotated[bool, option("--force", "-f", help="Overwrite the files of an earlier one.")]
WithStatus = Annotated[
    Status | None,
    option("--status", "-s", metavar="STATUS", help="Only runs with this status.", completes="status"),
]
OfWorkflow = Annotated[
    str | None,
    option("--workflow", "-w", metavar="NAME", help="Only runs of this workflow.", completes="workflow"),
]
DryRun = Annotated[bool, option("--dry-run", help="Only list the runs.")]
By = Annotated[str | None, option("--by", metavar="NAME", help="Your name, for the log; default: you@this-machine.")]
ModelName = Annotated[
    str | None,
    option("--model", metavar="NAME", help="The model of all agents: provider:model, or scripted (offline)."),
]
BoundsText = Annotated[
    str | None,
    option("--bounds", metavar="NAME=N,...", help="What it may spend: max_cost=2.50,max_llm_calls=40."),
]
VariablesChanged = Annotated[
    list[str] | None, option("--set", metavar="NAME=VALUE", help="Another value of a variable; may be repeated.")
]
InputsChanged = Annotated[
    list[str] | None,
    option("--input", "-v", metavar="NAME=VALUE", help="Another value of an input; may be repeated."),
]
AnswersChanged = Annotated[
    list[str] | None,
    option("--answer", metavar="QUESTION=VALUE", help="Another answer to a question, by its id; may be repeated."),
]
ResultsChanged = Annotated[
    list[str] | None,
    option("--result", metavar="OPERATION=VALUE", help="Another result of a call, by its id; may be repeated."),
]
PromptsChanged = Annotated[
    list[str] | None, option("--prompt", metavar="STEP=TEXT", help="Another prompt of a step; may be repeated.")
]
ToolsAllowed = Annotated[
    Tools,
    option(
        "--tools",
        metavar="recorded|read-only|live",
        help="Which actions and tools may be executed where no result is recorded.",
        completes="tools",
    ),
]
AtSharedEvent = Annotated[
    int | None, option("--at", allowed=INTEGER, help="The last event that stays; else all before what changes.")
]
EarlyAnswers = Annotated[
    list[str] | None,
    option(
        "--answer",
        metavar="STEP=VALUE",
        help="An answer up front, for the questions of a step, its second one (STEP:2=...), or one by id; "
        "STEP:=JSON for data. Also in $DIVEBOOK_ANSWERS, as YAML.",
        completes="answer",
    ),
]
AnswersFile = Annotated[
    Path | None,
    option("--answers", metavar="FILE", help="Answers up front: YAML that maps steps to answers.", completes="file"),
]
Tags = Annotated[
    list[str] | None,
    option("--tag", "-t", metavar="TAG", help="A tag to find it by; may be repeated.", completes="tag"),
]
NoteText = Annotated[str | None, option("--note", "-n", metavar="TEXT", help="A note to keep with it.")]
OnConflict = Annotated[
    Literal["warn", "refuse", "return"],
    option(
        "--on-conflict",
        metavar="HOW",
        help="What to do where the run that has the key was started with other inputs: warn, refuse or return.",
    ),
]
StartKey = Annotated[
    str | None, option("--key", metavar="TEXT", help="With a key it is started once, however often asked.")
]
Durability = Annotated[
    Literal["full", "relaxed"] | None,
    option(
        "--durability",
        metavar="full|relaxed",
        help="full: every event survives a power failure. relaxed: faster, a power failure may take the latest ones.",
        completes="durability",
    ),
]
Inputs = Annotated[
    list[str] | None,
    option(
        "--input",
        "-v",
        metavar="KEY=VALUE",
        help="An input, in YAML: n=3, names=[a, b], title='two words'; KEY:=VALUE in JSON; may be repeated.",
        as_words=True,
        completes="input",
    ),
]
WorkflowName = Annotated[
    str | None,
    word(
        "NAME",
        "The workflow; without it, the one that was defined last.",
        completes="workflow",
        interfaces=[NOTEBOOK],
    ),
]
WorkflowOption = Annotated[
    str | None,
    option("--workflow", "-w", metavar="NAME", help="The workflow to run.", completes="workflow", interfaces=[SHELL]),
]
ReadDialect = Annotated[
    Literal["divebook", "dive"],
    option("--dialect", metavar="NAME", help="dive: the legacy Dive dialect.", interfaces=[SHELL]),
]
