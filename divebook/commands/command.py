"""Declaration of a command: name, parameters, help, example and output, from which each interface builds its own form.

A command is a function with the decorator `command`. Its docstring is the help text, and its annotations declare the
parameters::

    @command("why", LOOK, example="why total exec_01k8")
    def why(call: Invocation, name: Annotated[str, word("NAME", "The variable.")], run: RunOrNewest = None, *,
            at: AtEvent = None) -> Provenance:
        ...

The shell (`divebook.cli.main`) makes a subcommand of it, the notebook (`divebook.notebook.magics`) a sub-command of
``%dive``. Both have the same words in the same order, and the same options. A parameter or a command that makes sense
in one interface only names it in `interfaces`.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from divebook.errors import DefinitionError, ExecutionNotFoundError, InputError, NotFoundError, shown_number
from divebook.report.hints import advised
from divebook.text.format import json_time
from divebook.text.ranges import NumberRange

if TYPE_CHECKING:
    from divebook.config.answers import Answers
    from divebook.definitions.definition import Definitions, Workflow
    from divebook.definitions.dialect import Dialect
    from divebook.environments.environment import Environment
    from divebook.environments.starts import StartOptions
    from divebook.runtime.run import Run
    from divebook.stores import EventStore


Interface: TypeAlias = Literal["shell", "notebook", "python"]
SHELL: Final = "shell"
NOTEBOOK: Final = "notebook"
PYTHON: Final = "python"
ALL: Final = frozenset[Interface]({SHELL, NOTEBOOK, PYTHON})
EXIT_CODES = {"completed": 0, "failed": 1, "waiting": 3, "paused": 3, "cancelled": 130}
"""Exit codes of the shell by status of a run. A status without an entry, such as ``moved``, has the code 1."""
FORMAT = 1
"""Version of the JSON that commands print with ``--json``: the value of its key ``divebook``."""

# --- parameters ------------------------------------------------------------------------------------------------------


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of a parameter that has no default."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A word or an option of a command.

    `word` and `option` declare it in the annotation of a function's parameter. The fields from `name` on come from the
    function: `Command.parameters` sets them.
    """

    spellings: tuple[str, ...]
    """Spellings of an option, such as ``("--limit", "-n")``; empty for a word."""
    metavar: str
    help: str
    allowed: NumberRange | None = None
    completes: str = ""
    """Kind of the values that completion suggests: ``run``, ``workflow``, ``tag``, ``file``, ..."""
    interfaces: frozenset[Interface] = ALL
    as_words: bool = False
    """True for an option whose values may also be given as words ``KEY=VALUE`` behind the other words."""
    takes_object: bool = False
    """True if a notebook may pass any Python object (``$name``) as the value."""
    variable: str = ""
    """Environment variable with the value of an option that is not given; empty for none."""
    name: str = ""
    """Name of the parameter of the function."""
    type: Any = str
    """Type of one value: ``str``, ``int``, ``float``, ``bool`` or ``Path``."""
    choices: tuple[str, ...] = ()
    default: Any = REQUIRED
    is_repeated: bool = False

    @property
    def is_word(self) -> bool:
        """True for a word, False for an option."""
        return not self.spellings

    @property
    def is_flag(self) -> bool:
        """True for an option without a value."""
        return self.type is bool

    @property
    def is_required(self) -> bool:
        """True if a command cannot be called without a value for this parameter."""
        return self.default is REQUIRED

    @property
    def usage(self) -> str:
        """The parameter as usage lines show it: ``NAME``, ``[RUN]``, ``[FILE ...]`` or ``--at N``."""
        if not self.is_word:
            return self.spellings[0] if self.is_flag else f"{self.spellings[0]} {self.metavar}"
        words = f"{self.metavar} ..." if self.is_repeated else self.metavar
        return words if self.is_required else f"[{words}]"

    @property
    def long_name(self) -> str:
        """Name of an option without dashes (``dry-run``), or the metavar of a word."""
        return self.metavar if self.is_word else self.spellings[0].lstrip("-")

    def problem(self, value: Any) -> str | None:
        """Return a text that says which values are allowed if `value` is not; None if it is allowed."""
        if value is None or self.allowed is None or self.allowed.fits(value):
            return None
        return f"must be {self.allowed}, not {shown_number(value)}"

    def read(self, text: str) -> Any:
        """Convert the text of one value to the type of the parameter. Raise `ParameterError` if that is not
        possible.
        """
        value: Any = text
        if self.type in (int, float):
            try:
                value = self.type(text)
            # `int` also limits the number of digits.
            except ValueError:
                expected = "an integer" if self.type is int else "a number"
                raise ParameterError(self, f"must be {expected}, not {_cut(text)}") from None
        elif self.type is Path:
            value = Path(text)
        if self.choices and text not in self.choices:
            expected = self.choices[0] if len(self.choices) == 1 else f"one of {', '.join(self.choices)}"
            raise ParameterError(self, f"must be {expected}, not {_cut(text)}")
        problem = self.problem(value)
        if problem is not None:
            raise ParameterError(self, problem)
        return value


