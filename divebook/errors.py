"""Every error divebook raises, in one tree.

::

    DivebookError
    ├── DefinitionError            a workflow, agent or configuration text is wrong (line, column, key, hint)
    ├── InputError                 the inputs of an execution do not fit its workflow
    ├── NotFoundError              an agent, workflow, action, step, document ... of that name does not exist
    ├── AlreadyRegisteredError     a name is taken
    ├── SetupError                 an environment's settings contradict each other or miss something
    │   ├── PatternError           a pattern is not valid, too large, or takes too long to match
    │   └── SchemaLimitError       a JSON schema takes too much work to be checked
    ├── InvalidEventError          an event or its payload breaks its own rules
    ├── EnvelopeError              an envelope, or what it is made from, makes no sense
    │   ├── BoundsError            a bound that does not exist, or has no usable value
    │   ├── InvalidEnvelopeError   an envelope or its written form breaks its own rules (problems)
    │   └── UncopyableValueError   a value that a copy of an envelope cannot hold, with its path
    ├── UnstorableValueError       a value that the log cannot hold, with its path (``outputs.rows[3].when``)
    ├── UnopenableValueError       a recorded value that this process cannot make again: its class is not allowed
    ├── ScriptError                sandboxed Python went wrong
    │   ├── ScriptSyntaxError
    │   ├── UndefinedVariableError
    │   └── ScriptLimitError       time or memory limit reached
    ├── TemplateError              a ``${...}`` text cannot be rendered
    ├── UnrelatedError             runs of different workflows cannot be laid side by side
    ├── SavedRunError              a run in a saved notebook is damaged, made by hand, or not there
    ├── StoreError                 events cannot be written or read
    │   ├── ConcurrentAppendError  another writer appended to this execution first
    │   ├── ExecutionEndedError    the execution has ended, and what was to be appended may not follow its end
    │   ├── StartKeyTakenError     an execution with this start key exists already
    │   ├── FencedError            another process has taken this execution over
    │   ├── LeaseHeldError         another process drives this execution
    │   ├── StoreBusyError         it cannot be written just now: locked, or the disk is full
    │   │   └── ConnectionLostError  its server is out of reach, perhaps in the middle of a commit
    │   ├── StoreClosedError
    │   ├── ReadOnlyStoreError
    │   ├── CorruptStoreError
    │   ├── DecryptionError            a value is encrypted, and the key is missing or another
    │   ├── NewerStoreError        written by a newer divebook
    │   └── ExecutionNotFoundError
    ├── WorkspaceError             a workspace's files, commands or resources cannot be used
    │   ├── WorkspaceNotEnteredError   it was used before it was entered, or after it was left
    │   ├── WorkspaceEnteredError  it was entered twice
    │   ├── WorkspaceGoneError     what it refers to (folder, container) is not there any more
    │   ├── PathNotAllowedError    a path leads out, or breaks another rule, which it names
    │   ├── FileOperationError     an operation on a file failed (operation, path, reason)
    │   ├── ShellExecutionError    a command could not be run
    │   │   └── ShellTimeoutError  it ran too long; carries what it had said
    │   ├── ContainerError         a container or its image is not there, or the engine refuses
    │   ├── SnapshotError          a tree of files cannot be taken, compared or restored
    │   └── EngineUnavailableError the container engine is out of reach
    │       └── UnusableEngineError    DOCKER_HOST names none that could ever answer
    ├── DevEnvError                a development environment cannot be made or used (exit_code)
    │   ├── EnvironmentNotFoundError   2: there is none of that name
    │   ├── TemplateNotFoundError  3: no template has that name, or one that it extends is missing
    │   ├── LimitExceededError     4: more was asked for than the host or the tenant has
    │   ├── CommandFailedError     6: a command failed
    │   ├── NotReplacedError       1: a checkpoint could not be restored, and the environment is as it was
    │   ├── CheckpointNotFoundError    7: there is none of that name
    │   └── EnvironmentDeniedError 8: it is another's, or asks for what is forbidden
    └── ExecutionError             a run went wrong
        ├── CodeChangedError            functions that a cell's run has called were edited since (choices, begin)
        ├── StepError              a step cannot be carried out
        │   ├── AgentError         an agent's turn ended without an answer (agent, request)
        │   ├── ToolError          a tool raised, which ended the turn of its agent (agent, tool, cause)
        │   ├── ItemFailedError    one item of a step's `Each` failed (index, item, results so far)
        │   ├── StageTimeoutError  an attempt at a stage of a pipeline took longer than it may
        │   ├── TimedOutError      a step or a call took longer than its Timeout
        │   └── UnpicklableError   a function, argument or result that cannot go from one process to another
        ├── NeedsPersonError       it was resumed automatically several times and made no progress
        ├── SourceGoneError        a what-if or trial is to continue, and its source was deleted
        ├── ReplayMismatchError        an unchanged replay differs from the log, so a what-if would show nothing
        ├── ResumeError            an envelope cannot continue in its pipeline
        ├── OperationError         a recorded operation failed
        ├── ServerError            an MCP server cannot be reached, or does not keep to the protocol
        ├── OutcomeUnknownError    raise it from an action that cannot tell whether it took effect
        ├── InterruptError         an answer does not fit its question, or comes second
        ├── AnswerKeptError              an answer is stored, and its execution cannot continue in this process
        ├── InterruptExpiredError  a question expired without an answer, and it has no default
        ├── ApprovalDeniedError    a person said no
        ├── BoundExceededError     a bound of the execution does not allow what was to come
        ├── ExecutionFailedError   raised by ``wait(check=True)``
        ├── ExecutionCancelledError
        ├── ExecutionPausedError
        ├── ExecutionWaitingError  it has to wait for an answer or a signal, where it may not
        └── DivergenceError        definition and history disagree
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal

Severity = Literal["error", "warning"]
Place = tuple[str | int, ...]
"""Keys and positions that lead to a value, from the top: ``("Workflows", 0, "Steps", 2, "Next")``."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, or doubtful, in a definition.

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
    """The place of what it clashes with."""

    def describe(self, source_name: str = "<definition>") -> str:
        """Return the problem as one line: ``cell:3:5: unknown key 'Promt' (did you mean 'Prompt'?)``."""
        where = position_in(source_name, self.line, self.column) if self.line else f"{source_name}{self._spot()}"
        note = "warning: " if self.severity == "warning" else ""
        return f"{where}: {note}{self.message}" + (f" ({self.hint})" if self.hint else "")

    def below(self, *place: str | int) -> Problem:
        """Return the problem as seen from further up: `place` leads to where it was."""
        return replace(self, place=(*place, *self.place), twin=(*place, *self.twin) if self.twin else ())

    def at(self, line: int, column: int) -> Problem:
        """Return the problem with its position in a text."""
        return replace(self, line=line, column=column)

    def beside(self, line: int) -> Problem:
        """Return the problem with the line of what it clashes with, where that is another one."""
        if not line or line == self.line:
            return self
        return replace(self, message=f"{self.message} (lines {line} and {self.line})")

    def _spot(self) -> str:
        spot = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.place).lstrip(".")
        return f" at {spot}" if spot else ""


