"""Tools: functions that agents may call, with what their callers must know of them.

``@tool`` marks a function as one and leaves it as it is. What is known of a tool (`ToolFunction`) is data: agents make
what a model sees of it, the policy of approvals reads its hints, and what calls it is `divebook.steps.call`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, overload

from divebook.errors import DefinitionError, Problem, shown_number
from divebook.text.ranges import CHARACTERS, COUNT
from divebook.workflow.code import source_of
from divebook.workflow.functions import UserFunction, as_function, is_callable
from divebook.workflow.servers import IF_DESTRUCTIVE
from divebook.workflow.step import Retry

F = TypeVar("F", bound=Callable[..., Any])

MOST = 60_000
"""Characters of a result that a model gets, where its tool says nothing else."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_MADE = "__divebook_tool__"


@dataclass(frozen=True, slots=True)
class ToolHints:
    """What a tool says it does to the world; None is unknown."""

    read_only: bool | None = None
    """It changes nothing."""
    destructive: bool | None = None
    """What it changes may be lost."""
    idempotent: bool | None = None
    """Calling it twice with the same arguments does no more than calling it once."""
    open_world: bool | None = None
    """It reaches beyond this machine."""

    def to_dict(self) -> dict[str, bool]:
        """Return what is known."""
        said = {name: getattr(self, name) for name in ("read_only", "destructive", "idempotent", "open_world")}
        return {name: value for name, value in said.items() if value is not None}