def _cut(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


class ParameterError(InputError):
    """A value does not fit a parameter of a command.

    Each interface words it in its own way: ``--parallel must be ...`` in a shell, ``parallel must be ...`` in Python.

    Attributes
    ----------
    parameter
        The parameter.
    problem
        What is wrong with the value, without the name of the parameter.
    """

    def __init__(self, parameter: Parameter, problem: str) -> None:
        super().__init__(f"{parameter.name} {problem}", parameter.name)
        self.parameter = parameter
        self.problem = problem


def word(
    metavar: str,
    help: str,
    *,
    completes: str = "",
    interfaces: Iterable[Interface] = ALL,
    takes_object: bool = False,
) -> Parameter:
    """Return the declaration of a parameter that is given by its position."""
    return Parameter((), metavar, help, None, completes, frozenset(interfaces), takes_object=takes_object)


def option(
    *spellings: str,
    help: str,
    metavar: str = "",
    allowed: NumberRange | None = None,
    completes: str = "",
    interfaces: Iterable[Interface] = ALL,
    as_words: bool = False,
    variable: str = "",
) -> Parameter:
    """Return the declaration of a parameter that is given by name. The long spelling comes first.

    The lower limit of a number is appended to its help text, for example ``As of event N. [N>=1]``.
    """
    if allowed is not None:
        metavar = metavar or "N"
        if allowed.least is not None:
            sign = ">" if allowed.excludes_least else ">="
            help = f"{help}  [{metavar}{sign}{allowed.least:g}]"  # noqa: A001 - as the parameter
    return Parameter(spellings, metavar, help, allowed, completes, frozenset(interfaces), as_words, variable=variable)


def _bound(name: str, annotation: Any, default: Any) -> Parameter | None:
    """Return the declared parameter of a function, with the name, type and default that the function gives it; None for
    a parameter without a declaration.
    """
    if typing.get_origin(annotation) is not typing.Annotated:
        return None
    kind, *extras = typing.get_args(annotation)
    (declared,) = (extra for extra in extras if isinstance(extra, Parameter))
    # ``str | None`` -> str
    if typing.get_origin(kind) in (typing.Union, UnionType):
        (kind,) = (part for part in typing.get_args(kind) if part is not NoneType)
    is_repeated = typing.get_origin(kind) is list
    if is_repeated:
        (kind,) = typing.get_args(kind)
    choices: tuple[str, ...] = ()
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        kind = str
    default = REQUIRED if default is inspect.Parameter.empty else default
    return replace(declared, name=name, type=kind, choices=choices, default=default, is_repeated=is_repeated)


def parameters_of(function: Callable[..., Any]) -> tuple[Parameter, ...]:
    """Return the declared parameters of a function, words first."""
    # The annotation of the result may name modules that are loaded late, so it is left out.
    hints = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    holder: Any = SimpleNamespace(__annotations__=hints)
    types = typing.get_type_hints(holder, function.__globals__, include_extras=True)
    signature = inspect.signature(function)
    bound = (_bound(name, types.get(name), entry.default) for name, entry in signature.parameters.items())
    declared = [parameter for parameter in bound if parameter is not None]
    return tuple(sorted(declared, key=lambda parameter: not parameter.is_word))


def usage_of(name: str, parameters: Sequence[Parameter]) -> str:
    """Return the name of a command, its words and its required options, as help shows them: ``why NAME [RUN]``."""
    words = (parameter.usage for parameter in parameters if parameter.is_word or parameter.is_required)
    inputs = (f"[{parameter.metavar} ...]" for parameter in parameters if parameter.as_words)
    return " ".join([name, *words, *inputs])


# --- commands --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Group:
    """A group of commands in help and on the reference page."""

    title: str


START: Final = Group("Start and continue runs")
LOOK: Final = Group("Inspect runs")
FILES: Final = Group("Files of runs")
CHANGE: Final = Group("Change runs")
PEOPLE: Final = Group("Questions and rules")
DEFINE: Final = Group("Definitions")
QUEUES: Final = Group("Queues and schedules")
STORES: Final = Group("Stores")


@dataclass(frozen=True)
class Command:
    """A command with its function, parameters, help and output."""

    name: str
    group: Group
    function: Callable[..., Any]
    example: str
    """A call without the name of the program: ``why total exec_01k8``."""
    interfaces: frozenset[Interface]
    data: Callable[[Any], Mapping[str, Any]] | None
    """Returns the result as plain data, which ``--json`` prints. None: the command prints no data."""
    exit_code: Callable[[Any], int]
    """Returns the exit code of the shell for a result."""
    needs_definitions: bool
    """True if the shell takes definitions from a file (``--definitions``); a notebook has them."""
    makes_store: bool
    """True if the store is created where it does not exist. Commands that only read must not create one."""
    has_store: bool
    reports_damage: bool
    """True if the exit code for a damaged log is that of damage (1), False if it is that of refused input (2)."""
    drives: bool
    """True if the command starts or continues a run, which the interface then shows and waits for."""
    waits_for_expiry: bool
    """True if the shell waits, where it has no terminal, until a question with a default expires."""
    redacts: bool
    """True if secrets in the printed data are replaced; False if the names of its keys only look secret."""
    file_default: Any
    """Default of that word; `REQUIRED` if it has none."""
    file_help: str
    """Help for the first word of the shell, a file or folder of definitions; empty for commands that take none."""
    shell_help: str
    notebook_help: str
    notebook_example: str
    python: str
    """The Python function that does the same: ``divebook.run``, or a method of a `Run`, ``run.fork``, or of an
    `Environment`. Empty if there is none.
    """
    no_python: str
    """Why there is no such function, as a sentence for the reference page; empty if there is one."""

    @property
    def help(self) -> str:
        """The help text: the docstring of the function."""
        return inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        """The first line of the help text."""
        return self.help.partition("\n")[0]

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of the function, words first."""
        return parameters_of(self.function)

    def parameters_in(self, interface: Interface) -> tuple[Parameter, ...]:
        """Return the parameters that one interface offers."""
        return tuple(parameter for parameter in self.parameters if interface in parameter.interfaces)

    def usage_in(self, interface: Interface) -> str:
        """Return name, words and required options, as help shows them: ``why NAME [RUN]``."""
        return usage_of(self.name, self.parameters_in(interface))

    def output(self, result: Any) -> dict[str, Any]:
        """Return the result of the command as the data that ``--json`` prints."""
        if self.data is None:
            raise TypeError(f"command {self.name} prints no data")
        return {"divebook": FORMAT, **self.data(result)}


F = TypeVar("F", bound=Callable[..., Any])
DECLARED: dict[str, Command] = {}
"""The declared commands by name, in the order in which their modules are imported."""


def command(
    name: str,
    group: Group,
    *,
    example: str,
    interfaces: Iterable[Interface] = (SHELL, NOTEBOOK),
    data: Callable[[Any], Mapping[str, Any]] | None = None,
    exit_code: Callable[[Any], int] = lambda _result: 0,
    needs_definitions: bool = False,
    makes_store: bool = False,
    has_store: bool = True,
    reports_damage: bool = False,
    drives: bool = False,
    waits_for_expiry: bool = False,
    redacts: bool = True,
    file_default: Any = REQUIRED,
    file_help: str = "",
    shell_help: str = "",
    notebook_help: str = "",
    notebook_example: str = "",
    python: str = "",
    no_python: str = "",
) -> Callable[[F], F]:
    """Return a decorator that declares a function as a command. The parameters are fields of `Command`."""

    def declare(function: F) -> F:
        DECLARED[name] = Command(
            name,
            group,
            function,
            example,
            frozenset(interfaces),
            data,
            exit_code,
            needs_definitions,
            makes_store,
            has_store,
            reports_damage,
            drives,
            waits_for_expiry,
            redacts,
            file_default,
            file_help,
            shell_help,
            notebook_help,
            notebook_example or example,
            python,
            no_python,
        )
        return function

    return declare


@dataclass(frozen=True, slots=True)
class Fields:
    """Marker in the annotation of plain data: the mapping has the fields of a class, with times as `with_times` gives
    them. The class is named as ``module:Class``, because its module is loaded late.
    """

    of: str


def with_times(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with times in ISO 8601 in place of microseconds since 1970 (``raised_us`` becomes
    ``raised_at``), and seconds in place of a `timedelta` (``duration`` becomes ``seconds``).
    """
    from divebook.events.event import to_datetime  # `--help` must load the declarations only

    times: dict[str, Any] = {}
    for name, value in data.items():
        if name == "duration" or isinstance(value, timedelta):
            key = "seconds" if name == "duration" else name
            times[key] = value.total_seconds() if isinstance(value, timedelta) else value
            continue
        if not name.endswith("_us"):
            times[name] = value
            continue
        moment = None if value is None else to_datetime(value)
        times[f"{name.removesuffix('_us')}_at"] = json_time(moment)
    return times


# --- a call ----------------------------------------------------------------------------------------------------------


def _define_nothing(_environment: Environment, _dialect: Dialect | None) -> None:
    """Add no definitions: a session has them already."""


def _learn_nothing(*_values: Any) -> None:
    """Find no secrets: output of a session is redacted elsewhere."""


@dataclass(frozen=True)
class StartRequest:
    """A run that is to be started or enqueued."""

    workflow: Workflow
    inputs: Mapping[str, Any]
    options: StartOptions
    answers: Answers | None = None
    """Answers given in advance."""
    always_new: bool = False
    """True if a new run is started even if the cell has started one before."""
    changed: str | None = None
    """Action of the cell if functions were edited since its earlier run; None to ask the person."""


def _choose_no_workflow(_environment: Environment, name: str | None) -> Workflow:
    raise NotFoundError("workflow", name or "the default one")


def _no_schedules(environment: Environment) -> Definitions:
    """Return the definitions of an environment that no file has: none."""
    from divebook.definitions.definition import Definitions

    return Definitions(schedules=tuple(environment.schedules))


def _start_now(call: Invocation, request: StartRequest) -> Run:
    """Start a run without looking for an earlier one."""
    return call.environment.start(request.workflow, request.inputs, **request.options)


def _as_it_is(_call: Invocation, request: StartRequest) -> StartRequest:
    """Return a request unchanged: only cells of a notebook have a place."""
    return request


@dataclass(frozen=True)
class CellKeys:
    """The keys of a step below the first line of a ``%%dive try`` cell."""

    text: str = ""
    source_name: str = "cell"
    lines_above: int = 0
    """Number of lines of the cell before the text."""


@dataclass
class Invocation:
    """One call of a command: what the interface provides to the function of the command.

    Parameters
    ----------
    open_environment
        Returns the environment over the store that the call names.
    printer
        Prints a line for the person beside the result, in a style (``yellow``, ``bold red`` or none).
    store
        Address of the store as it was given; None for the default.
    define
        Adds the definitions of the file that the call names, read in a dialect.
    learn
        Finds the secrets in plain data, so that they are replaced in all output.
    """

    interface: Interface
    open_environment: Callable[[], Environment]
    printer: Callable[[str, str], None]
    store: str | None = None
    define: Callable[[Environment, Dialect | None], None] = _define_nothing
    learn: Callable[..., None] = _learn_nothing
    definitions: Path | None = None
    """The file or folder of definitions that the call names, which `define` reads."""
    cell: CellKeys = CellKeys()
    choose_workflow: Callable[[Environment, str | None], Workflow] = _choose_no_workflow
    """Returns the workflow with a name; without a name, the one that the interface means."""
    schedules: Callable[[Environment], Definitions] = _no_schedules
    """Returns the definitions of the file that the call names, of which a command takes the schedules."""
    start: Callable[[Invocation, StartRequest], Run] = _start_now
    """Starts a run. A notebook continues the earlier run of the cell."""
    prepare: Callable[[Invocation, StartRequest], StartRequest] = _as_it_is
    """Adds to a request what identifies the cell from which a run is enqueued."""
    objects: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that are Python objects of the notebook (``n=$rows``), by name."""
    variables: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the notebook, among which the class of an answer may be."""
    waits: bool = True
    """False if a command that continues several runs is not to wait for them."""

    last_run: Run | None = None
    """The run that the session has started or continued last. A call without a run means it, if it is in the store of
    the call."""

    open_store: Callable[[], EventStore] | None = None
    """Opens the store alone, which is quicker; None where the environment is open anyway, as in a session."""

    @cached_property
    def event_store(self) -> EventStore:
        """The store of the call, without an environment around it where the interface has none."""
        return self.environment.store if self.open_store is None else self.open_store()

    @cached_property
    def environment(self) -> Environment:
        """The environment over the store of the call, opened at the first access."""
        return self.open_environment()

    def print_note(self, text: str, style: str = "") -> None:
        """Print a line for the person beside the result."""
        self.printer(text, style)

    def run(self, name: str | None, *, with_definitions: bool = False) -> Run:
        """Return the run that a call names by the beginning of its id; without a name, the last run of the session, or
        the newest run of the store. A session that has no run in the store is told which run that is.

        Parameters
        ----------
        with_definitions
            Add the definitions that the call names to the environment. They are read in the dialect of the run.

        Raises
        ------
        NotFoundError
            The store does not have the run, or has no run at all.
        """
        if name is None and with_definitions and self.definitions is not None:
            name = self._newest_of_file(self.definitions)
        name = self._default_run() if name is None else name
        run = self.environment.run_of(name)
        if with_definitions:
            self.add_definitions(run.workflow.dialect)
        return run

    def _newest_of_file(self, file: Path) -> str | None:
        """Return the id of the newest run of a workflow that the file of definitions defines. Return None for a file
        that can only be read in the dialect of a run.

        Raises
        ------
        NotFoundError
            The store has no run of these workflows.
        """
        from divebook.projections.summary import newest_run

        try:
            self.add_definitions()
        except DefinitionError:
            # The caller reads the file again in the dialect of the newest run, and gets the error of that dialect.
            return None
        names = self.environment.definitions.workflows
        newest = newest_run(self.environment.store, names)
        if newest is None:
            records = self.environment.store.records(limit=100)
            recorded_names = ", ".join(sorted({record.workflow_name for record in records}))
            defined = f"the workflows of {file} ({', '.join(names) or 'none'})"
            present = f"; the store has runs of {recorded_names}. Name a run or another file" if recorded_names else ""
            raise NotFoundError("run", "the newest one", message=f"there is no run of {defined}{present}")
        return newest.execution_id

    def _default_run(self) -> str:
        """Return the id of the run that a call without a run means."""
        from divebook.projections.summary import newest_run
        from divebook.text.format import local_time

        last = self.last_run
        if last is not None and last.store is self.environment.store:
            with suppress(ExecutionNotFoundError):  # it was deleted
                return last.store.record(last.id).execution_id
        newest = newest_run(self.environment.store)
        if newest is None:
            message = f"there are no runs yet; start a run with {advised('run NAME')}"
            raise NotFoundError("run", "the newest one", message=message)
        # In a shell the help says so. A session may be expected to mean a run of its own.
        if self.interface != SHELL:
            began = f"{newest.workflow_name}, started {local_time(newest.created_at)}"
            self.print_note(f"the newest run of the store, {newest.execution_id} ({began})")
        return newest.execution_id

    def add_definitions(self, dialect: Dialect | None = None) -> None:
        """Add the definitions of the file that the call names to the environment; without a file, do nothing."""
        if self.definitions is not None:
            self.define(self.environment, dialect)