def position_in(source_name: str, line: int, column: int) -> str:
    """Return a position as people read it.

    >>> position_in("survey.yaml", 7, 11), position_in("Cell [5]", 7, 11)
    ('survey.yaml:7:11', 'Cell [5], line 7, column 11')
    """
    return (
        f"{source_name}, line {line}, column {column}"
        if source_name.startswith("Cell [")
        else f"{source_name}:{line}:{column}"
    )


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like `name`, or None if none is close."""
    by_folded = {candidate.casefold(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str | None:
    """Return a hint that names the candidate most like `name`, or None if none is close."""
    match = nearest(name, candidates)
    return f"did you mean {match!r}?" if match else None


class StartKeyWarning(UserWarning):
    """An execution was asked for with the start key of one that was started with other inputs, which is returned."""


class DeterminismWarning(UserWarning):
    """A line of a workflow function may give another result when the function runs again; see `divebook.lint`."""


class DivebookError(Exception):
    """Root of everything divebook raises on purpose."""

    raised_at: Mapping[str, Any] | None = None
    """Where a script, a template or a recorded call was at fault, as `divebook.runtime.errors.place_of` says it."""


class DefinitionError(DivebookError):
    """A definition text cannot be used; `problems` holds everything that is wrong with it.

    Parameters
    ----------
    problems
        At least one problem of severity ``error``.
    source_name
        The cell, file or text they were found in.
    """

    def __init__(self, problems: Sequence[Problem], source_name: str = "<definition>") -> None:
        self.problems = tuple(problems)
        self.source_name = source_name
        super().__init__("\n".join(problem.describe(source_name) for problem in self.problems))


class InputError(DivebookError):
    """The inputs given to an execution do not fit its workflow."""

    def __init__(self, message: str, name: str | None = None) -> None:
        self.name = name
        super().__init__(message)


class NotFoundError(DivebookError):
    """Nothing of that kind has that name; the nearest existing name is suggested.

    Parameters
    ----------
    kind
        ``agent``, ``workflow``, ``action``, ``step``, ...
    name
        What was asked for.
    available
        The names that exist.
    message
        Text before the suggestion; by default ``<kind> not found: <name>``.
    """

    def __init__(self, kind: str, name: str, available: Iterable[str] = (), message: str | None = None) -> None:
        self.kind = kind
        self.name = name
        self.available = tuple(available)
        self.suggestion = nearest(name, self.available)
        text = message or f"{kind} not found: {name}"
        super().__init__(f"{text}{self._advice()}")

    def _advice(self) -> str:
        if self.suggestion:
            return f" (did you mean {self.suggestion!r}?)"
        if self.available:
            return f" (known: {', '.join(sorted(self.available)[:10])})"
        return f" (there is no {self.kind})"


class AlreadyRegisteredError(DivebookError):
    """A name is taken."""

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        super().__init__(f"{kind} already registered: {name}; give one of them another name")


class SetupError(DivebookError):
    """An environment's settings contradict each other or miss something.

    Parameters
    ----------
    place
        Keys and positions that lead to what is wrong, where it stands in a definition: ``("Agents", 0, "Provider")``.
    """

    def __init__(self, message: str, place: tuple[str | int, ...] = ()) -> None:
        self.place = place
        super().__init__(message)


class PatternError(SetupError):
    """A pattern is not valid, too large, or takes too long to match."""


class SchemaLimitError(SetupError):
    """A JSON schema takes too much work to be checked, or to check a value."""


class InvalidEventError(DivebookError):
    """An event or its payload breaks its own rules."""


class EnvelopeError(DivebookError):
    """An envelope, or what it is made from, makes no sense."""


class BoundsError(EnvelopeError):
    """A bound that does not exist, or has no usable value.

    Parameters
    ----------
    key
        The key as it was written.
    value
        What stands there; None if the key itself is wrong.
    advice
        What to write instead.
    """

    def __init__(self, key: str, value: object, advice: str) -> None:
        self.key = key
        self.value = value
        shown = f"bound {key}" if value is None else f"bound {key}: {shown_number(value)}"
        super().__init__(f"{shown}: {advice}")


class InvalidEnvelopeError(EnvelopeError):
    """An envelope or its written form breaks its own rules; `problems` holds all that is wrong with it."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class UncopyableValueError(EnvelopeError):
    """A value that a copy of an envelope cannot hold.

    Parameters
    ----------
    path
        Where it sits, for example ``metadata.clients[0]``.
    reason
        Why it cannot be copied.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot copy {path}: {reason}; keep a name or a key there and the thing itself elsewhere")


class UnstorableValueError(DivebookError):
    """A value that the log cannot hold.

    Parameters
    ----------
    path
        Where it sits, for example ``outputs.rows[3].when``.
    reason
        Why it cannot be stored and what to do about it.
    """

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"cannot store {path}: {reason}")


class UnopenableValueError(DivebookError):
    """A recorded value that this process cannot make again.

    Parameters
    ----------
    kind
        What it is: the name of a class, or of a library's type.
    reason
        Why it cannot be made and what to do about it.
    """

    def __init__(self, kind: str, reason: str) -> None:
        self.kind = kind
        self.reason = reason
        super().__init__(f"cannot open the recorded {kind}: {reason}")


class ScriptError(DivebookError):
    """Sandboxed Python failed; `line` is the 1-based line in the script, if known."""

    code: str = ""
    """The script or expression, where that is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message)

    @property
    def raised(self) -> str:
        """The class of the error that the script's own code raised: ``ZeroDivisionError``; empty for other failures."""
        name, colon, _ = str(self).partition(": ")
        return name if colon and name.isidentifier() and name.endswith(("Error", "Exception")) else ""


