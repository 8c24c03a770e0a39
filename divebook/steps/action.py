"""Action steps: parameters are rendered, then a named function is called as one operation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio.from_thread
import anyio.to_thread

from divebook.documents import DocumentRepository
from divebook.engine.operations import ACTION_EXECUTION, DOCUMENT_READ, SCRIPT_EXECUTION
from divebook.errors import (
    ApprovalDeniedError,
    ScriptError,
    ScriptLimitError,
    ScriptSyntaxError,
    StepError,
    UndefinedVariableError,
)
from divebook.events import catalog
from divebook.questions.answer import value_of
from divebook.questions.question import CLARIFICATION
from divebook.runtime.context import StepContext
from divebook.runtime.errors import clean_failure, clean_text
from divebook.runtime.step import Outcome, code_place
from divebook.runtime.workspaces import OwnChanges
from divebook.scripting import (
    Interpreter,
    Limits,
    default_interpreter,
    evaluate_condition,
    evaluate_items,
    render_templates,
    value_text,
)
from divebook.scripting.prelude import DEFAULT_LIMITS
from divebook.scripting.templates import fill_values, is_to_be_filled
from divebook.steps.actions import Action, StepAction
from divebook.steps.call import call
from divebook.steps.rows import run_rows
from divebook.text.format import plural
from divebook.text.names import normal_name
from divebook.text.redaction import shared
from divebook.workflow.functions import FUNCTION
from divebook.workspace.snapshots.restore import left_out_text
from divebook.workspace.snapshots.tree import FileDiff
from divebook.workspace.workspace import present_workspace

# What a workspace has changed is taken over into the folder that it is a copy of: of the files that a person chooses.
#
# The question has the difference of each file, and its answer the paths. The folder is touched only by the recorded
# call that follows: it writes what was shown, whatever the workspace has by then, of all of them, or of none where one
# was changed there meanwhile.


TAKE_OVER = "Workspace.Apply"
MOST_SHOWN = 100_000
"""Characters of all differences that a question has."""
_PATHS = "Paths"
_ASK = "Ask"


async def take_over(
    context: StepContext, workspace: str, parameters: Mapping[str, Any], key: str | int
) -> dict[str, Any]:
    """Return the paths that were ``written``, were ``there`` already, and were ``left`` as they are.

    Protected paths (hidden names, version-control metadata) are left unless ``Paths`` or the person names them; if
    nobody was asked about them, ``left_out`` is a text that says how to take them over.

    Parameters
    ----------
    parameters
        ``Paths``: of which files; by default of all. ``Ask``: whether a person chooses among them; by default yes, and
        always in a workspace of a definition that may not ask less (`divebook.documents.policy`).
    key
        Name of the call within the step.

    Raises
    ------
    StepError
        There is nothing to take over, or a parameter is not what it should be.
    OperationError
        The folder has something else than the changes began with.
    """
    paths, asks = _read_parameters(parameters)
    if not asks and context.step.type != FUNCTION:  # a step of a definition; code of a person decides by itself
        asks = not context.workspaces.may_go_unasked(workspace)
    tree: str | None = None
    if (asks and context.record_of(key) is None) or context.question_of(f"{key}-files") is not None:
        paths, tree = await _asked(context, workspace, paths, f"{key}-files")

    async def carry_out() -> dict[str, Any]:
        own = await context.workspaces.own_changes(workspace, context.place(f"{key}-now"), tree)
        known = [diff.path for diff in own.diffs()]
        protected = own.protected()
        named = set(paths or ())
        # With all of the visible files go the folders, which no question lists.
        is_all = paths is None or named | protected >= set(known)
        done = own.take_over(None if is_all else paths, by_name=named & protected)
        taken = {*done.written, *done.there}
        result = {"written": done.written, "there": done.there, "left": [path for path in known if path not in taken]}
        left_out = left_out_text(done.left_out, f"{_PATHS}: [{{}}]") if paths is None else ""
        return {**result, "left_out": left_out} if left_out else result

    given = {**({} if paths is None else {_PATHS: list(paths)}), "workspace": workspace}
    asked = {"action_name": TAKE_OVER, "params": given}
    found: dict[str, Any] = await context.operation(ACTION_EXECUTION, asked, carry_out, key=key, repeatable=True)
    return found


def _read_parameters(parameters: Mapping[str, Any]) -> tuple[Sequence[str] | None, bool]:
    paths = parameters.get(_PATHS)
    asks = parameters.get(_ASK, True)
    if paths is not None and not (isinstance(paths, list | tuple) and all(isinstance(path, str) for path in paths)):
        raise StepError(f"{_PATHS} of {TAKE_OVER} are a list of paths, not {paths!r}")
    if not isinstance(asks, bool):
        raise StepError(f"{_ASK} of {TAKE_OVER} is true or false, not {asks!r}")
    unknown = parameters.keys() - {_PATHS, _ASK}
    if unknown:
        raise StepError(f"{TAKE_OVER} has no parameter {min(unknown)}: it has {_PATHS} and {_ASK}")
    return paths, asks


async def _asked(
    context: StepContext, workspace: str, paths: Sequence[str] | None, key: str
) -> tuple[Sequence[str] | None, str]:
    """Return the paths that a person has chosen, or all that are asked for where nothing has changed; of which files.

    The files are those that were shown, by the digest of their tree: others may have come while the person thought.
    """
    asked = context.question_of(key)
    if asked is not None:
        options: dict[str, Any] = {"message": asked.message, "data": asked.data, "schema": asked.schema}
        question = asked.question
    else:
        own = await context.workspaces.own_changes(workspace, context.place(key))
        diffs = [diff for diff in own.diffs() if paths is None or diff.path in paths]
        if not diffs:
            return paths, own.tree
        question, options = _question(workspace, own, diffs, paths or ())
    answered = await context.interrupt(CLARIFICATION, question, key=key, **options)
    return list(value_of(answered)), options["data"]["tree"]


def _question(
    workspace: str, own: OwnChanges, diffs: Sequence[FileDiff], by_name: Sequence[str]
) -> tuple[str, dict[str, Any]]:
    names = [diff.path for diff in diffs]
    protected = own.protected() - set(by_name)
    added, removed = (sum(getattr(diff, way) or 0 for diff in diffs) for way in ("added", "removed"))
    told = f"{plural(len(diffs), 'file')} changed in workspace {workspace} (+{added} -{removed})"
    if unselected := [name for name in names if name in protected]:
        told += f". {left_out_text(unselected, 'select {}')}"
    choice = {
        "type": "array",
        "title": "Files",
        "items": {"type": "string", "enum": names},
        "uniqueItems": True,
        "default": [name for name in names if name not in protected],
    }
    data = {"workspace": workspace, "folder": str(own.folder), "tree": own.tree, "files": _shown(diffs)}
    return "Which of these files are to be taken over?", {"message": told, "data": data, "schema": choice}


def _shown(diffs: Sequence[FileDiff]) -> list[dict[str, Any]]:
    """Return the differences as a question has them: without secrets, and without those that are too long."""
    left = MOST_SHOWN
    told = []
    for diff in diffs:
        row: dict[str, Any] = shared().value(diff.to_dict())
        if len(row["diff"]) > left:
            row["diff"] = None  # `divebook diff` has it
        else:
            left -= len(row["diff"])
        told.append(row)
    return told


# Actions of workspaces, for steps: run a command, read and write files. They work in the workspace that is named.
#
# Their results are plain data, their failures those of any action: ``Retry`` and ``Catch`` hold for them.


# The parameters are capitalised because definitions spell them so.
async def _shell(Command: str, Timeout: float | None = None, Cwd: str | None = None, Check: bool = True) -> Any:  # noqa: FBT001, FBT002, N803
    """Run a command; return its exit code and what it printed. One that fails fails the step, unless Check is false."""
    found = await present_workspace().shell.execute(Command, timeout=Timeout, cwd=Cwd)
    if Check and found.exit_code:
        said = (found.stderr or found.stdout).strip()[-2000:]
        raise StepError(f"the command ended with exit code {found.exit_code}{f': {said}' if said else ''}")
    return {"exit_code": found.exit_code, "stdout": found.stdout, "stderr": found.stderr}


async def _read(Path: str) -> str:  # noqa: N803
    """Return the text of a file."""
    return await present_workspace().file_operator.read_file(Path)


async def _write(Path: str, Content: str) -> None:  # noqa: N803
    """Write a file whole; folders are made."""
    files = present_workspace().file_operator
    folder = Path.rpartition("/")[0]
    if folder:
        await files.mkdir(folder, parents=True)
    await files.write_file(Path, Content)


async def _list(Path: str = ".") -> list[str]:  # noqa: N803
    """Return the names in a folder."""
    return await present_workspace().file_operator.list_dir(Path)


async def _glob(Pattern: str) -> list[str]:  # noqa: N803
    """Return the paths that a pattern means, the newest first."""
    return await present_workspace().file_operator.glob(Pattern)


async def _delete(Path: str) -> None:  # noqa: N803
    """Remove a file or an empty folder."""
    await present_workspace().file_operator.delete(Path)


_FUNCTIONS: Mapping[str, tuple[Callable[..., Any], bool]] = {
    "Workspace.Shell": (_shell, False),
    "Workspace.Read": (_read, True),
    "Workspace.Write": (_write, True),
    "Workspace.List": (_list, True),
    "Workspace.Glob": (_glob, True),
    "Workspace.Delete": (_delete, False),
}
"""Each with whether it may simply be made again: from the files that it found, which are put back before that."""


WORKSPACE_ACTIONS: Mapping[str, Action] = {
    TAKE_OVER: StepAction(
        TAKE_OVER,
        take_over,
        "Take changed files over into the folder that the workspace is a copy of; a person chooses which.",
        workspace="",
    ),
    **{
        name: Action(name, function, (function.__doc__ or "").partition("\n")[0], idempotent=again, workspace="")
        for name, (function, again) in _FUNCTIONS.items()
    },
}
"""The actions, by name."""


# Script steps: sandboxed Python as one operation, whose clock and chance are operations of their own.


T = TypeVar("T")
ENTROPY_BITS = 128


def ask(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Await a coroutine on the engine's loop from the thread of a script."""
    return anyio.from_thread.run(call)


