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
    "snapshot",
]
Origin = Literal["run", "resume", "fork", "what-if", "trial", "child", "import", "book"]
Tools = Literal["recorded", "read-only", "live"]

RunId = Annotated[str, word("RUN", "Run: its id, or the first characters of the id.", completes="run")]
RunOrNewest = Annotated[
    str | None,
    word(
        "RUN",
        "Run: its id, or the first characters of the id. Default: the newest run; in a notebook, the last run of the "
        "session.",
        completes="run",
    ),
]
RunIds = Annotated[list[str], word("RUN", "Runs: their ids, or the first characters of the ids.", completes="run")]
OptionalRunIds = Annotated[
    list[str] | None, word("RUN", "Runs: their ids, or the first characters of the ids.", completes="run")
]
Files = Annotated[
    list[str] | None, word("FILE", "Only these files: their paths in the workspace.", completes="file of the run")
]
Definitions = Annotated[
    Path,
    word(
        "FILE|FOLDER",
        "File or folder with definitions: YAML, JSON, a notebook or Python.",
        completes="file",
        interfaces=[SHELL],
    ),
]
AtEvent = Annotated[int | None, option("--at", allowed=COUNT, help="State at event N. Default: the state at the end.")]
SinceEvent = Annotated[
    int | None, option("--since", allowed=COUNT, help="Changes after event N. Default: all changes.")
]
Workspace = Annotated[str | None, option("--workspace", metavar="NAME", help="Workspace, if the run has used several.")]
Force = Annotated[bool, option("--force", "-f", help="Overwrite existing files.")]
WithStatus = Annotated[
    Status | None,
    option("--status", "-s", metavar="STATUS", help="Only runs with this status.", completes="status"),
]
OfWorkflow = Annotated[
    str | None,
    option("--workflow", "-w", metavar="NAME", help="Only runs of this workflow.", completes="workflow"),
]
DryRun = Annotated[bool, option("--dry-run", help="Only list the runs.")]
By = Annotated[str | None, option("--by", metavar="NAME", help="Your name for the log. Default: USER@HOST.")]
ModelName = Annotated[
    str | None,
    option("--model", metavar="NAME", help="Model for all agents: provider:model, or scripted (offline)."),
]
BoundsText = Annotated[
    str | None,
    option("--bounds", metavar="NAME=N,...", help="Budget, such as max_cost=2.50,max_llm_calls=40."),
]
VariablesChanged = Annotated[
    list[str] | None, option("--set", metavar="NAME=VALUE", help="Change the value of a variable. May be repeated.")
]
InputsChanged = Annotated[
    list[str] | None,
    option("--input", "-v", metavar="NAME=VALUE", help="Change the value of an input. May be repeated."),
]
AnswersChanged = Annotated[
    list[str] | None,
    option(
        "--answer", metavar="QUESTION=VALUE", help="Change the answer to a question, given by its id. May be repeated."
    ),
]
ResultsChanged = Annotated[
    list[str] | None,
    option(
        "--result", metavar="OPERATION=VALUE", help="Change the result of a call, given by its id. May be repeated."
    ),
]
PromptsChanged = Annotated[
    list[str] | None, option("--prompt", metavar="STEP=TEXT", help="Change the prompt of a step. May be repeated.")
]
ToolsAllowed = Annotated[
    Tools,
    option(
        "--tools",
        metavar="recorded|read-only|live",
        help="Actions and tools that may run if no result is recorded: none (recorded), those that are declared "
        "read-only (read-only), or all (live).",
        completes="tools",
    ),
]
AtSharedEvent = Annotated[
    int | None,
    option(
        "--at",
        allowed=INTEGER,
        help="Number of the last event to keep. Default: the last event before the change has an effect.",
    ),
]
EarlyAnswers = Annotated[
    list[str] | None,
    option(
        "--answer",
        metavar="STEP=VALUE",
        help="Answer in advance to the questions of a step, to its second question (STEP:2=VALUE), or to one question "
        "by id. STEP:=JSON is an answer with data. Also read from $DIVEBOOK_ANSWERS, as YAML.",
        completes="answer",
    ),
]
AnswersFile = Annotated[
    Path | None,
    option(
        "--answers",
        metavar="FILE",
        help="File with answers in advance: YAML that maps steps to answers.",
        completes="file",
    ),
]
Tags = Annotated[
    list[str] | None,
    option("--tag", "-t", metavar="TAG", help="Tag of the run. May be repeated.", completes="tag"),
]
NoteText = Annotated[str | None, option("--note", "-n", metavar="TEXT", help="Note on the run.")]
OnConflict = Annotated[
    Literal["warn", "refuse", "return"],
    option(
        "--on-conflict",
        metavar="HOW",
        help="Action if the run with this key was started with other inputs: warn, refuse or return.",
    ),
]
StartKey = Annotated[
    str | None, option("--key", metavar="TEXT", help="Start key. Only one run is started with the same key.")
]
Durability = Annotated[
    Literal["full", "relaxed"] | None,
    option(
        "--durability",
        metavar="full|relaxed",
        help="full: every event survives a power failure. relaxed: faster, but a power failure may lose the latest "
        "events.",
        completes="durability",
    ),
]
Inputs = Annotated[
    list[str] | None,
    option(
        "--input",
        "-v",
        metavar="KEY=VALUE",
        help="Input in YAML, such as n=3, names=[a, b] or title='two words'. KEY:=VALUE is an input in JSON. May be "
        "repeated.",
        as_words=True,
        completes="input",
    ),
]
WorkflowName = Annotated[
    str | None,
    word(
        "NAME",
        "Name of the workflow. Default: the workflow that was defined last.",
        completes="workflow",
        interfaces=[NOTEBOOK],
    ),
]
WorkflowOption = Annotated[
    str | None,
    option("--workflow", "-w", metavar="NAME", help="Name of the workflow.", completes="workflow", interfaces=[SHELL]),
]
ReadDialect = Annotated[
    Literal["divebook", "dive"],
    option(
        "--dialect",
        metavar="NAME",
        help="Dialect of the definitions: divebook, or dive for the legacy Dive dialect.",
        interfaces=[SHELL],
    ),
]