class ScriptSyntaxError(ScriptError):
    """The script is not valid Python, or uses what its context does not allow."""


class UndefinedVariableError(ScriptError):
    """The script uses a name that its context does not define."""

    def __init__(self, name: str, line: int | None = None, hint: str | None = None) -> None:
        self.name = name
        self.hint = hint
        super().__init__(f'undefined variable "{name}"' + (f" ({hint})" if hint else ""), line)


class ScriptLimitError(ScriptError):
    """The script ran longer, or took more memory, than it may."""


class TemplateError(DivebookError):
    """A ``${...}`` text cannot be rendered."""


class UnrelatedError(DivebookError):
    """Runs of different workflows, of which none was made of the other, have no places in common.

    Parameters
    ----------
    runs
        The ids of both, each with the name of its workflow.
    """

    def __init__(self, *runs: tuple[str, str]) -> None:
        self.runs = runs
        (one, its), (other, second) = runs
        super().__init__(
            f"{one} ran the workflow {its!r} and {other} the workflow {second!r}: they have no places in common. "
            f"Compare runs of one workflow, or a run with its fork or what-if: %dive runs --workflow {its} lists them"
        )


class SavedRunError(DivebookError):
    """A run saved in a notebook cannot be read. The log of the run, if it still exists, can."""


