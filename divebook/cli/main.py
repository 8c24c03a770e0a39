"""The command ``divebook`` and its list of subcommands."""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import Annotated

import typer

from divebook._version import __version__
from divebook.cli import (
    convert,
    doctor,
    files,
    keys,
    logs,
    looking,
    mcp,
    questions,
    queues,
    recovery,
    resuming,
    rules,
    run,
    runs,
    schedule,
    trying,
    upkeep,
    what_if,
)
from divebook.cli.refusal import Commands
from divebook.cli.streams import run_with_streams
from divebook.cli.text import secrets
from divebook.documents.policy import ENVIRONMENT, KINDS
from divebook.text.shown import visible

app = typer.Typer(
    name="divebook",
    cls=Commands,
    add_completion=True,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Run workflows of agents, actions and scripts; look at what they did, and resume them.",
    epilog="Exit codes: 0 completed, 1 failed, 2 bad input or usage, 3 waiting, 130 cancelled.",
)
app.command("run", epilog="Example: divebook run audit.yaml -v limit=20")(run.run)
app.command("resume", epilog="Example: divebook resume exec_01k8 audit.yaml")(resuming.resume)
app.command("fork", epilog="Example: divebook fork exec_01k8 --at 12 --set city=Bonn")(run.fork)
app.command("try", epilog="Example: divebook try exec_01k8 draft audit.yaml --times 3")(trying.try_step)
app.command("what-if", epilog="Example: divebook what-if exec_01k8 --input city=Bonn --plan")(what_if.what_if)
app.command("runs", epilog="Example: divebook runs --status failed --limit 5")(runs.runs)
app.command("show", epilog="Example: divebook show exec_01k8 --events")(runs.show)
app.command("why", epilog="Example: divebook why exec_01k8 total")(looking.why)
app.command("compare", epilog="Example: divebook compare exec_01k8 exec_01k9")(runs.compare)
app.command("inspect", epilog="Example: divebook inspect exec_01k8")(looking.inspect)
app.command("files", epilog="Example: divebook files exec_01k8")(files.files)
app.command("diff", epilog="Example: divebook diff exec_01k8 src/app.py")(files.diff)
app.command("apply", epilog="Example: divebook apply exec_01k8 src/app.py")(files.apply)
app.command("restore", epilog="Example: divebook restore exec_01k8 then --at 12")(files.restore)
app.command("verify", epilog="Example: divebook verify exec_01k8 audit.yaml")(looking.verify)
app.command("to-test", epilog="Example: divebook to-test exec_01k8 audit.yaml")(looking.to_test)
app.command("open", epilog="Example: divebook open run.html")(runs.open_)
app.command("inbox", epilog="Example: divebook inbox")(questions.inbox)
app.command("rules", epilog="Example: divebook rules revoke rule_0c5a1b2d3e4f5a6b")(rules.rules)
app.command("answer", epilog="Example: divebook answer ask_1f0c retry audit.yaml")(run.answer)
app.command("signal", epilog='Example: divebook signal exec_01k8 approved \'{"by": "ann"}\' audit.yaml')(run.signal)
app.command("cancel", epilog="Example: divebook cancel exec_01k8")(runs.cancel)
app.command("tag", epilog="Example: divebook tag exec_01k8 baseline")(runs.tag)
app.command("annotate", epilog="Example: divebook annotate exec_01k8 --note 'read twice' --label quality=good")(
    runs.annotate
)
app.command("recover", epilog="Example: divebook recover --all -d audit.yaml")(recovery.recover)
app.command("check", epilog="Example: divebook check")(upkeep.check)
app.command("doctor", epilog="Example: divebook doctor audit.yaml --ping")(doctor.doctor)
app.command("keys", epilog="Example: divebook keys Step")(keys.keys)
app.command("convert", epilog="Example: divebook convert old.yaml --dialect dive -o new.yaml")(convert.convert)
app.command("mcp", epilog="Example: divebook mcp audit.yaml --store runs.db")(mcp.mcp)
app.command("schedule", epilog="Example: divebook schedule run audit.yaml")(schedule.schedule)
app.command("enqueue", epilog="Example: divebook enqueue audit.yaml -v limit=20 --queue labels")(queues.enqueue)
app.command("queue", epilog="Example: divebook queue")(queues.queue)
app.command("worker", epilog="Example: divebook worker audit.yaml --queue labels --parallel 8")(queues.worker)
app.command("backup", epilog="Example: divebook backup backups/monday.db")(upkeep.backup)
app.command("copy", epilog="Example: divebook copy .divebook/executions.db postgresql://me@host/runs")(upkeep.copy)
app.command("gc", epilog="Example: divebook gc --older-than 30d --dry-run")(upkeep.gc)
app.command("export", epilog="Example: divebook export exec_01k8 audit.jsonl")(logs.export)
app.command("import", epilog="Example: divebook import audit.jsonl --rename")(logs.import_)


@app.command("version", epilog="Example: divebook version")
def version() -> None:
    """Print the version of divebook."""
    sys.stdout.write(f"{__version__}\n")


def _version_at_once(asked: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if asked:
        version()
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="KIND",
            help=f"Let a definition have: {', '.join(KINDS)}, {ENVIRONMENT}:NAME; see SECURITY.md.",
        ),
    ] = None,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Show what looks like a credential.")] = False,
    version_asked: Annotated[
        bool, typer.Option("--version", help="Print the version, and exit.", callback=_version_at_once, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before, or among those of, any command; `Commands` acts on them."""


def main() -> None:
    """Run the command line."""
    sys.excepthook = _print_traceback
    run_with_streams(lambda: app(prog_name="divebook"))


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print what ends the process without having been expected, but no secrets and no control characters."""
    sys.stderr.write(visible(secrets.text("".join(traceback.format_exception(kind, error, trace)))))
