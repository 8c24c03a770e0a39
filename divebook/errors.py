"""All exception classes of divebook.

::

    DivebookError
    ├── DefinitionError                 the text of a definition has errors (line, column, key, hint)
    ├── InputError                      the inputs of an execution do not match its workflow
    ├── NotFoundError                   no agent, workflow, action, step, document ... has this name
    │   └── NameNotFoundError           a mapping of an environment lacks the name; also a KeyError
    ├── AlreadyRegisteredError          the name is already used
    ├── SetupError                      settings are missing, not valid, or contradict each other
    │   ├── MissingLibraryError         an optional library is not installed; also an ImportError
    │   ├── PatternError                a pattern is not valid, too large, or takes too long to match
    │   └── SchemaLimitError            checking a JSON schema would take too much work
    ├── InvalidEventError               an event or its payload is not valid
    ├── EnvelopeError                   an envelope cannot be created from the given data
    │   ├── BoundsError                 a bound does not exist, or its value is not valid
    │   ├── InvalidEnvelopeError        an envelope or its serialized form is not valid (problems)
    │   └── UncopyableValueError        a value in an envelope cannot be copied (path, reason)
    ├── UnstorableValueError            a value cannot be stored in the log (path such as ``outputs.rows[3].when``)
    ├── UnopenableValueError            a recorded value cannot be rebuilt here, because its class is not allowed
    ├── ScriptError                     a sandboxed script failed
    │   ├── ScriptSyntaxError           a script is not valid Python, or uses forbidden syntax
    │   ├── UndefinedVariableError      a script uses a name that is not defined
    │   └── ScriptLimitError            a script reached its time or memory limit
    ├── TemplateError                   a string with ``${...}`` cannot be rendered
    ├── UnrelatedError                  runs of different workflows cannot be compared
    ├── SavedRunError                   a run that is saved in a notebook cannot be read
    ├── StoreError                      events cannot be written or read
    │   ├── ConcurrentAppendError       another writer appended to the log of this execution first
    │   ├── UnreadMessageError          the inbox has messages that the writer has not read
    │   ├── ExecutionEndedError         the execution has ended, so that this event or message is not allowed
    │   ├── StartKeyTakenError          an execution with this start key exists already
    │   ├── FencedError                 another process has acquired the lease of this execution
    │   ├── LeaseHeldError              another process drives this execution
    │   ├── StoreBusyError              the store cannot write now: it is locked, or the disk is full
    │   │   └── ConnectionLostError     the server of the store cannot be reached
    │   ├── StoreClosedError            the store is used after it was closed
    │   │   └── ForkedStoreError        the store is used in a forked child process
    │   ├── ReadOnlyStoreError          the store cannot be written to
    │   ├── CorruptStoreError           the contents of the store are damaged
    │   ├── DecryptionError             a value is encrypted, and the right key is missing
    │   ├── NewerStoreError             a newer version of divebook wrote the store
    │   └── ExecutionNotFoundError      the store has no execution with this id
    ├── WorkspaceError                  files, commands or resources of a workspace cannot be used
    │   ├── ProcessIdError              no process has this id, or the id is already used
    │   ├── ProcessInputError           a process cannot receive input
    │   ├── WorkspaceNotEnteredError    the workspace is used outside its ``with`` block
    │   ├── WorkspaceEnteredError       the workspace is entered twice
    │   ├── WorkspaceGoneError          the folder or container of the workspace no longer exists
    │   ├── PathNotAllowedError         the workspace may not use this path (rule)
    │   ├── FileOperationError          an operation on a file failed (operation, path, reason)
    │   ├── ShellExecutionError         a command could not be run
    │   │   └── ShellTimeoutError       a command ran too long (stdout and stderr until then)
    │   ├── ContainerError              a container or its image does not exist, or the engine refused a request
    │   ├── SnapshotError               a snapshot of files cannot be created, compared or restored
    │   └── EngineUnavailableError      the container engine cannot be used
    │       └── UnusableEngineError     DOCKER_HOST is not an address of a container engine
    ├── DevEnvError                     a development environment cannot be created or used (exit_code)
    │   ├── EnvironmentNotFoundError    exit code 2: no environment has this name
    │   ├── TemplateNotFoundError       exit code 3: the template, or one that it extends, does not exist
    │   ├── LimitExceededError          exit code 4: the host or the tenant has fewer resources than requested
    │   ├── CommandFailedError          exit code 6: a command failed
    │   ├── NotReplacedError            exit code 1: a checkpoint was not restored; the environment is unchanged
    │   ├── CheckpointNotFoundError     exit code 7: no checkpoint has this name
    │   └── EnvironmentDeniedError      exit code 8: the caller may not use the environment, or the request is forbidden
    └── ExecutionError                  an execution failed, or cannot do what is requested
        ├── CodeChangedError            functions that the run of a cell called were edited since (choices, begin)
        ├── StepError                   a step cannot be executed
        │   ├── AgentError              an agent's turn ended without an answer (agent, request)
        │   ├── ToolError               a tool raised an error and so ended its agent's turn (agent, tool, cause)
        │   ├── ItemFailedError         an item of a step's `Each` failed (index, item, results so far)
        │   ├── StageTimeoutError       an attempt of a pipeline stage exceeded its time limit
        │   ├── TimedOutError           a step or call exceeded its ``Timeout``
        │   └── UnpicklableError        a function, argument or result cannot be sent to another process
        ├── NeedsPersonError            the execution was resumed automatically several times and made no progress
        ├── SourceGoneError             the source of a what-if or trial was deleted
        ├── ReplayMismatchError         an unchanged replay differs from the log, so a what-if would show nothing
        ├── ResumeError                 an envelope cannot continue in its pipeline
        ├── OperationError              a recorded operation failed
        ├── ServerError                 an MCP server cannot be reached, or violates the protocol
        ├── OutcomeUnknownError         raise this from an action that cannot determine whether it took effect
        ├── InterruptError              an answer does not fit its question, or the question was already answered
        ├── AnswerKeptError             an answer is stored, but its execution cannot continue in this process
        ├── InterruptExpiredError       a question without a default expired without an answer
        ├── ApprovalDeniedError         a person did not approve a call
        ├── BoundExceededError          a bound (budget) of the execution does not allow the next call or step
        ├── ExecutionFailedError        the execution failed; raised by ``wait(check=True)`` and ``result``
        ├── ExecutionCancelledError     the execution was cancelled
        ├── ExecutionPausedError        the execution is paused until it is resumed
        ├── ExecutionWaitingError       the execution has to wait for an answer or a signal, but may not
        └── DivergenceError             the definition requests another operation than the log has recorded
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

__all__ = [
    "AgentError",
    "AlreadyRegisteredError",
    "AnswerKeptError",
    "ApprovalDeniedError",
    "BoundExceededError",
    "BoundsError",
    "CheckpointNotFoundError",
    "CodeChangedError",
    "CommandFailedError",
    "ConcurrentAppendError",
    "ConnectionLostError",
    "ContainerError",
    "CorruptStoreError",
    "DecryptionError",
    "DefinitionError",
    "DeterminismWarning",
    "DevEnvError",
    "DivebookError",
    "DivergenceError",
    "EngineUnavailableError",
    "EnvelopeError",
    "EnvironmentDeniedError",
    "EnvironmentNotFoundError",
    "ExecutionCancelledError",
    "ExecutionEndedError",
    "ExecutionError",
    "ExecutionFailedError",
    "ExecutionNotFoundError",
    "ExecutionPausedError",
    "ExecutionWaitingError",
    "FencedError",
    "FileOperationError",
    "ForkedStoreError",
    "InputError",
    "InterruptError",
    "InterruptExpiredError",
    "InvalidEnvelopeError",
    "InvalidEventError",
    "ItemFailedError",
    "LeaseHeldError",
    "LimitExceededError",
    "NameNotFoundError",
    "NeedsPersonError",
    "NewerStoreError",
    "NotFoundError",
    "NotReplacedError",
    "OperationError",
    "OutcomeUnknownError",
    "PathNotAllowedError",
    "PatternError",
    "Problem",
    "ProcessIdError",
    "ProcessInputError",
    "ReadOnlyStoreError",
    "ReplayMismatchError",
    "ResumeError",
    "SavedRunError",
    "SchemaLimitError",
    "ScriptError",
    "ScriptLimitError",
    "ScriptSyntaxError",
    "ServerError",
    "SetupError",
    "ShellExecutionError",
    "ShellTimeoutError",
    "SnapshotError",
    "SourceGoneError",
    "StageTimeoutError",
    "StartKeyTakenError",
    "StartKeyWarning",
    "StepError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreError",
    "TemplateError",
    "TemplateNotFoundError",
    "TimedOutError",
    "ToolError",
    "UncopyableValueError",
    "UndefinedVariableError",
    "UnopenableValueError",
    "UnpicklableError",
    "UnreadMessageError",
    "UnrelatedError",
    "UnstorableValueError",
    "UnusableEngineError",
    "WorkspaceEnteredError",
    "WorkspaceError",
    "WorkspaceGoneError",
    "WorkspaceNotEnteredError",
]

Severity = Literal["error", "warning"]
Place = tuple[str | int, ...]
"""Keys and indexes that lead to a value in a definition, from the top: ``("Workflows", 0, "Steps", 2, "Next")``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Error or warning about one place in a definition.

    `line` and `column` count from 1 in the cell or file; 0 means that the definition did not come from text.
    """

    message: str
    line: int = 0
    column: int = 0
    key: str | None = None
    severity: Severity = "error"
    hint: str | None = None
    place: Place = ()
    twin: Place = ()
    """Place of the other definition, if two definitions conflict."""

    def describe(self, source_name: str = "") -> str:
        """Return the problem as one line with its location: ``cell:3:5: unknown key 'Promt' (did you mean
        'Prompt'?)``. A problem of a Python object without a name has no location.
        """
        if self.line:
            where = position_in(source_name, self.line, self.column)
        else:
            where = " at ".join(filter(None, (source_name, self._spot())))
        note = "warning: " if self.severity == "warning" else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{where}: {note}{self.message}{hint}" if where else f"{note}{self.message}{hint}"

    def below(self, *place: str | int) -> Problem:
        """Return a copy of the problem, as seen from an enclosing definition: the keys in `place`, which lead to the
        inner definition, are added before the keys of the problem.
        """
        # ("Next", 0) of a step, seen from its workflow, becomes ("Steps", 2, "Next", 0).
        return replace(self, place=(*place, *self.place), twin=(*place, *self.twin) if self.twin else ())

    def at(self, line: int, column: int) -> Problem:
        """Return a copy of the problem with a line and a column of the definition's text."""
        return replace(self, line=line, column=column)

    def beside(self, line: int) -> Problem:
        """Return a copy of the problem whose message also names `line`, the line of the definition that this one
        conflicts with. Return the problem unchanged if both are on the same line.
        """
        if not line or line == self.line:
            return self
        return replace(self, message=f"{self.message} (lines {line} and {self.line})")

    def _spot(self) -> str:
        # ("Steps", 2, "Next") -> "Steps[2].Next"
        return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")