class StoreError(DivebookError):
    """Events cannot be written or read."""


class ConcurrentAppendError(StoreError):
    """Another writer appended to this execution first; nothing of the batch was written."""

    def __init__(self, execution_id: str, expected: int, actual: int) -> None:
        self.execution_id = execution_id
        self.expected = expected
        self.actual = actual
        super().__init__(
            f"execution {execution_id} is at event {actual}, not {expected}: another writer was first. "
            "Nothing was written; resume the execution to go on from its present state"
        )


class ExecutionEndedError(StoreError):
    """The execution has ended, and this event may not follow its end; nothing of the batch was written.

    Parameters
    ----------
    status
        How it ended.
    event_type
        What was to be appended.
    way_on
        Next step for a person who wants to continue the run.
    """

    def __init__(self, execution_id: str, status: str, event_type: str, way_on: str) -> None:
        self.execution_id = execution_id
        self.status = status
        self.event_type = event_type
        super().__init__(
            f"execution {execution_id} is {status}: {event_type} cannot follow its end. Nothing was written; {way_on}"
        )


class StartKeyTakenError(StoreError):
    """An execution with this start key exists already; `execution_id` names it, and nothing was started.

    Parameters
    ----------
    workflow
        The workflow of that execution, where it is another one than `wanted`, which was to be started.
    difference
        How that execution was begun otherwise: its inputs, or the change of a fork, each with the value that was
        requested now; empty where they were not compared.
    """

    def __init__(
        self, key: str, execution_id: str, workflow: str = "", wanted: str = "", *, difference: str = ""
    ) -> None:
        self.key = key
        self.execution_id = execution_id
        self.workflow = workflow
        self.wanted = wanted
        self.difference = difference
        owner = f"execution {execution_id} of workflow {workflow!r}" if workflow else f"execution {execution_id}"
        what = f", and workflow {wanted!r} was to be started" if wanted else ""
        what += f", which {difference}" if difference else ""
        way_on = "start with another key" if workflow else "use that execution, or start with another key"
        super().__init__(f"start key {key!r} belongs to {owner} already{what}. Nothing was started; {way_on}")