class FileSpellings(Protocol):
    """Arguments of a tool that name files; see `divebook.documents.policy`."""

    def spellings(self, arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the arguments of a call in each spelling of the files that they reach."""

    def with_links_followed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a rule that asks or denies, with links followed."""

    def without_detours(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of a rule that allows, without detours in the spelling."""


@dataclass(frozen=True, slots=True)
class ToolFunction(UserFunction):
    """A function that agents may call.

    Examples
    --------
    >>> def search(query: str) -> list[str]:
    ...     return []
    >>> ToolFunction("search", search, "Find passages.", hints=ToolHints(read_only=True)).hints.to_dict()
    {'read_only': True}
    """

    hints: ToolHints = field(default_factory=ToolHints)
    schema: Mapping[str, Any] | None = None
    """JSON schema of its arguments; None takes it from the signature and the docstring."""
    result_schema: Mapping[str, Any] | None = None
    """JSON schema of what a Python function returns, whose `schema` is given: arguments that a model leaves out have
    their defaults. None for what is no such function."""
    most: int = MOST
    """Characters of a result that the model gets: its head and its tail. The log has the whole."""
    limit: int | None = None
    """How often it may be called in one turn."""
    concurrency: int | None = None
    """How many of its calls may run at once in this process."""
    inline: bool = False
    """Not recorded itself: what it does inside is."""
    confirmation: str = IF_DESTRUCTIVE
    """The mode that decides where no rule of approvals does."""
    server: str = ""
    """The MCP server that it belongs to."""
    files: FileSpellings | None = None
    """Which arguments name files, and how rules know these."""
    paths: tuple[str, ...] = ()
    """Names of the arguments that name files of the workspace that its calls work in."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that a definition fixes, with references in place of secrets; rules that ask or deny see them."""
    rule_name: str = ""
    """The name by which rules know it, where a definition has models see another one."""
    name_at_server: str = ""
    """Its name there, where an agent has it under another one: ``server/tool``, since two have the same name."""
    kind: ClassVar[str] = "tool"

    def __post_init__(self) -> None:
        UserFunction.__post_init__(self)
        if not self.server and not is_tool_name(self.name):
            hint = "letters, digits, _ - and . only, at most 64, not beginning with a digit: @tool(name=...)"
            raise DefinitionError([Problem(f"{self.name!r} cannot be the name of a tool", key="name", hint=hint)])
        for option, allowed in (("most", CHARACTERS), ("limit", COUNT), ("concurrency", COUNT)):
            value = getattr(self, option)
            if value is not None and not allowed.fits(value):
                message = f"{option} of {self.label} must be {allowed}, not {shown_number(value)}"
                raise DefinitionError([Problem(message, key=option, hint="leave it out for the default")])
        if inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function):
            hint = "let it return a list of what it yields"
            raise DefinitionError([Problem(f"{self.label} yields, and a call of a tool returns once", hint=hint)])
        if self.schema is None:
            self._require_names()

    def _require_names(self) -> None:
        """Raise unless each argument can be given by its name, as models give them."""
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                message = f"parameter {parameter.name!r} of {self.label} has no name for a model"
                raise DefinitionError([Problem(message, hint="write it as an ordinary parameter")])

    @property
    def own_name(self) -> str:
        """Its name in the log, in rules and on cards."""
        return self.name_at_server or self.name

    def inside(self, workspace: str | None) -> ToolFunction:
        """Return it as an agent has it that has a workspace: its calls work there, if they are to work in one."""
        return replace(self, workspace=workspace) if self.workspace == "" and workspace else self

    @property
    def is_repeatable(self) -> bool:
        """Whether it may simply be called again when it is not known if a call took effect."""
        return bool(self.idempotent or self.hints.idempotent or self.hints.read_only or self.takes.key)


def is_tool_name(name: str) -> bool:
    """Whether models take it as the name of a tool."""
    return _NAME.fullmatch(name) is not None


def tool_of(given: Any) -> ToolFunction:
    """Return what is known of a function that is given as a tool: what ``@tool`` or else its signature says.

    Raises
    ------
    DefinitionError
        It cannot be a tool: it has no name, or takes arguments that have none.
    """
    if isinstance(given, ToolFunction):
        return given
    if not callable(given) and not isinstance(given, staticmethod | classmethod):
        hint = "give a function, or the name of a tool as a text"
        raise DefinitionError([Problem(f"a tool is a function, not {given!r}", hint=hint)])
    said: ToolFunction | None = getattr(given, _MADE, None)
    if said is not None:
        return said if said.function is given else replace(said, function=given)  # a method found through an instance
    function = as_function(given, "tool")
    return ToolFunction(function.__name__, function, inspect.getdoc(function) or "")


@overload
def tool(name: F) -> F: ...
@overload
def tool(
    name: str | None = None,
    *,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    approval: bool = False,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    executor: Any = None,
    most: int = MOST,
    limit: int | None = None,
    concurrency: int | None = None,
    workspace: str | None = None,
) -> Callable[[F], F]: ...
def tool(
    name: Any = None,
    *,
    description: str | None = None,
    read_only: bool | None = None,
    destructive: bool | None = None,
    idempotent: bool | None = None,
    open_world: bool | None = None,
    approval: bool = False,
    retry: Retry | int | None = None,
    timeout: float | None = None,
    executor: Any = None,
    most: int = MOST,
    limit: int | None = None,
    concurrency: int | None = None,
    workspace: str | None = None,
) -> Any:
    """Make a function a tool of every environment of this process; a later one of the same name replaces it.

    A model sees its name, its arguments as the signature says them, and what the docstring says of it and of each
    (numpy, Google or Sphinx style). Agents name it in ``Tools``, or are given it: ``Agent("a", tools=[search])``. The
    function stays what it was.

    What it raises ends the turn and fails the run, with a `divebook.errors.ToolError`: a fault or an outage is for you
    to mend, and the resumed run makes that call again and no other. What the model is to hear, so that it calls
    otherwise, is raised as ``pydantic_ai.ModelRetry("there is no such file")``.

    Parameters
    ----------
    name
        By default the function's.
    description
        By default the docstring's.
    read_only
        It changes nothing, so that it need not be asked about and may be called again.
    destructive
        What it changes may be lost: a person is asked first, unless a rule says otherwise.
    idempotent
        Calling it twice does no more than calling it once: it is then simply called again where a process died during
        the call. For any other a person is asked.
    open_world
        It reaches beyond this machine.
    approval
        A person must approve every call first, and may change its arguments.
    retry
        Try a call that failed again.
    timeout
        Seconds that a call may take. That is a limit of yours and no fault: the model hears of it, and may go on
        without the result, where the call cannot have done anything (`read_only`, `idempotent`). Of any other call a
        person is asked what became of it.
    executor
        Where an ordinary function runs, as for ``@step``.
    most
        Characters of a result that the model gets: half of them its head, half its tail. The log has the whole.
    limit
        How often it may be called in one turn; then the model hears that it is used up.
    concurrency
        How many of its calls may run at once in this process.
    workspace
        The workspace in which calls work, as for ``@step``; ``""`` is the one of the step, else of the workflow.

    Examples
    --------
    >>> @tool(read_only=True)
    ... def double(n: int) -> int:
    ...     "Return twice a number."
    ...     return 2 * n
    >>> double(4), tool_of(double).hints.to_dict()
    (8, {'read_only': True})
    """
    hints = ToolHints(read_only, destructive, idempotent, open_world)
    policy = None if retry is None else Retry.of(retry)

    def decorate(given: Any) -> Any:
        function = as_function(given, "tool", None if name is given else name)
        own = function.__name__ if name is given or name is None else name
        made = ToolFunction(
            own,
            function,
            description if description is not None else inspect.getdoc(function) or "",
            approval=approval,
            retry=policy,
            timeout=timeout,
            executor=executor,
            hints=hints,
            most=most,
            limit=limit,
            concurrency=concurrency,
            workspace=workspace,
        )
        if "." not in function.__qualname__.rpartition("<locals>.")[2]:  # a method needs its object
            REGISTERED_TOOLS[made.name] = made
        setattr(function, _MADE, made)
        source_of(function)
        return function

    return decorate(name) if is_callable(name, "tool") else decorate


REGISTERED_TOOLS: dict[str, ToolFunction] = {}
"""Tools made with `@tool`, by name."""