def position_in(source_name: str, line: int, column: int) -> str:
    """Format a line and a column of a source text as a location for error messages.

    >>> position_in("survey.yaml", 7, 11), position_in("Cell [5]", 7, 11)
    ('survey.yaml:7:11', 'Cell [5], line 7, column 11')
    """
    if source_name and not source_name.startswith("Cell ["):
        return f"{source_name}:{line}:{column}"
    return ", ".join(filter(None, (source_name, f"line {line}", f"column {column}")))


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most similar to a misspelled `name`, or None if none is similar."""
    # Compared without case, so that "prompt" is nearest to "Prompt". A similarity of 0.6 is the default of `difflib`:
    # it accepts a letter or two that are wrong, missing or swapped, and rejects unrelated words.
    present: object = name  # the type hint does not bind callers
    if not isinstance(present, str):
        return None
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint such as ``did you mean 'city'?`` with the most similar candidate, or None if none is similar."""
    match = nearest(name, candidates)
    return f"did you mean {match!r}?" if match else None


def missing_attribute(
    owner: object, name: str, replacements: Mapping[str, str] | None = None, elsewhere: Mapping[str, str] | None = None
) -> AttributeError:
    """Return the error for an attribute that an object lacks, to be raised by ``__getattr__``. The error names the
    replacement if the attribute was renamed, and otherwise the most similar attribute.

    Python calls ``__getattr__`` also if the code of a property raises AttributeError, and drops that error. The
    property is then read again, and its own error is returned.

    Parameters
    ----------
    replacements
        New names by former name.
    elsewhere
        Advice by name, for names that the object never had and that resemble its attributes only by chance.
    """
    kind = type(owner).__name__
    member = inspect.getattr_static(type(owner), name, None)
    if isinstance(member, property) and member.fget is not None:
        try:
            member.fget(owner)
        except AttributeError as error:
            return error
    if replacements and name in replacements:
        return AttributeError(f"{kind} no longer has {name!r}; write {replacements[name]}")
    if elsewhere and name in elsewhere:
        return AttributeError(f"{kind} has no attribute {name!r}; write {elsewhere[name]}")
    hint = did_you_mean(name, [member for member in dir(type(owner)) if not member.startswith("_")])
    # Without `name` and `obj`, from which Python would make the same hint, but only in a traceback.
    return AttributeError(f"{kind} has no attribute {name!r}{f'; {hint}' if hint else ''}")


