"""The command ``divebook`` with its list of subcommands; subcommands ``keys``, ``rules``, ``mcp``, ``convert``."""

from __future__ import annotations

import sys
import traceback
from dataclasses import asdict
from json import dumps
from pathlib import Path
from types import TracebackType
from typing import Annotated, Literal

import typer

from divebook._version import __version__
from divebook.cli import options as questions_options
from divebook.cli import queues, run, runs, store
from divebook.cli.options import Actions, By, Code, Json, Store, number_option
from divebook.cli.output import Commands, as_json, columns, note, one_line, run_with_streams, say, secrets, write
from divebook.cli.subcommands import register
from divebook.commands.command import SHELL
from divebook.commands.table import COMMANDS
from divebook.definitions.dialect import OWN, Dialect
from divebook.documents.policy import ENVIRONMENT, KINDS
from divebook.errors import DefinitionError, InputError
from divebook.text.format import visible
from divebook.text.ranges import SECONDS

# ``divebook keys``: what a definition can say.


def keys(
    part: Annotated[
        str | None, typer.Argument(metavar="[PART]", help="Such as Step, Agent, Each; without it, all.")
    ] = None,
    *,
    markdown: Annotated[bool, typer.Option("--markdown", help="The whole reference as a page.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON schema of definition files, for editors.")] = False,
    json: Json = False,
) -> None:
    """List the keys of definitions, with their types and meanings."""
    from divebook.definitions.schema import TABLES, page, reference, schema_text

    if schema:
        write(schema_text().removesuffix("\n"))
        return
    if markdown:
        write(page())
        return
    tables = dict(map(reference, TABLES if part is None else [part]))
    if json:
        # as it is: what stands under a part's name, such as TokenStore, is no secret
        write(dumps({label: [asdict(line) for line in lines] for label, lines in tables.items()}, indent=2))
        return
    for label, lines in tables.items():
        say(label)
        titles = ("key", "holds", "means", "notes")
        columns(titles, ([line.key, line.holds, line.means, line.notes] for line in lines))


# ``divebook rules``: what people allowed when they approved calls.


REVOKE = "revoke"
USAGE = "write divebook rules, or divebook rules revoke ID"


def rules(
    words: Annotated[list[str] | None, typer.Argument(metavar="[revoke ID]", help="The rule to revoke.")] = None,
    *,
    by: By = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """List approval rules that people created, or revoke one.

    A revoked rule has no effect on calls that are checked afterwards.
    """
    from divebook.cli.project import existing_environment
    from divebook.environments.registry import rule_in_words

    if words and (len(words) != 2 or words[0] != REVOKE):
        raise InputError(f"unexpected {' '.join(words)!r}; {USAGE}")
    environment = existing_environment(store)
    if words:
        environment.revoke(words[1], by)
        note(f"{words[1]} is revoked")
        return
    valid_rules = environment.rules()
    if json:
        write(as_json([{"execution": name, **rule._asdict()} for name, rule in valid_rules], indent=2))
        return
    for name, rule in valid_rules:
        say(f"{rule.rule_id}  {one_line(rule_in_words(rule, name), 400)}")
    if not valid_rules:
        note("no rules: every call that asks is asked about")


# ``divebook mcp``: offer workflows as tools of the Model Context Protocol.


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
        number_option(metavar="SECONDS", allowed=SECONDS, help="How long a call waits; its run continues after that."),
    ] = 50.0,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve http://HOST:PORT/mcp instead of standard input and output."),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="env://NAME", help="Bearer token that clients must send; required if other machines can connect."
        ),
    ] = None,
    dialect: Annotated[Dialect, typer.Option(help="dive: the legacy Dive dialect.")] = OWN,
) -> None:
    """Publish workflows as tools of an MCP server.

    The server uses standard streams or HTTP. Each workflow is a tool. If a run asks a person, the MCP client shows the
    question; it can also be answered in a notebook or with `divebook answer`. A run continues after the call, the
    client and this process have ended.
    """
    import asyncio

    if token is not None and http is None:
        raise typer.BadParameter("a token is asked of HTTP clients: give --http HOST:PORT as well")

    from divebook.cli.project import add_definitions, open_environment
    from divebook.documents.policy import KINDS, Policy, resolved
    from divebook.serve import serve_stdio
    from divebook.serve.server import serve_http

    with open_environment(store, actions or (), note) as environment:
        add_definitions(environment, file, dialect, code=code)
        token_value = resolved(token, Policy(*KINDS))  # the command line names it, and no definition
        if http is None:
            asyncio.run(serve_stdio(environment, wait=wait))
        else:
            asyncio.run(serve_http(environment, http, token=token_value, wait=wait))


# ``divebook convert``: definitions of the legacy Dive dialect, or of several files, as one text of divebook's own.


