"""Commands about definitions, models and divebook itself: ``keys``, ``list``, ``help``, ``convert``, ``doctor``,
``version``.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

from divebook._version import __version__
from divebook.commands.command import DEFINE, NOTEBOOK, SHELL, Fields, Invocation, command, option, word
from divebook.errors import DefinitionError, DivebookError, InputError
from divebook.report.hints import advised
from divebook.report.shown import Shown

if TYPE_CHECKING:
    from divebook.agents.models import Examined
    from divebook.definitions.schema import KeyLine
    from divebook.environments.environment import Environment
    from divebook.errors import Problem
    from divebook.report.model import Report


# --- keys ------------------------------------------------------------------------------------------------------------


class KeysData(TypedDict):
    """Result of ``keys`` as JSON: the keys of each part of a definition, by name of the part."""

    parts: dict[str, list[Annotated[dict[str, Any], Fields("divebook.definitions.schema:KeyLine")]]]


@dataclass(frozen=True, repr=False)
class Keys(Shown):
    """Keys of definitions, by part."""

    parts: dict[str, list[KeyLine]]
    is_folded: bool = False
    """True if a page has the keys folded below the names of their parts, and text has the names only."""

    def report(self) -> Report:
        """Return a table of keys for each part."""
        from divebook.report.model import Column, Paragraph, Report, Section, Table

        columns = (Column("key"), Column("type", "long"), Column("description", "long"), Column("notes", "long"))
        tables = {
            label: Table(columns, tuple((line.key, line.holds, line.means, line.notes) for line in lines))
            for label, lines in self.parts.items()
        }
        if self.is_folded:
            names = f"parts of a definition: {', '.join(tables)}; {advised('keys PART')} lists the keys of one"
            sections = [Section(label, (table,), is_open=False, in_text=False) for label, table in tables.items()]
            return Report(blocks=(Paragraph((names,)), *sections))
        return Report(blocks=tuple(replace(table, title=label) for label, table in tables.items()))


def keys_data(keys: Keys) -> KeysData:
    """Return the keys of definitions as plain data."""
    return {"parts": {label: [asdict(line) for line in lines] for label, lines in keys.parts.items()}}


@command(
    "keys",
    DEFINE,
    example="keys Step",
    no_python="The keys are the parameters of `Step`, `Workflow`, `Agent` and the other classes.",
    data=keys_data,
    has_store=False,
    redacts=False,
)
def keys(
    call: Invocation,
    part: Annotated[
        str | None,
        word("PART", "Part of a definition, such as Step, Agent or Each. Default: all parts.", completes="part"),
    ] = None,
    *,
    markdown: Annotated[  # noqa: ARG001 - the shell prints the page
        bool, option("--markdown", help="Print the whole reference as a Markdown page.", interfaces=[SHELL])
    ] = False,
    schema: Annotated[  # noqa: ARG001 - the shell prints the schema
        bool, option("--schema", help="Print the JSON schema of definition files, for editors.", interfaces=[SHELL])
    ] = False,
) -> Keys:
    """List the keys of definitions, with their types and descriptions."""
    from divebook.definitions.schema import TABLES, reference

    # All keys are too many for a cell.
    is_folded = part is None and call.interface == NOTEBOOK
    return Keys(dict(map(reference, TABLES if part is None else [part])), is_folded)


# --- list ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DefinedNames:
    """Names of the workflows, agents and actions of a session."""

    environment: Environment


@command(
    "list",
    DEFINE,
    example="list",
    no_python="`environment.definitions` contains them, as `workflows`, `agents`, `actions` and so on.",
    interfaces=[NOTEBOOK],
    has_store=False,
)
def list_definitions(call: Invocation) -> DefinedNames:
    """List the defined workflows, agents and actions."""
    return DefinedNames(call.environment)


# --- help ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HelpRequest:
    """A word to explain: a command or a key of definitions; None for the list of all commands."""

    word: str | None


@command(
    "help",
    DEFINE,
    example="help run",
    no_python="`help(divebook.run)` describes a function.",
    notebook_help="`%dive COMMAND?` shows the same help.",
    has_store=False,
)
def show_help(
    call: Invocation,
    about: Annotated[
        str | None,
        word(
            "WORD",
            "Name of a command, or of a key such as Ask, Retry or Each. For a key: its description, type and an "
            "example.",
            completes="command",
        ),
    ] = None,
) -> HelpRequest | str:
    """Describe a command or a key of definitions."""
    # The shell itself describes its commands, before a command is called.
    if call.interface == SHELL:
        from divebook.definitions.schema import help_about

        return help_about(about or "")
    return HelpRequest(about)


# --- convert: definitions of the legacy Dive dialect, or of several files, as one text of divebook's own -------------


DIFFERENCES = (
    "results of actions and of items are stored as values and not as text",
    "nested items of Each are not flattened",
    "scripts may change variables with state.set",
    "a tool call needs the approval of a person only if the tool or an approval rule requires it",
)
"""Differences of a converted workflow from the original in the dialect ``dive``, as lines for stderr."""


@dataclass(frozen=True)
class Converted:
    """Definitions as one text of the divebook dialect, and the problems to correct in it."""

    text: str
    problems: list[Problem]
    file: Path | None
    """The file that has the text; None: it is printed."""


class ProblemData(TypedDict):
    """A problem of a definition as JSON. Lines and columns count from 1; 0 is an unknown place."""

    message: str
    line: int
    column: int
    key: str | None
    severity: str
    hint: str | None


class ConvertedData(TypedDict):
    """Result of ``convert`` as JSON. `file` has the text if it was written."""

    text: str
    file: str | None
    problems: list[ProblemData]


def converted_data(converted: Converted) -> ConvertedData:
    """Return converted definitions as plain data."""
    return {
        "text": converted.text,
        "file": None if converted.file is None else str(converted.file),
        "problems": [
            {
                "message": problem.message,
                "line": problem.line,
                "column": problem.column,
                "key": problem.key,
                "severity": problem.severity,
                "hint": problem.hint,
            }
            for problem in converted.problems
        ],
    }


@command(
    "convert",
    DEFINE,
    example="convert old.yaml --dialect dive -o new.yaml",
    no_python="Not available in Python; run the command in a shell.",
    interfaces=[SHELL],
    data=converted_data,
    exit_code=lambda converted: 1 if converted.problems else 0,
    has_store=False,
)
def convert(
    call: Invocation,
    file: Annotated[Path, word("FILE|FOLDER", "Definitions to convert.", completes="file")],
    *,
    dialect: Annotated[
        Literal["divebook", "dive"], option("--dialect", metavar="NAME", help="Dialect of the definitions.")
    ] = "dive",
    output: Annotated[
        Path | None,
        option("--output", "-o", metavar="FILE", help="New file for the result. Default: stdout.", completes="file"),
    ] = None,
    form: Annotated[
        Literal["yaml", "json"], option("--format", metavar="yaml|json", help="Format of the result.")
    ] = "yaml",
) -> Converted:
    """Convert definitions from the legacy Dive dialect.

    The result is in the divebook dialect. Scripts are translated to Python.

    Differences and problems of the result are printed on stderr. The exit code is 1 if the result must be corrected
    before it can run.
    """
    from divebook.config.loader import load_file, load_folder
    from divebook.definitions.dialect import OWN
    from divebook.definitions.reader import definitions_to_text, read_definitions
    from divebook.steps.checks import syntax_problems

    # Checked before the definitions are loaded, and never overwritten.
    if output is not None and output.exists():
        raise InputError(f"{output} exists already; name another file, or remove the existing one")
    # All files of a folder become one text.
    load = load_folder if file.is_dir() else load_file
    definitions = load(file, dialect=dialect)
    for warning in definitions.warnings:
        call.print_note(warning.describe(str(file)), "yellow")
    text = definitions_to_text(definitions, form)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if dialect != OWN and definitions.workflows:
        call.print_note("the converted workflows differ from those of the dialect dive:")
        for difference in DIFFERENCES:
            call.print_note(f"  {difference}")
    # The result is read again in the new dialect: scripts that could not be translated are found there.
    try:
        converted = read_definitions(text, source_name=str(output or "<converted>"), format=form)
        problems = list(syntax_problems(converted))
    except DefinitionError as error:
        problems = list(error.problems)
    for problem in problems:
        call.print_note(problem.describe(str(output or "<converted>")), "red")
    return Converted(text, problems, output)


# --- doctor: what the agents of a definition, and their models, need before they can be asked -------------------------


class ModelData(TypedDict):
    """Needs of one model as JSON. `answer` is the result of ``--ping``."""

    model: str
    agents: str
    library: str
    key: str
    price: str
    hint: str
    problems: list[str]
    usable: bool
    answer: NotRequired[str]


class ModelsData(TypedDict):
    """Result of ``doctor`` as JSON."""

    models: list[ModelData]
    missing: list[str]


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown):
    """Needs of each model: a library, a key, a price. `missing` has a message for each agent, action and workflow that
    a step names and that the definitions lack.
    """

    rows: list[ModelData]
    missing: list[str]

    @property
    def is_usable(self) -> bool:
        """True if every model can be called, every agent can work, and no definition is missing."""
        return not self.missing and all(row["usable"] for row in self.rows)

    def report(self) -> Report:
        """Return a table with a row for each model."""
        from divebook.report.model import Column, Report, Table

        if not self.rows:
            return Report("no agents are defined, so no model is needed")
        # Names of libraries and keys are never cut, so that they can be copied. Only `--ping` has answers.
        columns = (
            Column("model", "long"),
            Column("agents", "long"),
            Column("library"),
            Column("key"),
            Column("price", "long"),
            Column("answer", "long", is_optional=True),
        )
        rows = [tuple(str(row.get(column.title, "")) for column in columns) for row in self.rows]
        return Report(blocks=(Table(columns, tuple(rows)),))


def diagnosis_data(diagnosis: Diagnosis) -> ModelsData:
    """Return what each model still needs as plain data."""
    return {"models": diagnosis.rows, "missing": diagnosis.missing}


@command(
    "doctor",
    DEFINE,
    example="doctor audit.yaml --ping",
    no_python="To check an installation, run the command in a shell.",
    interfaces=[SHELL],
    data=diagnosis_data,
    exit_code=lambda diagnosis: int(not diagnosis.is_usable),
    file_help="File or folder with definitions. Without a file, the default model of each provider is checked.",
    file_default=None,
    shell_help="The exit code is 1 if a model cannot be called, if an agent cannot work, or if a step names an agent, "
    "action or workflow that does not exist.",
)
def doctor(
    call: Invocation,
    *,
    ping: Annotated[
        bool, option("--ping", help="Send a small request to each model. Each request may cost a little.")
    ] = False,
) -> Diagnosis:
    """Check the requirements of each model: a library, a key, a price.

    Unknown names in agents are reported as well. The store is needed only for models that replay the responses
    of a recorded run. The output shows the names of API keys, and never their values.
    """
    from divebook.agents.models import examine
    from divebook.environments.environment import Environment
    from divebook.plugins import check_plugins

    # Nothing is run, so that no store is needed.
    environment = Environment(store="memory:")
    if call.definitions is not None:
        call.define(environment, None)
    problems = _problems(environment, call.store)
    # Whether each plugin of the installed packages can be loaded.
    for plugin, error in check_plugins():
        call.print_note(error or f"{plugin.full_name} can be loaded", "red" if error else "")
    rows = []
    for (model, api_key), agents in _models(environment, has_file=call.definitions is not None).items():
        problems_of_agents = [problems[name] for name in agents if name in problems]
        rows.append(_row(agents, examine(model, api_key), problems_of_agents, api_key=api_key, ping=ping))
    source = str(call.definitions or "")
    missing = [
        problem.describe(source)
        for problem in environment.internals.registry.not_yet(environment.definitions.workflows.values())
    ]
    for message in missing:
        call.print_note(message, "red")
    return Diagnosis(rows, missing)


def _models(environment: Environment, *, has_file: bool) -> dict[tuple[str, str | None], list[str]]:
    """Return the models that ``divebook doctor`` checks, with the reference to a key that agents may have, each with
    the names of the agents that use it. Without a file of definitions, return a default model of each provider.
    """
    from divebook.agents.models import DEFAULT_MODELS

    if not has_file:
        return {(f"{provider}:{model}", None): [] for provider, model in DEFAULT_MODELS.items()}
    models: dict[tuple[str, str | None], list[str]] = {}
    for agent in environment.definitions.agents.values():
        models.setdefault((agent.model_name, agent.definition.api_key), []).append(agent.name)
    return models


def _problems(environment: Environment, store: str | None) -> dict[str, str]:
    """Return the error text of each agent whose settings, tools or model are invalid, by name of the agent."""
    from divebook.agents.models import RECORDED
    from divebook.commands.store import existing_store
    from divebook.steps.checks import check_model

    problems: dict[str, str] = {}
    for agent in environment.definitions.agents.values():
        try:
            environment.internals.registry.check_agent(agent)
            # A recorded model plays runs of the real store.
            runs = existing_store(store) if agent.model_name.startswith(RECORDED) else environment.store
            check_model(agent.model, f"agent {agent.name}", runs)
        except DivebookError as error:
            problems[agent.name] = str(error)
    return problems


def _row(agents: list[str], examined: Examined, problems: list[str], *, api_key: str | None, ping: bool) -> ModelData:
    key = examined.key
    # The name of the variable that contains the key, and never its value.
    if not key and examined.found_key:
        key = f"{examined.found_key} is set"
    elif not key and not examined.library:
        key = "not needed"
    row: ModelData = {
        "model": examined.model,
        "agents": ", ".join(agents),
        "library": examined.library or "installed",
        "key": key,
        "price": "known" if examined.has_price else "unknown: max_cost cannot be enforced",
        "hint": examined.hint,
        "problems": problems,
        "usable": examined.is_usable and not problems,
    }
    if ping:
        row["answer"], can_answer = _answer(examined, api_key)
        # The answer of the model decides, whatever the checks have said.
        row["usable"] = can_answer and not problems
    return row


def _answer(examined: Examined, api_key: str | None) -> tuple[str, bool]:
    """Send a test request to a model. Return the text to show (the answer, or the reason why there is none) and whether
    the model answered.
    """
    import anyio

    from divebook.agents.models import ping
    from divebook.agents.scripted import SCRIPTED

    if examined.model == SCRIPTED:
        return "answers offline", True
    if not examined.is_usable:
        return "not called", False
    try:
        return anyio.run(ping, examined.model, api_key) or "an empty answer", True
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is what the person wants to read
        return f"{type(error).__name__}: {error}", False


# --- version ---------------------------------------------------------------------------------------------------------


class VersionData(TypedDict):
    """Result of ``version`` as JSON."""

    version: str


def version_data(version: str) -> VersionData:
    """Return the version of divebook as plain data."""
    return {"version": version}


@command(
    "version",
    DEFINE,
    example="version",
    no_python="`divebook.__version__` is the version.",
    interfaces=[SHELL],
    data=version_data,
    has_store=False,
)
def version(_call: Invocation) -> str:
    """Print the version of divebook."""
    return __version__
