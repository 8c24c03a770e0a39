"""Builder of the shell's subcommands from the commands that `divebook.commands` declares.

`register` turns a command into a typer function: its words become arguments, its options options, and ``--store``,
``--json`` and the options for definitions are added. The function calls the command and prints its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from divebook.cli.output import as_json, ending_damaged, note, print_report, secrets, write
from divebook.commands.command import SHELL, Command, Invocation, Parameter, ParameterError
from divebook.definitions.dialect import OWN

STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Where executions are kept, a file or a postgresql:// URL; default: $DIVEBOOK_STORE, else "
        ".divebook/executions.db.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFINITIONS = Annotated[
    Path | None,
    typer.Option(
        "--definitions",
        "-d",
        metavar="FILE|FOLDER",
        help="Definitions with the agents that the workflow needs; its own steps are in the log.",
    ),
]
ACTIONS = Annotated[
    list[str] | None,
    typer.Option("--actions", "-a", metavar="MODULE|FILE.py", help="Python that defines actions; may be repeated."),
]
CODE = Annotated[
    bool, typer.Option("--code", help="Run the cells of a notebook that define in Python, and those they need.")
]


def register(app: typer.Typer, command: Command) -> None:
    """Add a declared command to the program as a subcommand."""

    # Two functions may have a parameter of the same name, so that typer gets one function for each command.
    def subcommand(**values: Any) -> None:
        _run(command, values)

    parameters = [*_parameters(command)]
    subcommand.__name__ = command.name
    subcommand.__doc__ = "\n\n".join(filter(None, [command.help, command.shell_help]))
    subcommand.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(subcommand)["__signature__"] = inspect.Signature(parameters)
    app.command(command.name, epilog=f"Example: divebook {command.example}")(subcommand)


def _parameters(command: Command) -> Iterator[inspect.Parameter]:
    """Yield the parameters of the typer function of a command."""
    for parameter in command.parameters_in(SHELL):
        yield _keyword(parameter.name, _annotation(parameter), ... if parameter.is_required else parameter.default)
    if command.needs_definitions:
        yield _keyword("definitions", DEFINITIONS, None)
        yield _keyword("code", CODE, False)  # noqa: FBT003 - the default of the option
        yield _keyword("actions", ACTIONS, None)
    if command.has_store:
        yield _keyword("store", STORE, None)
    if command.data is not None:
        yield _keyword("json", JSON, False)  # noqa: FBT003 - the default of the option


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _annotation(parameter: Parameter) -> Any:
    """Return the type of a parameter with the declaration that typer reads."""
    kind: Any = Literal[parameter.choices] if parameter.choices else parameter.type
    if parameter.is_repeated:
        kind = list[kind]
    if parameter.default is None:
        kind = kind | None
    if parameter.is_word:
        metavar = parameter.usage if not parameter.is_repeated else f"{parameter.metavar}..."
        return Annotated[kind, typer.Argument(metavar=metavar, help=parameter.help)]
    # A list of choices says more than the word in the declaration.
    metavar_of_option = None if parameter.choices or parameter.is_flag else parameter.metavar
    callback = None if parameter.allowed is None else _check(parameter)
    return Annotated[
        kind,
        typer.Option(*parameter.spellings, metavar=metavar_of_option, help=parameter.help, callback=callback),
    ]


def _check(parameter: Parameter) -> Callable[[Any], Any]:
    """Return a typer callback that refuses a value outside of the range of a parameter."""

    def check(value: Any) -> Any:
        problem = parameter.problem(value)
        if problem is not None:
            raise typer.BadParameter(problem)
        return value

    return check


def _run(command: Command, values: dict[str, Any]) -> None:
    """Call a command with the values of the command line, print its result, and exit with its exit code."""
    prints_json = values.pop("json", False)
    call = _invocation(command, values)
    try:
        if command.reports_damage:
            with ending_damaged():
                result = command.function(call, **values)
        else:
            result = command.function(call, **values)
    except ParameterError as error:
        raise typer.BadParameter(error.problem, param_hint=error.parameter.usage.partition(" ")[0]) from error
    show(command, result, values, prints_json=prints_json)
    raise typer.Exit(command.exit_code(result))


def show(command: Command, result: Any, values: Mapping[str, Any], *, prints_json: bool) -> None:
    """Print the result of a command on stdout: as JSON, with the printer of the command, or as its text."""
    from divebook.cli.result import PRINTERS, learn_secrets, note_damage_of
    from divebook.report.shown import Shown

    # Secrets in the values of a run are learned before anything is printed.
    learn_secrets(result)
    printer = PRINTERS.get(command.name)
    if prints_json:
        write(as_json(command.output(result), indent=2))
    elif printer is not None:
        printer(result, values)
    elif isinstance(result, Shown):
        print_report(result.report())
    elif result is not None:
        write(secrets.text(str(result)))
    note_damage_of(result)


def _invocation(command: Command, values: dict[str, Any]) -> Invocation:
    """Return the call of a command. Values that concern the interface and not the command are taken out of `values`."""
    store = values.pop("store", None)
    definitions = values.pop("definitions", None) if command.needs_definitions else None
    code = values.pop("code", False) if command.needs_definitions else False
    actions = values.pop("actions", None) if command.needs_definitions else None

    def open_environment() -> Any:
        from divebook.cli import project

        # Commands that only read must not create a store.
        if not command.makes_store:
            project.existing_store(store)
        return project.open_environment(store, actions or (), note)

    def define(environment: Any, dialect: Any) -> None:
        from divebook.cli.project import add_definitions

        if definitions is not None:
            add_definitions(environment, definitions, dialect or OWN, code=code)

    return Invocation(SHELL, open_environment, note, store, define, secrets.learn, definitions)