DIFFERENCES = (
    "an action's result, and each item's, is kept as a value and not as text",
    "nested items of Each are not flattened",
    "scripts may change variables with state.set",
    "tools ask a person before a call only if they, or a rule, say so",
)
"""Differences of a converted workflow from the original in the dialect ``dive``, as lines for stderr."""


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE|FOLDER", help="Definitions to convert.")],
    *,
    dialect: Annotated[Dialect, typer.Option(help="The dialect they are written in.")] = "dive",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file for the result; default: stdout.")
    ] = None,
    format: Annotated[Literal["yaml", "json"], typer.Option("--format", help="How it is written.")] = "yaml",
) -> None:
    """Convert definitions from the legacy Dive dialect.

    The result is in the divebook dialect. Scripts are translated to Python.

    Differences and problems of the result are printed on stderr. The exit code is 1 if the result must be corrected
    before it can run.
    """
    from divebook.config.loader import load_file, load_folder
    from divebook.definitions.reader import definitions_to_text, read_definitions
    from divebook.steps.checks import syntax_problems

    # Checked before the definitions are loaded, and never overwritten.
    if output is not None and output.exists():
        raise InputError(f"{output} exists; name a file that does not, or remove it first")
    # All files of a folder become one text.
    load = load_folder if file.is_dir() else load_file
    definitions = load(file, dialect=dialect)
    for warning in definitions.warnings:
        note(warning.describe(str(file)), "yellow")
    text = definitions_to_text(definitions, format)
    if output is None:
        # The text goes to stdout, and warnings and differences to stderr.
        write(text)
    else:
        output.write_text(text, encoding="utf-8")
    if dialect != OWN and definitions.workflows:
        note("the converted workflows differ from those of the dialect dive:")
        for difference in DIFFERENCES:
            note(f"  {difference}")
    # The result is read again in the new dialect: scripts that could not be translated are found there.
    try:
        converted = read_definitions(text, source_name=str(output or "<converted>"), format=format)
        problems = syntax_problems(converted)
    except DefinitionError as error:
        problems = list(error.problems)
    for problem in problems:
        note(problem.describe(str(output or "<converted>")), "red")
    raise typer.Exit(1 if problems else 0)


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
# `divebook --help` lists the commands in this order.
for declared in COMMANDS.values():
    if SHELL in declared.interfaces:
        register(app, declared)
app.command("run", epilog="Example: divebook run audit.yaml -v limit=20")(run.run)
app.command("resume", epilog="Example: divebook resume exec_01k8 audit.yaml")(run.resume)
app.command("fork", epilog="Example: divebook fork exec_01k8 --at 12 --set city=Bonn")(run.fork)
app.command("try", epilog="Example: divebook try exec_01k8 draft audit.yaml --times 3")(runs.try_step)
app.command("what-if", epilog="Example: divebook what-if exec_01k8 --input city=Bonn --plan")(runs.what_if)
app.command("inbox", epilog="Example: divebook inbox")(questions_options.inbox)
app.command("rules", epilog="Example: divebook rules revoke rule_0c5a1b2d3e4f5a6b")(rules)
app.command("answer", epilog="Example: divebook answer ask_1f0c retry audit.yaml")(run.answer)
app.command("signal", epilog='Example: divebook signal exec_01k8 approved \'{"by": "ann"}\' audit.yaml')(run.signal)
app.command("cancel", epilog="Example: divebook cancel exec_01k8")(runs.cancel)
app.command("tag", epilog="Example: divebook tag exec_01k8 baseline")(runs.tag)
app.command("annotate", epilog="Example: divebook annotate exec_01k8 --note 'read twice' --label quality=good")(
    runs.annotate
)
app.command("recover", epilog="Example: divebook recover --all -d audit.yaml")(store.recover)
app.command("check", epilog="Example: divebook check")(store.check)
app.command("doctor", epilog="Example: divebook doctor audit.yaml --ping")(store.doctor)
app.command("keys", epilog="Example: divebook keys Step")(keys)
app.command("convert", epilog="Example: divebook convert old.yaml --dialect dive -o new.yaml")(convert)
app.command("mcp", epilog="Example: divebook mcp audit.yaml --store runs.db")(mcp)
app.command("schedule", epilog="Example: divebook schedule run audit.yaml")(queues.schedule)
app.command("enqueue", epilog="Example: divebook enqueue audit.yaml -v limit=20 --queue labels")(queues.enqueue)
app.command("queue", epilog="Example: divebook queue")(queues.queue)
app.command("worker", epilog="Example: divebook worker audit.yaml --queue labels --parallel 8")(queues.worker)
app.command("backup", epilog="Example: divebook backup backups/monday.db")(store.backup)
app.command("copy", epilog="Example: divebook copy .divebook/executions.db postgresql://me@host/runs")(store.copy)
app.command("gc", epilog="Example: divebook gc --older-than 30d --dry-run")(store.gc)
app.command("export", epilog="Example: divebook export exec_01k8 audit.jsonl")(store.export)
app.command("import", epilog="Example: divebook import audit.jsonl --rename")(store.import_)


@app.command("version", epilog="Example: divebook version")
def version() -> None:
    """Print the version of divebook."""
    sys.stdout.write(f"{__version__}\n")


def _version_at_once(is_requested: bool) -> None:  # noqa: FBT001 - typer hands over what was written
    if is_requested:
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
    """Define the global options. The command group `Commands` accepts them at any position and applies them."""


def main() -> None:
    """Run the command ``divebook`` and exit."""
    # Python would print a traceback with secrets and control characters.
    sys.excepthook = _print_traceback
    run_with_streams(lambda: app(prog_name="divebook"))


def _print_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected exception, without secrets and control characters."""
    sys.stderr.write(visible(secrets.text("".join(traceback.format_exception(kind, error, trace)))))
