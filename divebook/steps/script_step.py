"""Script steps: sandboxed Python code as one operation. Each use of the clock, of random numbers or of documents in the
script is a further operation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio.from_thread
import anyio.to_thread

from divebook.documents import DocumentRepository
from divebook.engine.operations import DOCUMENT_READ, SCRIPT_EXECUTION
from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, StepError, UndefinedVariableError
from divebook.events import catalog
from divebook.runtime.context import StepContext
from divebook.runtime.step import Outcome, code_place
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
from divebook.text.arguments import normal_name

T = TypeVar("T")


ENTROPY_BITS = 128


class ScriptStep:
    """Handler of script steps, which run sandboxed Python code of a definition."""

    def __init__(self, interpreter: Interpreter, documents: DocumentRepository, printer: Callable[[str], None]) -> None:
        self._interpreter = interpreter
        self._documents = documents
        self._printer = printer

    async def __call__(self, context: StepContext) -> Outcome:
        """Run the script of the step in the sandbox. The value of the script's last expression is the value of the
        step; its text is the output.
        """
        source = context.step.script
        if not source:
            raise StepError(f'no script specified for script activity step "{context.step.name}"')
        host = ScriptHost(context, self._documents, self._printer)
        manner = context.workflow.manner
        names = context.names
        seconds = context.step.timeout
        # The time limit of the step replaces the default of the sandbox.
        limits = DEFAULT_LIMITS if seconds is None else replace(DEFAULT_LIMITS, seconds=seconds)

        async def call() -> Any:
            # Reset for each attempt: a failed attempt changes no variables.
            host.mutations = [] if manner.writes_state else None
            try:
                result = await anyio.to_thread.run_sync(self._interpreter.run_script, source, names, host, limits)
            except ScriptError as error:
                error.raised_at = code_place(context.workflow, context.step, source, error.line or 1)
                raise
            stored = context.storable(result, "result")
            context.mutate(host.mutations or ())  # recorded in one commit with the result
            return stored

        try:
            result = await context.operation(SCRIPT_EXECUTION, {"script": source}, call, key="script", repeatable=True)
        except Exception as error:
            raise StepError(_explanation(error)) from error
        if result is None:
            return Outcome(manner.null_text, None)
        return Outcome(value_text(result), result)


def ask(call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine on the engine's event loop, called from the thread in which a script runs. Block until the
    coroutine has ended, and return its result.
    """
    return anyio.from_thread.run(call)


class ScriptHost:
    """Functions of the host that a sandboxed script can call: clock, random numbers, documents, variables and printing.
    They run in the thread of the script.

    The clock, random numbers, sleeping and documents are recorded operations.
    """

    def __init__(self, context: StepContext, documents: DocumentRepository, printer: Callable[[str], None]) -> None:
        self._context = context
        self._documents = documents
        self._printer = printer
        self.mutations: list[catalog.Mutation] | None = None
        """Changes of variables; None if the script may not make any."""

    def mutate(self, change: str, key: Any, value: Any) -> None:
        """Remember that the script changed a variable (`change` is ``set`` or ``delete``). The change takes effect when
        the script has succeeded.
        """
        if self.mutations is None:
            raise StepError(f"state.{change} works in script steps only")
        if not isinstance(key, str) or not key:
            raise StepError(f"state.{change} needs the name of a variable, got {key!r}")
        key = normal_name(key)
        stored = self._context.storable(value, f"state.{key}")
        self.mutations.append(
            catalog.Mutation("set", key, stored) if change == "set" else catalog.Mutation("delete", key)
        )

    def now(self) -> float:
        """Return the current time in seconds since 1970, as a recorded operation."""
        # Called in the thread of the script, like all methods of this class.
        return ask(self._context.now).timestamp()

    def entropy(self) -> bytes:
        """Return random bytes as a recorded operation. They are the seed of the script's random generator."""
        bits = ask(functools.partial(self._context.random_bits, ENTROPY_BITS, "seed"))
        return bits.to_bytes(ENTROPY_BITS // 8, "big")

    def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds, as a timer that the log records."""
        ask(functools.partial(self._context.sleep, seconds))

    def document(self, path: str) -> dict[str, Any]:
        """Read a document as a recorded operation; return its path, name, content and content type."""

        async def read() -> dict[str, Any]:
            document = await self._documents.read(path)
            return {
                "path": document.path,
                "name": document.name,
                "content": document.content,
                "content_type": document.content_type,
            }

        result: dict[str, Any] = ask(
            functools.partial(self._context.operation, DOCUMENT_READ, {"path": path}, read, repeatable=True)
        )
        return result

    def printed(self, text: str) -> None:
        """Pass the text that a script printed to the environment's output function (printer)."""
        self._printer(text)


def _explanation(error: Exception) -> str:
    if isinstance(error, ScriptSyntaxError | UndefinedVariableError):
        return f"the script cannot be read: {error}"
    if isinstance(error, ScriptError):
        return f"the script failed: {error}"
    return f"the script failed: {str(error) or type(error).__name__}"


# --- evaluation ------------------------------------------------------------------------------------------------------
#
# Evaluation of conditions, items and templates in asynchronous code.
#
# An evaluation takes about 30 microseconds, less than a switch to a thread. It therefore runs on the engine's event
# loop, with a short time limit. Expressions are pure, so one that exceeds the limit is evaluated again in a thread with
# the full limit. Other paths are not delayed meanwhile.


INLINE = Interpreter(Limits(seconds=0.05))
"""Interpreter for the first try. Its process is started at the first use."""


async def condition_holds(condition: str, names: Mapping[str, Any]) -> bool:
    """Evaluate the condition of an edge or another condition of a definition. Return True if its value is true."""
    return await _evaluate(lambda interpreter: evaluate_condition(condition, names, interpreter))


async def items_of(items: Any, names: Mapping[str, Any], *, flatten: bool) -> list[Any] | dict[str, Any]:
    """Evaluate the `Items` of an `Each` loop. Return the loop items as a list or as a mapping by key (see
    `evaluate_items`). Templates inside a list of items are rendered first.
    """
    if isinstance(items, list):
        items = (await filled({"items": items}, names))["items"]
    return await _evaluate(lambda interpreter: evaluate_items(items, names, interpreter, flatten=flatten))


async def render_texts(texts: Sequence[str], names: Mapping[str, Any]) -> list[str]:
    """Render the templates ``${...}`` in several texts; return the rendered texts in order."""
    return await _evaluate(lambda interpreter: render_templates(texts, names, interpreter))


async def filled(
    values: Mapping[str, Any], names: Mapping[str, Any], *, cache: MutableMapping[int, Any] | None = None
) -> dict[str, Any]:
    """Evaluate all templates and ``$(...)`` values in the strings of a mapping, at any depth. Return a new mapping with
    the results; see `fill_values`.
    """
    if not is_to_be_filled(values):
        return dict(values)
    return await _evaluate(lambda interpreter: fill_values(values, names, interpreter, cache))


async def _evaluate(evaluate: Callable[[Interpreter], T]) -> T:
    # Only the time limit of the first try is short. Other errors are final.
    try:
        return evaluate(INLINE)
    except ScriptLimitError:
        return await anyio.to_thread.run_sync(evaluate, default_interpreter())