def unexpected_argument(function: str, argument: str, parameters: Iterable[str]) -> TypeError:
    """Return the error for a keyword argument that a function or class does not accept. The error names the most
    similar parameter, or all parameters.

    >>> str(unexpected_argument("Agent", "modle", ["name", "model"]))
    "Agent() got an unexpected keyword argument 'modle'; did you mean 'model'?"
    """
    names = list(parameters)
    hint = did_you_mean(argument, names) or (
        f"its arguments are {', '.join(names)}" if names else "it takes no keyword arguments"
    )
    return TypeError(f"{function}() got an unexpected keyword argument {argument!r}; {hint}")


RENAMED = {"execution_id": "run_id", "interrupt_id": "question_id"}
"""Present names of former attributes of errors and of the objects that user code gets."""


class StartKeyWarning(UserWarning):
    """Warning that a start key belongs to an execution with other inputs. This execution was returned, and no new
    execution was started.
    """


class DeterminismWarning(UserWarning):
    """Warning that a line of a workflow function could give another result when the function is replayed; see
    `divebook.definitions.lint`.
    """


class UnrecordableWarning(UserWarning):
    """Warning that a step or action declares a result of a type that a log can never contain."""


# Some errors below derive from a built-in class as well, if Python has one for the same case. Code of users can then
# catch either of them: ``except PermissionError`` also catches `PathNotAllowedError`.


class DivebookError(Exception):
    """Base class of all exceptions that divebook raises on purpose."""

    raised_at: Mapping[str, Any] | None = None
    """Location of the error in a script, template or recorded call; see `divebook.runtime.errors.place_of`."""

    if not TYPE_CHECKING:  # a type checker would accept any name otherwise

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name, RENAMED)


class DefinitionError(DivebookError):
    """Raised if the text of a definition has errors; `problems` contains all of them.

    Parameters
    ----------
    problems
        Problems of the definition, at least one of them with the severity ``error``.
    source_name
        Name of the cell, file or text that has the problems; empty for a Python object.
    """

    def __init__(self, problems: Sequence[Problem], source_name: str = "") -> None:
        self.problems = tuple(problems)
        self.source_name = source_name
        super().__init__("\n".join(problem.describe(source_name) for problem in self.problems))


class InputError(DivebookError):
    """Raised if the inputs of an execution do not match the inputs that its workflow declares."""

    def __init__(self, message: str, name: str | None = None) -> None:
        self.name = name
        super().__init__(message)


