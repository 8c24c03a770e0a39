"""Tools: Python functions that agents may call, with the properties of each tool that callers need.

``@tool`` registers a function as a tool and returns it unchanged. `ToolFunction` is data about the function: agents
derive the tool's description for the model from it, the approval policy reads its hints, and `divebook.runtime.calls`
calls the function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar, overload

from divebook.definitions.code import source_of
from divebook.definitions.functions import UserFunction, as_function, is_callable
from divebook.definitions.resources import IF_DESTRUCTIVE
from divebook.definitions.step import Retry
from divebook.errors import DefinitionError, Problem, shown_number
from divebook.text.arguments import DurationLike, plain_seconds, suggest_arguments
from divebook.text.ranges import CHARACTERS, COUNT

F = TypeVar("F", bound=Callable[..., Any])

MOST = 60_000
"""Default limit on the number of characters of a tool's result that a model receives."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_TOOL_FUNCTION = "__divebook_tool__"


@dataclass(frozen=True, slots=True)
class ToolHints:
    """Effects of a tool, as declared by its author. None means that it is unknown whether the tool has the effect."""

    read_only: bool | None = None
    """True if the tool changes nothing."""
    destructive: bool | None = None
    """True if the tool may destroy data."""
    idempotent: bool | None = None
    """True if two calls with the same arguments have the same effect as one."""
    open_world: bool | None = None
    """True if the tool accesses systems beyond this machine."""

    def to_dict(self) -> dict[str, bool]:
        """Return the declared hints as a dict, without hints that are None."""
        values = {name: getattr(self, name) for name in ("read_only", "destructive", "idempotent", "open_world")}
        return {name: value for name, value in values.items() if value is not None}


