"""Builder of the shell's subcommands from the commands that `divebook.commands` declares.

`register` turns a command into a typer function: its words become arguments, its options options, and ``--store``,
``--json`` and the options for definitions are added. The function calls the command and prints its result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import typer

from divebook.cli.options import completion_of, number_parser
from divebook.cli.output import as_json, ending_damaged, print_note, print_report, say, secrets, write
from divebook.commands.command import EXIT_CODES, REQUIRED, SHELL, Command, Invocation, Parameter, ParameterError
from divebook.commands.driving import Drive
from divebook.commands.queues import Interrupted
from divebook.errors import AnswerKeptError

STORE = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH",
        help="Store: a file or a postgresql:// URL. Default: $DIVEBOOK_STORE, otherwise .divebook/executions.db.",
    ),
]
JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DEFINITIONS = Annotated[
    Path | None,
    typer.Option(
        "--definitions",
        "-d",
        metavar="FILE|FOLDER",
        help="File or folder with the definitions of the agents that the run needs. The workflow itself is in the log.",
    ),
]
ACTIONS = Annotated[
    list[str] | None,
    typer.Option(
        "--actions", "-a", metavar="MODULE|FILE.py", help="Python module or file that defines actions. May be repeated."
    ),
]
PRINTING = ("worker", "schedule")
"""Commands that print the text of workflows on stdout, because they print no result of a run there."""
WORDS = "words"
"""Name of the typer argument for words ``KEY=VALUE``."""
STRICT = Annotated[bool, typer.Option("--strict", help="Fail with exit code 1 if the run has to wait for an answer.")]
WAIT = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Wait until a question with a Default expires, or return at once. Default: wait without a terminal.",
    ),
]
QUIET = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show progress.")]
CODE = Annotated[
    bool,
    typer.Option(
        "--code",
        help="Run the code cells of a notebook that contain definitions in Python, and the cells that these need.",
    ),
]


def register(app: typer.Typer, command: Command) -> None:
    """Add a declared command to the program as a subcommand."""
    help_text = "\n\n".join(filter(None, [command.help, command.shell_help]))
    example = f"divebook {command.example}"
    parameters = [*_parameters(command)]
    add_subcommand(
        app, command.name, lambda values: _run(command, values), parameters, help_text=help_text, example=example
    )


def add_subcommand(
    app: typer.Typer,
    name: str,
    run: Callable[[dict[str, Any]], None],
    parameters: Sequence[inspect.Parameter],
    *,
    help_text: str,
    example: str,
) -> None:
    """Add a subcommand to a program. `run` is called with the values of the parameters by name."""

    # Two functions may have a parameter of the same name, so that typer gets one function for each command.
    def subcommand(**values: Any) -> None:
        run(values)

    subcommand.__name__ = name
    subcommand.__doc__ = help_text
    subcommand.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(subcommand)["__signature__"] = inspect.Signature(parameters)
    app.command(name, epilog=f"Example: {example}")(subcommand)


def _parameters(command: Command) -> Iterator[inspect.Parameter]:
    """Yield the parameters of the typer function of a command: its words and options, and those of every command of its
    kind.
    """
    # The order is that of the help.
    if command.file_help:
        yield _file_argument(command)
    for parameter in command.parameters_in(SHELL):
        if parameter.as_words:
            yield _keyword(WORDS, _words_annotation(parameter), None)
        yield typer_parameter(parameter, completion_of(parameter))
    if command.needs_definitions:
        yield _keyword("definitions", DEFINITIONS, None)
    if command.needs_definitions or command.file_help:
        yield _keyword("code", CODE, False)  # noqa: FBT003 - the default of the option
        yield _keyword("actions", ACTIONS, None)
    if command.has_store:
        yield _keyword("store", STORE, None)
    if command.drives:
        if command.waits_for_expiry:
            yield _keyword("wait", WAIT, None)
        yield _keyword("strict", STRICT, False)  # noqa: FBT003 - the default of the option
        yield _keyword("quiet", QUIET, False)  # noqa: FBT003 - the default of the option
    if command.data is not None:
        yield _keyword("json", JSON, False)  # noqa: FBT003 - the default of the option


def _file_argument(command: Command) -> inspect.Parameter:
    """Return the first word of a command that takes a file of definitions."""
    is_required = command.file_default is REQUIRED
    metavar = "FILE|FOLDER" if is_required else "[FILE|FOLDER]"
    kind: Any = Path if is_required or command.file_default is not None else Path | None
    argument = typer.Argument(metavar=metavar, help=command.file_help)
    return _keyword("definitions", Annotated[kind, argument], ... if is_required else command.file_default)


def _keyword(name: str, annotation: Any, default: Any = ...) -> inspect.Parameter:
    default = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


Completion: TypeAlias = Callable[..., Any] | None
"""Function with which typer completes the values of a parameter; None if it has none to suggest."""


def typer_parameter(parameter: Parameter, completion: Completion) -> inspect.Parameter:
    """Return a declared parameter as the parameter of a typer function."""
    default = ... if parameter.is_required else parameter.default
    return _keyword(parameter.name, _annotation(parameter, completion), default)


def _annotation(parameter: Parameter, completion: Completion) -> Any:
    """Return the type of a parameter with the declaration that typer reads."""
    kind: Any = Literal[parameter.choices] if parameter.choices else parameter.type
    if parameter.is_repeated:
        kind = list[kind]
    if parameter.default is None:
        kind = kind | None
    if parameter.is_word:
        metavar = parameter.usage if not parameter.is_repeated else f"{parameter.metavar}..."
        argument = typer.Argument(metavar=metavar, help=parameter.help, autocompletion=completion)
        return Annotated[kind, argument]
    # A list of choices says more than the word in the declaration.
    metavar_of_option = None if parameter.choices or parameter.is_flag else parameter.metavar
    # typer takes `1.0` for an integer, and other interfaces do not.
    is_number = parameter.type in (int, float)
    return Annotated[
        kind,
        typer.Option(
            *parameter.spellings,
            metavar=metavar_of_option,
            help=parameter.help,
            parser=number_parser(parameter) if is_number else None,
            envvar=parameter.variable or None,
            autocompletion=completion,
        ),
    ]


def _words_annotation(parameter: Parameter) -> Any:
    """Return the declaration of the words ``KEY=VALUE`` that mean the same as an option."""
    argument = typer.Argument(metavar=f"[{parameter.metavar}]...", help=f"The same as {parameter.spellings[0]}.")
    return Annotated[list[str] | None, argument]


def _drive(command: Command, values: dict[str, Any]) -> None:
    """Call a command that continues a run, wait until the run stops, print its result, and exit with its exit code."""
    from divebook.cli.progress import make_progress
    from divebook.cli.run import conclude, finish, repeated_options, show_plan, stop_at_kept_answer

    _join_words(command, values)
    prints_json = values.pop("json")
    strict = values.pop("strict")
    wait = values.pop("wait", False)
    # Not entered yet: a live list would overwrite the question of a plan.
    progress = make_progress(quiet=values.pop("quiet"))
    # The commands that are printed at the end repeat these options.
    again = repeated_options(values["actions"], values["store"], values["definitions"], code=values["code"])
    call = _invocation(command, values, progress.print)
    result = command.function(call, **values)
    if not isinstance(result, Drive):
        show(command, result, values, prints_json=prints_json)
        code = command.exit_code(result)
        raise typer.Exit(EXIT_CODES["failed"] if strict and code == EXIT_CODES["waiting"] else code)
    if result.plan is not None:
        show_plan(result.plan, asks=result.asks)
    try:
        with progress:
            ended = finish(result.begin, call.environment, progress, result.answers, waits=wait)
    # The answer is stored, and the run continues when its agents and actions are there.
    except AnswerKeptError as error:
        stop_at_kept_answer(error, again)
    conclude(*ended, again, json=prints_json, strict=strict)


def _run(command: Command, values: dict[str, Any]) -> None:
    """Call a command with the values of the command line, print its result, and exit with its exit code."""
    if command.drives:
        _drive(command, values)
    _join_words(command, values)
    prints_json = values.pop("json", False)
    call = _invocation(command, values, say if command.name in PRINTING else print_note)
    try:
        if command.reports_damage:
            with ending_damaged():
                result = command.function(call, **values)
        else:
            result = command.function(call, **values)
    except ParameterError as error:
        raise typer.BadParameter(f"it {error.problem}", param_hint=error.parameter.usage.partition(" ")[0]) from error
    if isinstance(result, Interrupted) and result.resumes:
        _recover(command, result, values, prints_json=prints_json)
    show(command, result, values, prints_json=prints_json)
    raise typer.Exit(command.exit_code(result))


def _recover(command: Command, interrupted: Interrupted, values: Mapping[str, Any], *, prints_json: bool) -> NoReturn:
    """Resume interrupted runs, print the status of each, and exit with the worst exit code."""
    from divebook.cli.run import recover_each

    code = recover_each(interrupted, quiet=prints_json)
    if prints_json:
        show(command, interrupted, values, prints_json=True)
    raise typer.Exit(code)


def _join_words(command: Command, values: dict[str, Any]) -> None:
    """Add the values that were given as words ``KEY=VALUE`` to those of the option."""
    words = values.pop(WORDS, None)
    for parameter in command.parameters:
        if parameter.as_words:
            values[parameter.name] = [*(words or ()), *(values[parameter.name] or ())]


def show(command: Command, result: Any, values: Mapping[str, Any], *, prints_json: bool) -> None:
    """Print the result of a command on stdout: as JSON, with the printer of the command, or as its report."""
    from divebook.cli.result import PRINTERS, note_problems_of
    from divebook.report.shown import Shown

    printer = PRINTERS.get(command.name)
    if prints_json:
        data = command.output(result)
        write(as_json(data, indent=2) if command.redacts else dumps(data, indent=2))
    elif printer is not None:
        printer(result, values)
    elif isinstance(result, Shown):
        print_report(result.report())
    elif result is not None:
        write(secrets.text(result))
    note_problems_of(result)


def _invocation(command: Command, values: dict[str, Any], print_text: Callable[[str], None]) -> Invocation:
    """Return the call of a command. Values that concern the interface and not the command are taken out of `values`."""
    store = values.pop("store", None)
    has_definitions = command.needs_definitions or bool(command.file_help)
    definitions = values.pop("definitions") if has_definitions else None
    code = values.pop("code") if has_definitions else False
    actions = values.pop("actions") if has_definitions else None

    def open_environment() -> Any:
        from divebook.cli import project
        from divebook.commands.store import existing_store

        # Commands that only read must not create a store.
        if not command.makes_store:
            existing_store(store)
        return project.open_environment(store, actions or (), print_text)

    def define(environment: Any, dialect: Any) -> None:
        from divebook.cli.project import add_definitions
        from divebook.definitions.dialect import OWN

        if definitions is not None:
            add_definitions(environment, definitions, dialect or OWN, code=code)

    def choose_workflow(environment: Any, name: str | None) -> Any:
        from divebook.cli.project import choose_workflow

        return environment.internals.registry.workflow(choose_workflow(environment, name, definitions or Path()))

    def schedules(environment: Any) -> Any:
        from divebook.cli.project import schedules_of

        return schedules_of(environment, definitions or Path(), code=code)

    def open_store() -> Any:
        from divebook.commands.store import existing_store

        return existing_store(store)

    return Invocation(
        SHELL,
        open_environment,
        print_note,
        store,
        define,
        secrets.learn,
        definitions,
        open_store=open_store,
        choose_workflow=choose_workflow,
        schedules=schedules,
    )