class FencedError(StoreError):
    """A writer's lease on this execution is not the present one; nothing of the batch was written.

    Parameters
    ----------
    token
        The writer's fencing token; None if it has no lease.
    current
        The token of the latest lease; 0 if the execution never had one.
    """

    def __init__(self, execution_id: str, token: int | None, current: int) -> None:
        self.execution_id = execution_id
        self.token = token
        self.current = current
        writer = "this writer has no lease" if token is None else f"this writer has lease {token}"
        super().__init__(
            f"execution {execution_id} is under lease {current}, and {writer}: it was taken over. "
            "Nothing was written; leave it to its present owner, or resume it to take it back"
        )


class LeaseHeldError(StoreError):
    """Another process drives this execution; `until` is when the lease ends unless its owner renews it."""

    def __init__(self, execution_id: str, *, host: str, pid: int, name: str, until: datetime) -> None:
        self.execution_id = execution_id
        self.host = host
        self.pid = pid
        self.name = name
        self.until = until
        super().__init__(
            f"execution {execution_id} is driven by {name or 'a process'} (process {pid} on {host}). If that process "
            f"is gone, it can be resumed from {until.astimezone():%Y-%m-%d %H:%M:%S %Z} on. Wait, or end that "
            "process, and resume then"
        )


class StoreBusyError(StoreError):
    """Nothing can be written just now, and may be later: another process holds the lock, or the disk is full.

    A run that this happens to waits for it; see `Execution.held_up`.
    """


class ConnectionLostError(StoreBusyError):
    """The server of the store is out of reach; whether the commit that was under way was made is not known.

    A run waits for the server and then settles it by the end of its log (`divebook.store.Batch.again`).
    """


class StoreClosedError(StoreError):
    """The store was closed before."""


class ForkedStoreError(StoreClosedError):
    """The store was opened by a process from which this one was forked, and cannot be used here."""


class ReadOnlyStoreError(StoreError):
    """The store cannot be written to."""


class CorruptStoreError(StoreError):
    """The store's contents make no sense."""