class ScriptHost:
    """Answers a script's questions to the outside, each as a recorded operation; called in the script's thread."""

    def __init__(self, context: StepContext, documents: DocumentRepository, printer: Callable[[str], None]) -> None:
        self._context = context
        self._documents = documents
        self._printer = printer
        self.mutations: list[catalog.Mutation] | None = None
        """Changes of variables, where the script may make some."""

    def mutate(self, change: str, key: Any, value: Any) -> None:
        """Note that the script ``set`` or ``delete``d a variable; it counts once the script has succeeded."""
        if self.mutations is None:
            raise StepError(f"state.{change} works in script steps only")
        if not isinstance(key, str) or not key:
            raise StepError(f"state.{change} needs the name of a variable, got {key!r}")
        key = normal_name(key)
        kept = self._context.storable(value, f"state.{key}")
        self.mutations.append(
            catalog.Mutation("set", key, kept) if change == "set" else catalog.Mutation("delete", key)
        )

    def now(self) -> float:
        """Return seconds since 1970."""
        return ask(self._context.now).timestamp()

    def entropy(self) -> bytes:
        """Return random bytes for the script's generator."""
        bits = ask(functools.partial(self._context.random_bits, ENTROPY_BITS, "seed"))
        return bits.to_bytes(ENTROPY_BITS // 8, "big")

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        ask(functools.partial(self._context.sleep, seconds))

    def document(self, path: str) -> dict[str, Any]:
        """Return a document as plain data."""

        async def read() -> dict[str, Any]:
            found = await self._documents.read(path)
            return {
                "path": found.path,
                "name": found.name,
                "content": found.content,
                "content_type": found.content_type,
            }

        found: dict[str, Any] = ask(
            functools.partial(self._context.operation, DOCUMENT_READ, {"path": path}, read, repeatable=True)
        )
        return found

    def printed(self, text: str) -> None:
        """Pass on what the script prints."""
        self._printer(text)


class ScriptStep:
    """Carries out script steps."""

    def __init__(self, interpreter: Interpreter, documents: DocumentRepository, printer: Callable[[str], None]) -> None:
        self._interpreter = interpreter
        self._documents = documents
        self._printer = printer

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the script; the value of its last expression is the step's value, and as text its output."""
        source = context.step.script
        if not source:
            raise StepError(f'no script specified for script activity step "{context.step.name}"')
        host = ScriptHost(context, self._documents, self._printer)
        manner = context.workflow.manner
        names = context.names
        seconds = context.step.timeout
        limits = DEFAULT_LIMITS if seconds is None else replace(DEFAULT_LIMITS, seconds=seconds)

        async def call() -> Any:
            host.mutations = [] if manner.writes_state else None
            try:
                result = await anyio.to_thread.run_sync(self._interpreter.run_script, source, names, host, limits)
            except ScriptError as error:
                error.raised_at = code_place(context.workflow, context.step, source, error.line or 1)
                raise
            kept = context.storable(result, "result")
            context.mutate(host.mutations or ())  # in one commit with the result: both are there, or none
            return kept

        try:
            result = await context.operation(SCRIPT_EXECUTION, {"script": source}, call, key="script", repeatable=True)
        except Exception as error:
            raise StepError(_explained(error)) from error
        if result is None:
            return Outcome(manner.null_text, None)
        return Outcome(value_text(result), result)


def _explained(error: Exception) -> str:
    if isinstance(error, ScriptSyntaxError | UndefinedVariableError):
        return f"the script cannot be read: {error}"
    if isinstance(error, ScriptError):
        return f"the script failed: {error}"
    return f"the script failed: {str(error) or type(error).__name__}"


# Conditions, items and templates from async code.
#
# They take some 30 microseconds, less than handing them to a thread costs, so they run on the engine's loop with a
# short limit; what exceeds it is pure, and is evaluated again in a thread with the full limit, so that nothing else is
# held up.


INLINE = Interpreter(Limits(seconds=0.05))
"""For the first try; a process of its own, started when first used."""


async def condition_holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Return the truth of a condition."""
    return await _evaluated(lambda interpreter: evaluate_condition(condition, names, interpreter))


async def items_of(items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
    """Return the items of `Each.Items` as written; see `evaluate_items`. Templates in a list are filled in."""
    if isinstance(items, list):
        items = (await filled({"items": items}, names))["items"]
    return await _evaluated(lambda interpreter: evaluate_items(items, names, interpreter, flatten=flatten))


async def render_texts(texts: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Return the texts with their ``${...}`` filled in."""
    return await _evaluated(lambda interpreter: render_templates(texts, names, interpreter))


async def filled(
    values: Mapping[str, Any], names: Mapping[str, Any], *, known: MutableMapping[int, Any] | None = None
) -> dict[str, Any]:
    """Return a mapping with its strings filled in at any depth; see `fill_values`."""
    if not is_to_be_filled(values):
        return dict(values)
    return await _evaluated(lambda interpreter: fill_values(values, names, interpreter, known))


async def _evaluated(evaluate: Callable[[Interpreter], T]) -> T:
    try:
        return evaluate(INLINE)
    except ScriptLimitError:
        return await anyio.to_thread.run_sync(evaluate, default_interpreter())


class ActionStep:
    """Carries out action steps with the actions that `find` has at that moment."""

    def __init__(self, find: Callable[[str], Action]) -> None:
        self._find = find

    async def __call__(self, context: StepContext) -> Outcome:
        """Call the action; its result is the step's value, and as text its output."""
        name = context.step.action
        parameters = context.step.parameters
        if not name:
            raise StepError(f'no action specified for action step "{context.step.name}"')
        action = self._find(name)
        keeps_text = context.workflow.manner.keeps_text
        parameters = await filled(parameters, context.names, known=context.known)
        try:
            if context.step.each is not None and context.step.each.rows is not None:
                frame = await filled({"rows": context.step.each.rows}, context.names, known=context.known)
                return await run_rows(context, action, parameters, frame["rows"])
            result = await call(context, action, parameters)
        except ApprovalDeniedError:
            raise
        except Exception as error:
            told = clean_text(error) if keeps_text else clean_failure(error)
            raise StepError(f"action {name} failed: {told}") from error
        text = value_text(result)
        return Outcome(text, text if keeps_text else result)