class FileSpellings(Protocol):
    """Interface for normalizing the arguments of a tool that are file paths, so that approval rules match each spelling
    of a path.

    `divebook.documents.policy` implements this interface.
    """

    def spellings(self, arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return copies of the arguments of a tool call, one for each spelling of their file paths, such as relative
        and absolute. An approval rule applies to the call if it matches at least one copy.
        """

    def with_links_followed(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of an approval rule that asks or denies, with symbolic links in file paths resolved. The
        rule then also matches calls that use the path of the link's target.
        """

    def without_detours(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments of an approval rule that allows calls, with their file paths normalized (without ``..``
        and ``.``). Unlike `with_links_followed`, this method does not resolve symbolic links.
        """


@dataclass(frozen=True, slots=True)
class ToolFunction(UserFunction):
    """A Python function that agents may call as a tool, with its description, hints and limits.

    Examples
    --------
    >>> def search(query: str) -> list[str]:
    ...     return []
    >>> ToolFunction("search", search, "Find passages.", hints=ToolHints(read_only=True)).hints.to_dict()
    {'read_only': True}
    """

    hints: ToolHints = field(default_factory=ToolHints)
    schema: Mapping[str, Any] | None = None
    """JSON schema of the arguments. If it is None, the schema is derived from the signature and the docstring."""
    result_schema: Mapping[str, Any] | None = None
    """JSON schema of the result of a Python function with an explicit `schema`, whose omitted arguments have their
    defaults. None for other tools."""
    most: int = MOST
    """Largest number of characters of a result that the model receives. The middle of a longer result is left out. The
    log has the whole result.
    """
    limit: int | None = None
    """Largest number of calls in one turn; None for no limit."""
    concurrency: int | None = None
    """Largest number of concurrent calls in this process; None for no limit."""
    inline: bool = False
    """True if the call of the tool is not recorded, but the operations inside the function are."""
    confirmation: str = IF_DESTRUCTIVE
    """Approval mode for calls without an approval rule."""
    server: str = ""
    """Name of the MCP server to which the tool belongs; empty for none."""
    files: FileSpellings | None = None
    """Object that normalizes file arguments for approval rules; None if the tool has no file arguments."""
    paths: tuple[str, ...] = ()
    """Names of arguments that are paths in the workspace in which the tool works."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that the definition sets, with references in place of secrets. Approval rules that ask or deny also
    check these arguments.
    """
    rule_name: str = ""
    """Name of the tool in approval rules, if it differs from the name that models see."""
    name_at_server: str = ""
    """Name of the tool at its MCP server, if an agent knows the tool as ``server/tool`` because two tools have the same
    name.
    """
    kind: ClassVar[str] = "tool"

    def __post_init__(self) -> None:
        UserFunction.__post_init__(self)
        # Names of a server's tools are chosen by the server.
        if not self.server and not is_tool_name(self.name):
            hint = (
                "use at most 64 letters, digits, underscores, hyphens and dots, not starting with a digit: "
                "@tool(name=...)"
            )
            raise DefinitionError([Problem(f"{self.name!r} cannot be the name of a tool", key="name", hint=hint)])
        for option, allowed in (("most", CHARACTERS), ("limit", COUNT), ("concurrency", COUNT)):
            value = getattr(self, option)
            if value is not None and not allowed.fits(value):
                message = f"{option} of {self.kind_and_name} must be {allowed}, not {shown_number(value)}"
                raise DefinitionError([Problem(message, key=option, hint="remove it to use the default")])
        # An explicit schema names the arguments itself.
        if self.schema is None:
            self._require_names()

    def _require_names(self) -> None:
        """Raise `DefinitionError` if a parameter of the tool's function cannot be passed by name, because models pass
        all arguments by name.
        """
        for parameter in inspect.signature(self.function).parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                message = (
                    f"parameter {parameter.name!r} of {self.kind_and_name} has no name by which a model can pass it"
                )
                raise DefinitionError([Problem(message, hint="write an ordinary parameter")])

    @property
    def own_name(self) -> str:
        """Name of the tool in the log, in approval rules and in views, without the prefix that the tool's MCP server
        may add.
        """
        return self.name_at_server or self.name

    def inside(self, workspace: str | None) -> ToolFunction:
        """Return a copy of the tool for an agent with the workspace `workspace`. Return the tool itself if it does not
        work in the agent's workspace.

        If the tool's own workspace is ``""``, calls of the copy work in the agent's workspace.
        """
        # The empty name means "where the agent works". Any other workspace of the tool stays.
        return replace(self, workspace=workspace) if self.workspace == "" and workspace else self

    @property
    def is_repeatable(self) -> bool:
        """True if a call with an unknown outcome may be repeated, for example after the process died during the
        call.
        """
        return bool(self.idempotent or self.hints.idempotent or self.hints.read_only or self.takes.key)


def is_tool_name(name: str) -> bool:
    """Return True if model providers accept a name as the name of a tool."""
    return _NAME.fullmatch(name) is not None


def tool_of(target: Any) -> ToolFunction:
    """Return the `ToolFunction` for an object: the one that its decorator ``@tool`` created, or a new one, derived from
    the signature of a function.

    Raises
    ------
    DefinitionError
        The object cannot be a tool: it has no name, or takes arguments without names.
    """
    if isinstance(target, ToolFunction):
        return target
    if not callable(target) and not isinstance(target, staticmethod | classmethod):
        hint = "pass a function, or the name of a tool as a string"
        raise DefinitionError([Problem(f"a tool must be a function, not {target!r}", hint=hint)])
    # The decorator has left its data on the function.
    decorated: ToolFunction | None = getattr(target, _TOOL_FUNCTION, None)
    if decorated is not None:
        # A method that is accessed through an instance is another object than the decorated function.
        return decorated if decorated.function is target else replace(decorated, function=target)
    function = as_function(target, "tool")
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
    timeout: DurationLike | None = None,
    executor: Any = None,
    most: int = MOST,
    limit: int | None = None,
    concurrency: int | None = None,
    workspace: str | None = None,
) -> Callable[[F], F]: ...
@suggest_arguments
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
    timeout: DurationLike | None = None,
    executor: Any = None,
    most: int = MOST,
    limit: int | None = None,
    concurrency: int | None = None,
    workspace: str | None = None,
) -> Any:
    """Register a function as a tool of all environments of this process. A later tool with the same name replaces it.

    A model sees the name, the arguments from the signature, and the descriptions from the docstring (numpy, Google or
    Sphinx style). It does not see ``idempotency_key`` and a parameter of type `divebook.tools.ToolContext`, which
    divebook supplies. Agents name the tool in ``Tools`` or receive it in Python: ``Agent("a", tools=[search])``. The
    decorator returns the function unchanged.

    An exception ends the turn and fails the run with a `divebook.errors.ToolError`. Fix the fault and resume: the
    resumed run repeats only that call. To report an error to the model instead, so that it calls the tool differently,
    raise ``pydantic_ai.ModelRetry("the file does not exist")``.

    Parameters
    ----------
    name
        Name of the tool; by default that of the function.
    description
        Description for the model; by default that of the docstring.
    read_only
        The tool changes nothing. It needs no approval, and a call may be repeated.
    destructive
        The tool may destroy data. A person must approve each call first, unless an approval rule decides otherwise.
    idempotent
        Two calls have the same effect as one. If the process dies during a call, the call is repeated. For other tools,
        a person is asked in this case.
    open_world
        The tool accesses systems beyond this machine.
    approval
        A person must approve every call first, and may change its arguments.
    retry
        Policy for repeating failed calls.
    timeout
        Time limit of a call in seconds. If the call cannot have had an effect (`read_only`, `idempotent`), the model is
        informed and may continue without the result. For any other call a person is asked for its outcome.
    executor
        Executor of an ordinary function, as for ``@step``.
    most
        Largest number of characters of a result that the model receives. The middle of a longer result is left out. The
        log has the whole result.
    limit
        Largest number of calls in one turn. After that the model is informed that the limit is reached.
    concurrency
        Largest number of concurrent calls in this process.
    workspace
        Workspace of the calls, as for ``@step``. ``""`` is the workspace of the step, or else of the workflow.

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

    def decorate(target: Any) -> Any:
        function = as_function(target, "tool", None if name is target else name)
        # ``@tool`` without parentheses gets the function as its first argument.
        tool_name = function.__name__ if name is target or name is None else name
        tool_function = ToolFunction(
            tool_name,
            function,
            # An empty description is a description. Only None means the docstring.
            description if description is not None else inspect.getdoc(function) or "",
            approval=approval,
            retry=policy,
            timeout=plain_seconds(timeout),
            executor=executor,
            hints=hints,
            most=most,
            limit=limit,
            concurrency=concurrency,
            workspace=workspace,
        )
        if "." not in function.__qualname__.rpartition("<locals>.")[2]:  # a method needs its object
            REGISTERED_TOOLS[tool_function.name] = tool_function
        setattr(function, _TOOL_FUNCTION, tool_function)
        # The source is read at the definition, because the file may change after it was imported.
        source_of(function)
        return function

    return decorate(name) if is_callable(name, "tool") else decorate


REGISTERED_TOOLS: dict[str, ToolFunction] = {}
"""Tools defined with `@tool` in this process, by name."""