class NotFoundError(DivebookError):
    """Raised if no agent, workflow, action, step, ... has the requested name. The error suggests the most similar
    existing name.

    Parameters
    ----------
    kind
        ``agent``, ``workflow``, ``action``, ``step``, ...
    name
        Requested name.
    available
        Existing names.
    message
        Text before the suggestion; by default ``<kind> not found: <name>``.
    suggestion
        The name to suggest instead of the most similar one, for example the present name of what was renamed.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        available: Iterable[str] = (),
        message: str | None = None,
        *,
        suggestion: str | None = None,
    ) -> None:
        self.kind = kind
        self.name = name
        self.available = tuple(available)
        self.suggestion = suggestion or nearest(name, self.available)
        text = message or f"{kind} not found: {name}"
        super().__init__(f"{text}{self._advice()}")

    def _advice(self) -> str:
        # One similar name is more helpful than a list of all names.
        if self.suggestion:
            return f" (did you mean {self.suggestion!r}?)"
        # At most ten names, since a store or an environment may have thousands.
        if self.available:
            return f" (known: {', '.join(sorted(self.available)[:10])})"
        return f" (no {self.kind} exists)"


class NameNotFoundError(NotFoundError, KeyError):
    """Raised by a mapping of registered objects, such as ``environment.definitions.agents``, that lacks a name.

    Parameters
    ----------
    hint
        Advice: how to add an object with this name.
    """

    __str__ = Exception.__str__  # `KeyError` would show the text in quotes

    def __init__(self, kind: str, name: str, available: Iterable[str], hint: str) -> None:
        super().__init__(kind, name, available)
        self.hint = hint
        self.args = (f"{self.args[0]}; {hint}",)


class AlreadyRegisteredError(DivebookError):
    """Raised if an agent, workflow, tool, ... with the same name is already registered."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(
            f"{kind} already registered: {name}; rename one of the two, or add the new one with replace=True"
        )


class SetupError(DivebookError):
    """Raised if settings or arguments are not valid, are incomplete, or contradict each other.

    Parameters
    ----------
    place
        Keys and positions that lead to the wrong value in a definition, such as ``("Agents", 0, "Provider")``; empty if
        the value is not part of a definition.
    """

    def __init__(self, message: str, place: tuple[str | int, ...] = ()) -> None:
        self.place = place
        super().__init__(message)


class MissingLibraryError(SetupError, ModuleNotFoundError):
    """Raised if a part of divebook needs a library that is not installed. The text has the command that installs it.

    Parameters
    ----------
    name
        Name of the module that could not be imported.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class PatternError(SetupError):
    """Raised if a pattern is not valid, too large, or takes too long to match."""


class SchemaLimitError(SetupError):
    """Raised if checking a JSON schema, or a value against it, would take too much work."""


class InvalidEventError(DivebookError):
    """Raised if an event, or its payload, is not valid."""


class EnvelopeError(DivebookError):
    """Raised if an envelope cannot be created from the given data."""


class BoundsError(EnvelopeError):
    """Raised if a bound does not exist, or its value is not valid.

    Parameters
    ----------
    key
        Key as the user wrote it.
    value
        Value under the key; None if the key itself is wrong.
    advice
        Advice: a valid key or value.
    """

    def __init__(self, key: str, value: object, advice: str) -> None:
        self.key = key
        self.value = value
        shown = f"bound {key}" if value is None else f"bound {key}: {shown_number(value)}"
        super().__init__(f"{shown}: {advice}")


class InvalidEnvelopeError(EnvelopeError):
    """Raised if an envelope, or its serialized form, is not valid; `problems` contains all reasons."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class UncopyableValueError(EnvelopeError):
    """Raised if an envelope contains a value that cannot be copied.

    Parameters
    ----------
    path
        Place of the value, for example ``metadata.clients[0]``.
    reason
        Reason why the value cannot be copied.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"cannot copy {path}: {reason}; put a name or a key there instead, and store the object elsewhere"
        )


class UnstorableValueError(DivebookError):
    """Raised if a value cannot be recorded in the log.

    Parameters
    ----------
    path
        Place of the value, for example ``outputs.rows[3].when``.
    reason
        Reason why the value cannot be stored, and how to fix this.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot store {path}: {reason}")


class UnopenableValueError(DivebookError):
    """Raised if a recorded value cannot be rebuilt as a Python object in this process.

    Parameters
    ----------
    kind
        Type of the value: the name of a class, or of a type of a library.
    reason
        Reason why the value cannot be rebuilt, and how to fix this.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"cannot open the recorded {kind}: {reason}")


class ScriptError(DivebookError):
    """Raised if a sandboxed script fails; `line` is the line in the script, counted from 1, or None."""

    code: str = ""
    """Source of the script or expression; empty if it is not known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message)

    @property
    def raised(self) -> str:
        """Name of the exception class that the code in the script raised, such as ``ZeroDivisionError``; an empty
        string if the script failed for another reason.
        """
        # "ZeroDivisionError: division by zero" -> "ZeroDivisionError". A text such as "limit: 5" names no class.
        name, colon, _ = str(self).partition(": ")
        return name if colon and name.isidentifier() and name.endswith(("Error", "Exception")) else ""


class ScriptSyntaxError(ScriptError):
    """Raised if a script is not valid Python, or uses syntax that is not allowed at its place."""


class UndefinedVariableError(ScriptError):
    """Raised if a script uses a name that is not defined."""

    def __init__(self, name: str, line: int | None = None, hint: str | None = None) -> None:
        self.name = name
        self.hint = hint
        super().__init__(f'undefined variable "{name}"' + (f" ({hint})" if hint else ""), line)


class ScriptLimitError(ScriptError):
    """Raised if a script exceeds its time or memory limit."""


class TemplateError(DivebookError):
    """Raised if a string with ``${...}`` expressions cannot be rendered."""


class UnrelatedError(DivebookError):
    """Raised if runs cannot be compared, because they ran different workflows and neither run was derived from the
    other.

    Parameters
    ----------
    runs
        Ids of both runs, each with the name of its workflow.
    advice
        Advice: how to find other runs of the workflow.
    """

    def __init__(self, *runs: tuple[str, str], advice: str = "") -> None:
        self.runs = runs
        (one, its), (other, second) = runs
        super().__init__(
            f"{one} ran workflow {its!r}, but {other} ran workflow {second!r}, so their steps cannot be compared. "
            f"Compare runs of the same workflow, or a run with its fork or what-if{f': {advice}' if advice else ''}"
        )


class SavedRunError(DivebookError):
    """Raised if a run that is saved in a notebook cannot be read. The log of the run may still exist."""