UNFIT = (DivebookError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What contents lead to that no engine wrote; who reads a log makes a `CorruptStoreError` of it."""


class DecryptionError(StoreError):
    """A value of the store is encrypted, and the key for it is missing or another one."""


class NewerStoreError(StoreError):
    """The store or one of its events was written by a newer divebook."""


class ExecutionNotFoundError(StoreError, NotFoundError):
    """The store has no execution of that id.

    Parameters
    ----------
    available
        Ids of executions that it has, the newest first.
    """

    def __init__(self, execution_id: str, available: Iterable[str] = ()) -> None:
        NotFoundError.__init__(self, "execution", execution_id, available)

    def _advice(self) -> str:
        newest = ", ".join(self.available[:3])
        return super()._advice() if self.suggestion or not newest else f" (the newest: {newest})"


class WorkspaceError(DivebookError):
    """A workspace's files, commands or resources cannot be used as they were asked for."""


class ProcessIdError(WorkspaceError, LookupError):
    """A process of a workspace was asked for by an id that none has, or started by one that another has."""


class ProcessInputError(WorkspaceError):
    """A process of a workspace cannot be given something to read."""


class WorkspaceNotEnteredError(WorkspaceError, RuntimeError):
    """A workspace was used before it was entered, or after it was left."""


class WorkspaceEnteredError(WorkspaceError, RuntimeError):
    """A workspace or session was entered that is entered already."""


class WorkspaceGoneError(WorkspaceError):
    """The folder or container of a workspace does not exist any more."""


class PathNotAllowedError(WorkspaceError, PermissionError):
    """A path was refused.

    Parameters
    ----------
    path
        As it was given.
    rule
        The rule that it breaks, in words: ``leads above the root by ..``.
    allowed
        The folders that may be reached, as they are shown.
    """

    def __init__(self, path: str, rule: str = "", allowed: Sequence[str] = ()) -> None:
        self.path = path
        self.rule = rule
        self.allowed = tuple(allowed)
        where = f" is not within allowed directories: {', '.join(self.allowed)}" if self.allowed else " is not allowed"
        super().__init__(f"Path '{path}'{where}{f' ({rule})' if rule else ''}")


class FileOperationError(WorkspaceError):
    """An operation on a file failed.

    Parameters
    ----------
    operation
        What was to be done: ``read``, ``write``, ``delete``.
    path
        As it was given.
    reason
        Why it failed, in words: ``file not found``.
    """

    def __init__(self, operation: str, path: str, reason: str) -> None:
        self.operation = operation
        self.path = path
        self.reason = reason
        super().__init__(f"Failed to {operation} '{path}': {reason}")


class ShellExecutionError(WorkspaceError):
    """A command could not be run.

    Parameters
    ----------
    command
        As it was given; secrets in it are masked where it is shown.
    reason
        Why, in words.
    stdout, stderr
        What it had said until then.
    """

    def __init__(self, command: str, reason: str, *, stdout: str = "", stderr: str = "") -> None:
        self.command = command
        self.reason = reason
        self.stdout = stdout
        self.stderr = stderr
        super().__init__(reason)


class ShellTimeoutError(ShellExecutionError, TimeoutError):
    """A command ran longer than `timeout` seconds; what it started was ended."""

    def __init__(self, command: str, timeout: float, *, stdout: str = "", stderr: str = "") -> None:
        self.timeout = timeout
        super().__init__(command, f"Command timed out after {timeout:g}s: {command}", stdout=stdout, stderr=stderr)


class ContainerError(WorkspaceError, RuntimeError):
    """A container or its image is not there or does not run, or the engine refuses what is asked of it."""


class SnapshotError(WorkspaceError):
    """A tree of files cannot be taken, compared or restored."""


class EngineUnavailableError(WorkspaceError):
    """The container engine is out of reach: not installed, not running, or not permitted."""


class UnusableEngineError(EngineUnavailableError):
    """``DOCKER_HOST`` names no engine that could ever answer, so that another attempt is of no use."""


class ExecutionError(DivebookError):
    """A run went wrong."""


class CodeChangedError(ExecutionError):
    """Functions that a cell's run has called were edited since, and a person must say what is done about it.

    Parameters
    ----------
    told
        What has changed.
    choices
        Outcome of each choice, by the word that chooses it.
    begin
        Carries out the choice of a word, and returns the run.
    default
        The word that applies without a choice; None if a person must choose.
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
    """A step cannot be carried out."""


class AgentError(StepError):
    """A turn of an agent ended without an answer.

    Parameters
    ----------
    agent
        Whose turn it was.
    request
        The number of its last request.
    """

    def __init__(self, agent: str, request: int, cause: str) -> None:
        self.agent = agent
        self.request = request
        super().__init__(f"agent {agent} gave no answer after {request} request{'' if request == 1 else 's'}: {cause}")


class ToolError(StepError):
    """A tool raised something other than what is meant for the model, which ended the turn of its agent.

    Parameters
    ----------
    agent, tool
        Whose call of what it was.
    cause
        What was raised, with its class.
    names
        The class of what was raised, and those it derives from.
    """

    advice = "mend it and resume; what should be told to the model, raise as pydantic_ai.ModelRetry"

    def __init__(self, agent: str, tool: str, cause: str, names: Sequence[str] = ()) -> None:
        self.agent = agent
        self.tool = tool
        self.cause = cause
        self.names = list(names)
        super().__init__(f"tool {tool} of agent {agent} failed: {cause} ({self.advice})")


class ItemFailedError(StepError):
    """One item of a step's `Each` failed, which ends the step.

    Parameters
    ----------
    results
        Results of the items, in their order; None for those that have no result.
    key
        That of the item, where the items are those of a mapping.

    Attributes
    ----------
    beside
        The errors of the items that ran side by side with this one and failed after it.
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
    """An attempt at a stage of a pipeline took longer than it may."""

    def __init__(self, stage: str, seconds: float) -> None:
        self.stage = stage
        self.seconds = seconds
        super().__init__(f"stage {stage!r} took longer than {seconds:g} seconds; raise its timeout_seconds, or retry")


class TimedOutError(StepError, TimeoutError):
    """A step or a call took longer than its `Timeout`; a `TimeoutError` as well."""

    def __init__(self, what: str, seconds: float) -> None:
        self.what = what
        self.seconds = seconds
        super().__init__(f"{what} took longer than its Timeout of {seconds:g} seconds; raise that, or add a Retry")


class UnpicklableError(StepError):
    """A function, an argument or a result cannot go from one process to another; the text says what to do."""


class ResumeError(ExecutionError):
    """An envelope cannot continue in its pipeline: it waits for nothing, or for another answer."""


class OperationError(ExecutionError):
    """A recorded operation failed; the text is the recorded one.

    The error of a function made with ``@step`` is also of the class that the function raised, so that ``except
    ValueError`` catches it.
    """

    called: str = ""
    """The function that raised it."""

    def __init__(
        self, message: str, operation_id: str = "", operation_type: str = "", error_names: Sequence[str] = ()
    ) -> None:
        self.operation_id = operation_id
        self.operation_type = operation_type
        self.error_names = tuple(error_names)
        super().__init__(message)


class NeedsPersonError(ExecutionError):
    """An execution was resumed automatically several times, and interrupted each time before it made progress."""


class ServerError(ExecutionError):
    """An MCP server cannot be reached, does not keep to the protocol, or does not have what is asked of it."""

    def __init__(self, operation: str, server: str, cause: str) -> None:
        self.operation = operation
        self.server = server
        self.cause = cause
        super().__init__(f"MCP {operation} failed for server {server}: {cause}")


class OutcomeUnknownError(ExecutionError):
    """Raised by an action or tool that cannot tell whether its call took effect."""


class InterruptError(ExecutionError):
    """An answer does not fit its question, or there is one already; the question stays as it was."""

    def __init__(self, interrupt_id: str, reason: str) -> None:
        self.interrupt_id = interrupt_id
        self.reason = reason
        super().__init__(f"question {interrupt_id}: {reason}")


class AnswerKeptError(ExecutionError):
    """An answer or a signal is stored, and its execution cannot continue in this process; `cause` is the reason."""

    def __init__(self, execution_id: str, what: str, cause: Exception) -> None:
        self.execution_id = execution_id
        self.what = what
        self.cause = cause
        super().__init__(
            f"{what} is kept and need not be sent again, but execution {execution_id} cannot go on in this process: "
            f"{cause}. Resume it where that is defined"
        )


class InterruptExpiredError(ExecutionError):
    """A question expired without an answer, and it has no default."""

    def __init__(self, interrupt_id: str, question: str) -> None:
        self.interrupt_id = interrupt_id
        self.question = question
        super().__init__(f"the question expired without an answer: {question} (give it a Default, or more time)")


class ApprovalDeniedError(ExecutionError):
    """A person did not approve what was to be done."""

    def __init__(self, question: str, text: str = "") -> None:
        self.question = question
        self.text = text
        super().__init__(f"not approved: {question}" + (f" ({text})" if text else ""))


class BoundExceededError(ExecutionError):
    """A bound of the execution does not allow what was to come.

    Parameters
    ----------
    bound
        Its name, for example ``max_llm_calls``.
    reason
        The typed reason, one of `TerminalReason`.
    """

    def __init__(self, message: str, bound: str = "", reason: str = "") -> None:
        self.bound = bound
        self.reason = reason
        super().__init__(message)


class ExecutionFailedError(ExecutionError):
    """An execution ended as failed."""

    def __init__(self, execution_id: str, error: str) -> None:
        self.execution_id = execution_id
        self.error = error
        super().__init__(f"execution {execution_id} failed: {error}")


class ExecutionCancelledError(ExecutionError):
    """An execution was cancelled."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        super().__init__(f"execution {execution_id} was cancelled; resume it to go on")


class ExecutionPausedError(ExecutionError):
    """The kernel was interrupted, and the execution rests until it is resumed."""

    def __init__(self, execution_id: str) -> None:
        self.execution_id = execution_id
        super().__init__(f"execution {execution_id} is paused; resume it to go on")


class ExecutionWaitingError(ExecutionError):
    """An execution has to wait, for an answer or a signal, where that is an error (``strict``)."""

    def __init__(self, execution_id: str, question: str = "", signals: str = "") -> None:
        self.execution_id = execution_id
        self.question = question
        self.signals = signals
        answer = f"an answer: {question} (answer it, or give the answer up front)" if question else ""
        what = answer or signals or "a time"
        super().__init__(f"execution {execution_id} waits for {what}")


class DivergenceError(ExecutionError):
    """The definition asks for something other than what the history recorded at the same place.

    Parameters
    ----------
    place
        Path, step, visit, item and number of the operation.
    recorded, requested
        The operation, or question, in the log and in the code, in a few words.
    changes
        The arguments that differ, one text each, with both values.
    """

    def __init__(self, place: str, recorded: str, requested: str, changes: Sequence[str] = ()) -> None:
        self.place = place
        self.recorded = recorded
        self.requested = requested
        self.changes = tuple(changes)
        what = f" ({'; '.join(self.changes)})" if self.changes else ""
        super().__init__(
            f"history and definition disagree at {place}: recorded {recorded}, now asked for {requested}{what}. "
            "The recorded result is not used. Put the code back as it was and resume the execution, or start "
            "a new one; put changes into `if await ctx.version(...)` where executions that began before must go on"
        )


class SourceGoneError(ExecutionError):
    """A what-if or trial is to continue, and the execution from whose log it is answered was deleted."""

    def __init__(self, execution_id: str, source: str) -> None:
        self.execution_id = execution_id
        self.source = source
        super().__init__(
            f"what-if or trial {execution_id} cannot go on: execution {source}, from whose log it is answered, was "
            "deleted. It stays as it is; make it anew of an execution that is there, or delete it"
        )


class ReplayMismatchError(ExecutionError):
    """An unchanged replay of an execution differs from its log.

    Parameters
    ----------
    difference
        The first one, in words.
    """

    def __init__(self, execution_id: str, difference: str) -> None:
        self.execution_id = execution_id
        self.difference = difference
        super().__init__(
            f"unfaithful: gone through again without any change, execution {execution_id} differs from its log, so "
            f"that a what-if would show nothing; first at {difference}. Look for code that asks clock, chance or the "
            "world by itself, or for functions that were edited since"
        )


class DevEnvError(DivebookError):
    """A development environment cannot be made or used so; `exit_code` is what ``dev_env`` ends with."""

    exit_code: ClassVar[int] = 1


class EnvironmentNotFoundError(DevEnvError):
    """A development environment of that name does not exist."""

    exit_code = 2


class TemplateNotFoundError(DevEnvError):
    """A template of that name does not exist, or one that it extends."""

    exit_code = 3


class LimitExceededError(DevEnvError):
    """More was asked for than the host or the tenant has."""

    exit_code = 4


class CommandFailedError(DevEnvError):
    """A command of an environment failed, or could not be started."""

    exit_code = 6


class NotReplacedError(DevEnvError):
    """A checkpoint could not be restored, and the environment is as it was before."""


class CheckpointNotFoundError(DevEnvError):
    """The environment has no checkpoint of that name."""

    exit_code = 7


class EnvironmentDeniedError(DevEnvError):
    """The environment, or what it asks for, is not the caller's to use."""

    exit_code = 8


def shown_number(value: Any) -> str:
    """Return a value for an error, also an integer with more digits than Python writes out."""
    try:
        text = repr(value)
    except ValueError:  # more digits than sys.get_int_max_str_digits()
        return f"an integer of {value.bit_length()} bits"
    return text if len(text) <= 60 else f"{text[:57]}..."