class StoreError(DivebookError):
    """Raised if events cannot be written to or read from a store."""


class ConcurrentAppendError(StoreError):
    """Raised if another writer appended to the execution's log first. None of the events passed with the failed call
    were written.
    """

    def __init__(self, run_id: str, expected: int, actual: int) -> None:
        self.run_id = run_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"execution {run_id} is at event {actual}, not {expected}: another process has written to its log in "
            "the meantime. Nothing was written; resume the execution to continue from its current state"
        )


class UnreadMessageError(StoreError):
    """Raised if a writer requires that it has read all messages to the execution (`Batch.last_message`), but the
    execution has received a later message. None of the events passed with the failed call were written.

    Parameters
    ----------
    last_message
        Number of the newest message that the writer has read; 0 if the writer has read no message.
    newest
        Number of the newest message to the execution.
    """

    def __init__(self, run_id: str, last_message: int, newest: int) -> None:
        self.run_id = run_id
        self.last_message = last_message
        self.newest = newest
        super().__init__(
            f"the newest message to execution {run_id} has number {newest}, but this process has read its messages "
            f"only up to number {last_message}. Nothing was written; read the inbox of the execution again"
        )


class ExecutionEndedError(StoreError):
    """Raised if an event cannot be appended, or a message cannot be posted, because the execution has ended. Neither
    the message nor any of the events passed with the failed call were written.

    Parameters
    ----------
    status
        Final status of the execution.
    event_type
        Type of the event, or kind of the message, that could not be added.
    way_on
        Next step for a person who wants to continue the run.
    """

    def __init__(self, run_id: str, status: str, event_type: str, way_on: str) -> None:
        self.run_id = run_id
        self.status = status
        self.event_type = event_type
        super().__init__(
            f"execution {run_id} has the status {status!r}, so no {event_type} event can be added to its log. "
            "Nothing was "
            f"written; {way_on}"
        )


class StartKeyTakenError(StoreError):
    """Raised if an execution with the requested start key exists already; `run_id` is its id. No new execution
    was started.

    Parameters
    ----------
    workflow
        Workflow of the existing execution, if it differs from `wanted`, the workflow to be started; otherwise empty.
    difference
        Differences between the start of the existing execution and the requested start: its inputs, or the change of a
        fork, each with the requested value. Empty if the starts were not compared.
    """

    def __init__(self, key: str, run_id: str, workflow: str = "", wanted: str = "", *, difference: str = "") -> None:
        self.key = key
        self.run_id = run_id
        self.workflow = workflow
        self.wanted = wanted
        self.difference = difference
        owner = f"execution {run_id} of workflow {workflow!r}" if workflow else f"execution {run_id}"
        # The text has only the parts that apply. With another workflow: "start key 'k' belongs to execution exec_1 of
        # workflow 'a' already, and workflow 'b' was to be started. Nothing was started; start with another key".
        what = f", but you tried to start workflow {wanted!r}" if wanted else ""
        what += f", which {difference}" if difference else ""
        way_on = "start with another key" if workflow else "use that execution, or start with another key"
        super().__init__(f"start key {key!r} already belongs to {owner}{what}. Nothing was started; {way_on}")


class FencedError(StoreError):
    """Raised if a writer no longer holds the current lease of an execution. None of the events passed with the failed
    call were written.

    Parameters
    ----------
    token
        Fencing token of the writer; None if the writer has no lease.
    current
        Token of the latest lease; 0 if the execution never had a lease.
    """

    def __init__(self, run_id: str, token: int | None, current: int) -> None:
        self.run_id = run_id
        self.token = token
        self.current = current
        # Tokens grow with each lease of an execution (fencing). A writer with a smaller token than `current` has lost
        # its lease, even if it does not know that yet: it may have been suspended while another process took over.
        writer = "this process has no lease" if token is None else f"this process has lease {token}"
        super().__init__(
            f"another process has taken over execution {run_id}: its current lease has number {current}, but "
            f"{writer}. Nothing was written; let the other process continue the execution, or resume it here"
        )


class LeaseHeldError(StoreError):
    """Raised if another process drives the execution; `until` is the time at which its lease (the right to drive) ends,
    if it is not renewed.
    """

    def __init__(self, run_id: str, *, host: str, pid: int, name: str, until: datetime) -> None:
        self.run_id = run_id
        self.host = host
        self.pid = pid
        self.name = name
        self.until = until
        super().__init__(
            f"execution {run_id} is driven by {name or 'a process'} (process {pid} on {host}). Wait until that "
            f"process has finished, or end it and then resume the execution. If that process no longer exists, you "
            f"can resume the execution after {until.astimezone():%Y-%m-%d %H:%M:%S %Z}"
        )


class StoreBusyError(StoreError):
    """Raised if a store cannot write at the moment, because another process holds a lock or the disk is full.

    An execution waits until the store can be written again. Its view and its repr show the reason.
    """


class ConnectionLostError(StoreBusyError):
    """Raised if the server of the store cannot be reached. It is not known whether the current commit was executed.

    An execution waits for the server, and then reads the end of its log to find out (`divebook.stores.Batch.again`).
    """


class StoreClosedError(StoreError):
    """Raised if a store is used after it was closed."""


class ForkedStoreError(StoreClosedError):
    """Raised if a store is used in a child process, after the process that opened the store was forked."""


class ReadOnlyStoreError(StoreError):
    """Raised if a store cannot be written to."""


class CorruptStoreError(StoreError):
    """Raised if the contents of a store are damaged."""


# The classes that code raises for data of a wrong shape: a missing key, a wrong type, a bad number, too many levels.
# OSError is not among them: it is a failure of the disk or the network.
UNFIT = (DivebookError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Errors that damaged contents of a log can cause. Readers of logs turn them into `CorruptStoreError`."""


class DecryptionError(StoreError):
    """Raised if a value in a store is encrypted and the right key to decrypt it is missing."""


class NewerStoreError(StoreError):
    """Raised if a newer version of divebook wrote the store, or one of its events."""


UNREADABLE = (CorruptStoreError, DecryptionError, NewerStoreError)
"""Errors of a log that the store has, but that cannot be read. One such log must not hide the other executions."""


class ExecutionNotFoundError(StoreError, NotFoundError):
    """Raised if the store has no execution with the requested id.

    Parameters
    ----------
    available
        Ids of executions in the store, newest first.
    """

    def __init__(self, run_id: str, available: Iterable[str] = ()) -> None:
        NotFoundError.__init__(self, "execution", run_id, available)

    def _advice(self) -> str:
        newest = ", ".join(self.available[:3])
        return super()._advice() if self.suggestion or not newest else f" (the newest executions: {newest})"


class WorkspaceError(DivebookError):
    """Raised if files, commands or resources of a workspace cannot be used as requested."""


class ProcessIdError(WorkspaceError, LookupError):
    """Raised if a workspace has no process with the requested id, or if the id for a new process is already used."""


class ProcessInputError(WorkspaceError):
    """Raised if a process of a workspace cannot receive input."""


class WorkspaceNotEnteredError(WorkspaceError, RuntimeError):
    """Raised if a workspace is used outside its ``with`` block."""


class WorkspaceEnteredError(WorkspaceError, RuntimeError):
    """Raised if the ``with`` block of a workspace or session is entered while another one is active."""


class WorkspaceGoneError(WorkspaceError):
    """Raised if the folder or container of a workspace no longer exists."""


class PathNotAllowedError(WorkspaceError, PermissionError):
    """Raised if a workspace may not use a path.

    Parameters
    ----------
    path
        Path as the caller passed it.
    rule
        Rule that the path breaks, in words, such as ``'..' leads out of the folder``.
    allowed
        Folders that the workspace may use, as they are shown to people.
    """

    def __init__(self, path: str, rule: str = "", allowed: Sequence[str] = ()) -> None:
        self.path = path
        self.rule = rule
        self.allowed = tuple(allowed)
        where = f" is not within allowed directories: {', '.join(self.allowed)}" if self.allowed else " is not allowed"
        super().__init__(f"Path '{path}'{where}{f' ({rule})' if rule else ''}")


class FileOperationError(WorkspaceError):
    """Raised if reading, writing or deleting a file in a workspace fails.

    Parameters
    ----------
    operation
        Failed operation: ``read``, ``write`` or ``delete``.
    path
        Path as the caller passed it.
    reason
        Reason of the failure in words, such as ``file not found``.
    """

    def __init__(self, operation: str, path: str, reason: str) -> None:
        self.operation = operation
        self.path = path
        self.reason = reason
        super().__init__(f"Failed to {operation} '{path}': {reason}")


class ShellExecutionError(WorkspaceError):
    """Raised if a command cannot be run in a workspace.

    Parameters
    ----------
    command
        Command as the caller passed it. Secrets in it are masked in messages.
    reason
        Reason of the failure, in words.
    stdout, stderr
        Output of the command until the error.
    """

    def __init__(self, command: str, reason: str, *, stdout: str = "", stderr: str = "") -> None:
        self.command = command
        self.reason = reason
        self.stdout = stdout
        self.stderr = stderr
        super().__init__(reason)


class ShellTimeoutError(ShellExecutionError, TimeoutError):
    """Raised if a command runs longer than `timeout` seconds. Its processes were ended."""

    def __init__(self, command: str, timeout: float, *, stdout: str = "", stderr: str = "") -> None:
        self.timeout = timedelta(seconds=timeout)
        super().__init__(command, f"Command timed out after {timeout:g}s: {command}", stdout=stdout, stderr=stderr)


class ContainerError(WorkspaceError, RuntimeError):
    """Raised if a container is not running, a container or its image does not exist, or the container engine refuses a
    request.
    """


class SnapshotError(WorkspaceError):
    """Raised if a snapshot of files cannot be created, compared or restored."""


class EngineUnavailableError(WorkspaceError):
    """Raised if the container engine cannot be used: not installed, not running, or not permitted."""


class UnusableEngineError(EngineUnavailableError):
    """Raised if the value of ``DOCKER_HOST`` is not an address of a container engine, so that another attempt would
    fail too.
    """


class ExecutionError(DivebookError):
    """Raised if an execution fails, or cannot do what is requested."""


class CodeChangedError(ExecutionError):
    """Raised if a notebook cell runs again, but functions that its recorded run called have been edited since. A person
    must choose how to continue.

    Parameters
    ----------
    told
        Description of the change, for people.
    choices
        Effects of the possible choices, by the word that selects the choice.
    begin
        Function that takes the word of a choice, carries the choice out, and returns the run.
    default
        Word of the choice that is used if a person makes none; None if a person must choose.
    """

    def __init__(
        self, told: str, choices: Mapping[str, str], begin: Callable[[str], Any], default: str | None = None
    ) -> None:
        self.told = told
        self.choices = dict(choices)
        self.begin = begin
        self.default = default
        ways = ", ".join(f"--changed {word} ({outcome})" for word, outcome in choices.items())
        super().__init__(f"{told} Add one of: {ways}")


class StepError(ExecutionError):
    """Raised if a step of a workflow cannot be executed."""


class AgentError(StepError):
    """Raised if a turn of an agent ended without an answer.

    Parameters
    ----------
    agent
        Name of the agent whose turn ended.
    request
        Number of the last request in the turn.
    """

    def __init__(self, agent: str, request: int, cause: str) -> None:
        self.agent = agent
        self.request = request
        super().__init__(f"agent {agent} gave no answer after {request} request{'' if request == 1 else 's'}: {cause}")


class ToolError(StepError):
    """Raised if the turn of an agent ended because one of its tools raised an unexpected error.

    Parameters
    ----------
    agent, tool
        Names of the agent that made the call, and of the tool.
    cause
        Error that the tool raised: its class and message.
    names
        Names of the error's class and its base classes.
    """

    # Views put the place of the error between the cause and this advice (`engine.retries.Fault.shown`).
    advice = "fix it and resume; to report an error to the model instead, raise pydantic_ai.ModelRetry"

    def __init__(self, agent: str, tool: str, cause: str, names: Sequence[str] = ()) -> None:
        self.agent = agent
        self.tool = tool
        self.cause = cause
        self.names = list(names)
        super().__init__(f"tool {tool} of agent {agent} failed: {cause} ({self.advice})")


class ItemFailedError(StepError):
    """Raised if an item of a step's ``Each`` failed and the failure ends the step.

    Parameters
    ----------
    results
        Results of the items, in their order; None for those that have no result.
    key
        Key of the item, if the items are the entries of a mapping.

    Attributes
    ----------
    beside
        Errors of items that ran at the same time as this item and failed after it.
    """

    def __init__(
        self, message: str, index: int, item: object, results: Sequence[object], key: str | None = None
    ) -> None:
        self.index = index
        self.item = item
        self.results = list(results)
        self.key = key
        self.beside: list[Exception] = []
        super().__init__(f"item {index}: {message}")


class StageTimeoutError(StepError):
    """Raised if an attempt of a pipeline stage exceeds its time limit."""

    def __init__(self, stage: str, seconds: float) -> None:
        self.stage = stage
        self.timeout = timedelta(seconds=seconds)
        super().__init__(
            f"stage {stage!r} took longer than {seconds:g} seconds; raise its timeout_seconds, or resume to try again"
        )


class TimedOutError(StepError, TimeoutError):
    """Raised if a step or call exceeds its ``Timeout``. It is also a `TimeoutError`."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.timeout = timedelta(seconds=seconds)
        super().__init__(
            f"{what} took longer than its Timeout of {seconds:g} seconds; raise the Timeout, or add a Retry"
        )


class UnpicklableError(StepError):
    """Raised if a function, argument or result cannot be sent to another process. The text states how to fix it."""


class ResumeError(ExecutionError):
    """Raised if an envelope cannot continue in its pipeline, because it does not wait for an answer, or waits for a
    different one.
    """


class OperationError(ExecutionError):
    """Raised if an operation failed. The error text is the recorded one, also when the failure is replayed from the
    log.

    The error of a function made with ``@step`` is also of the class that the function raised, so that ``except
    ValueError`` catches it.
    """

    called: str = ""
    """Name of the function that raised the error."""
    is_blocked: bool = False
    """True for a call in a what-if or trial that was not made, because the log has no result for it."""

    def __init__(
        self, message: str, operation_id: str = "", operation_type: str = "", error_names: Sequence[str] = ()
    ) -> None:
        self.operation_id = operation_id
        self.operation_type = operation_type
        self.error_names = tuple(error_names)
        super().__init__(message)


class NeedsPersonError(ExecutionError):
    """Raised if a person must decide how an execution continues, because the execution was resumed automatically
    several times and was interrupted each time before it made progress.
    """


class ServerError(ExecutionError):
    """Raised if an MCP server cannot be reached, violates the protocol, or lacks what was requested."""

    def __init__(self, operation: str, server: str, cause: str) -> None:
        self.operation = operation
        self.server = server
        self.cause = cause
        super().__init__(f"MCP {operation} failed for server {server}: {cause}")


class OutcomeUnknownError(ExecutionError):
    """Raise this from an action or tool that cannot determine whether its call took effect."""


class InterruptError(ExecutionError):
    """Raised if an answer does not fit its question, or the question was already answered. The question stays as it
    was.
    """

    def __init__(self, question_id: str, reason: str) -> None:
        self.question_id = question_id
        self.reason = reason
        super().__init__(f"question {question_id}: {reason}")


class AnswerKeptError(ExecutionError):
    """Raised if an answer or signal was stored, but the execution that receives it cannot continue in this process;
    `cause` is the reason.
    """

    def __init__(self, run_id: str, what: str, cause: Exception) -> None:
        self.run_id = run_id
        self.what = what
        self.cause = cause
        is_undefined = not isinstance(cause, StoreError)
        advice = "Resume it where the workflow is defined" if is_undefined else "Resume it when the store is available"
        super().__init__(
            f"{what} is stored, so do not send it again, but execution {run_id} cannot continue in this process: "
            f"{cause}. {advice}"
        )


_EXPIRED = "the question expired without an answer"


def with_next_step(error: str) -> str:
    """Return the error of a failed run as people see it: with the next step, which is added if the log has the error
    without the next step.

    >>> with_next_step("KeyError: 'b'")
    "KeyError: 'b'"
    """
    return f"{error}. When you resume the run, it asks the question again." if _EXPIRED in error else error


class InterruptExpiredError(ExecutionError):
    """Raised if a question without a default expired without an answer. If the run is resumed, the question is asked
    again.
    """

    def __init__(self, question_id: str, question: str) -> None:
        self.question_id = question_id
        self.question = question
        # Recorded in logs, so that the text stays as it is (tests/replay/test_histories.py).
        super().__init__(f"{_EXPIRED}: {question} (add a Default, or raise ExpiresIn)")


class ApprovalDeniedError(ExecutionError):
    """Raised if a person did not approve a call."""

    def __init__(self, question: str, text: str = "") -> None:
        self.question = question
        self.text = text
        super().__init__(f"not approved: {question}" + (f" ({text})" if text else ""))


class BoundExceededError(ExecutionError):
    """Raised if a bound (budget) of the execution does not allow the next call or step.

    Parameters
    ----------
    bound
        Name of the bound, for example ``max_llm_calls``.
    reason
        Reason for programs, one of `TerminalReason`.
    """

    def __init__(self, message: str, bound: str = "", reason: str = "") -> None:
        self.bound = bound
        self.reason = reason
        super().__init__(message)


class ExecutionFailedError(ExecutionError):
    """Raised by ``wait(check=True)`` if an execution has failed."""

    def __init__(self, run_id: str, error: str) -> None:
        self.run_id = run_id
        self.error = error
        super().__init__(f"execution {run_id} failed: {with_next_step(error)}")


class ExecutionCancelledError(ExecutionError):
    """Raised if an execution was cancelled. `reason` is the recorded reason, or empty."""

    def __init__(self, run_id: str, reason: str = "") -> None:
        self.run_id = run_id
        self.reason = reason
        end = f"cancelled: {reason}" if reason else "cancelled"
        # Without a reason of the caller, the log has a sentence such as "cancelled by ann@host".
        if reason.startswith("cancelled by "):
            end = reason
        super().__init__(f"execution {run_id} was {end}; resume it to continue")


class ExecutionPausedError(ExecutionError):
    """Raised if the kernel was interrupted (Ctrl-C or stop button) and the execution is paused until it is resumed."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"execution {run_id} is paused; resume it to continue")


class ExecutionWaitingError(ExecutionError):
    """Raised if an execution has to wait for an answer or a signal, but waiting is not allowed (``strict``)."""

    def __init__(self, run_id: str, question: str = "", signals: str = "") -> None:
        self.run_id = run_id
        self.question = question
        self.signals = signals
        answer = (
            f"an answer: {question} (answer the question, or pass the answer when you start the run)"
            if question
            else ""
        )
        what = answer or signals or "a point in time"
        super().__init__(f"execution {run_id} waits for {what}")


class DivergenceError(ExecutionError):
    """Raised if a definition requests a different operation from the one that the log has recorded at the same place.

    Parameters
    ----------
    place
        Path, step, visit, item and number of the operation.
    recorded, requested
        Short descriptions of the operation or question in the log, and of the one that the code requests.
    changes
        Descriptions of the arguments that differ, one string each, with both values.
    """

    def __init__(self, place: str, recorded: str, requested: str, changes: Sequence[str] = ()) -> None:
        self.place = place
        self.recorded = recorded
        self.requested = requested
        self.changes = tuple(changes)
        what = f" ({'; '.join(self.changes)})" if self.changes else ""
        super().__init__(
            f"the code no longer matches the log at {place}: the log has {recorded}, but the code requests "
            f"{requested}{what}. The recorded result is not used. Restore the old code and resume the execution, or "
            "start a new execution. To change code while older executions continue, put the change into `if await "
            "ctx.version(...)`"
        )


class SourceGoneError(ExecutionError):
    """Raised if a what-if or trial cannot continue because the execution whose log provides its results was deleted."""

    def __init__(self, run_id: str, source: str) -> None:
        self.run_id = run_id
        self.source = source
        super().__init__(
            f"what-if or trial {run_id} cannot continue: its source, execution {source}, was deleted, so its recorded "
            "results are gone. Start it again from an execution that exists, or delete it"
        )


class ReplayMismatchError(ExecutionError):
    """Raised if a replay of an execution with its unchanged definition differs from the recorded log.

    Parameters
    ----------
    difference
        First difference, in words.
    """

    def __init__(self, run_id: str, difference: str) -> None:
        self.run_id = run_id
        self.difference = difference
        super().__init__(
            f"a what-if of execution {run_id} would not be reliable, because even a replay without changes differs "
            f"from its log. First difference: {difference}. Look for code that reads the clock, random numbers or "
            "external data without recording them, and for functions that were edited after the run"
        )


class DevEnvError(DivebookError):
    """Raised if a development environment cannot be created or used; `exit_code` is the exit code of ``dev_env``."""

    exit_code: ClassVar[int] = 1


class EnvironmentNotFoundError(DevEnvError):
    """Raised if no development environment has the requested name."""

    exit_code = 2


class TemplateNotFoundError(DevEnvError):
    """Raised if a template, or a template that it extends, does not exist."""

    exit_code = 3


class LimitExceededError(DevEnvError):
    """Raised if more resources were requested than the host or the tenant has."""

    exit_code = 4


class CommandFailedError(DevEnvError):
    """Raised if a command in a development environment failed or could not be started."""

    exit_code = 6


class NotReplacedError(DevEnvError):
    """Raised if a checkpoint of a development environment could not be restored. The environment is as it was
    before.
    """


class CheckpointNotFoundError(DevEnvError):
    """Raised if a development environment has no checkpoint with the requested name."""

    exit_code = 7


class EnvironmentDeniedError(DevEnvError):
    """Raised if the caller may not use a development environment, or if the environment requests something that is
    forbidden.
    """

    exit_code = 8


def shown_number(value: Any) -> str:
    """Format a value for an error text, shortened if it is long. An integer with more digits than Python prints is
    described by its size.
    """
    try:
        text = repr(value)
    except ValueError:  # more digits than sys.get_int_max_str_digits()
        return f"an integer of {value.bit_length()} bits"
    return text if len(text) <= 60 else f"{text[:57]}..."
