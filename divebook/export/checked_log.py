"""What the tests call that `divebook.export.as_test` writes: a definition driven against a log in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from divebook.config import load, with_documents
from divebook.config.modules import import_actions, take_in_held
from divebook.documents import FileDocuments
from divebook.environment import Environment
from divebook.replay.verify import Verification
from divebook.steps.actions import Action
from divebook.store import MemoryStore
from divebook.store.jsonl import import_, read
from divebook.store.lines import LogFile
from divebook.workflow.definition import Definitions
from divebook.workflow.tools import ToolFunction, ToolHints

Options: TypeAlias = Mapping[str, Mapping[str, Any]]
"""By name, what is said of actions or tools."""


def verified_log(
    log: str | Path,
    definitions: str | Path | None = None,
    modules: Sequence[str | Path] = (),
    actions: Options | None = None,
    tools: Options | None = None,
) -> Verification:
    """Drive a definition against the log in a file; nothing is called, and no key or network is needed.

    Parameters
    ----------
    log
        The file, of JSON lines.
    definitions
        A file or folder with the workflow and its agents; by default the workflow is that of the log.
    modules
        Modules, or files of Python, that hold workflow functions and agents.
    actions, tools
        By name, the options of the actions that steps call, and of the tools that agents name: for tools also what
        their models see, `description` and `schema`. They themselves are answered from the log, and not needed.

    Raises
    ------
    SetupError
        A module cannot be imported here.
    """
    held = [value for module in modules for value in vars(import_actions(str(module), "the tested module")).values()]
    named = None if definitions is None else read_from(definitions)
    return verified_against(read(log), named, held, actions or {}, tools or {})


def read_from(path: str | Path) -> Definitions:
    """Return the definitions of a file or folder, with their content in them."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return with_documents(load(Path(path)), folder, FileDocuments())


def verified_against(
    log: LogFile, definitions: Definitions | None, held: Iterable[Any], actions: Options, tools: Options
) -> Verification:
    """Drive a definition against a log, with the agents and workflow functions among the things that modules hold."""
    answered = [Action(name, answered_from_the_log, **options) for name, options in actions.items()]
    seen = [_tool(name, **options) for name, options in tools.items()]
    with Environment(store=MemoryStore(), actions=answered, tools=seen) as environment:
        take_in_held(environment, [*held])
        if definitions is not None:
            environment.define(definitions)
        execution = environment.execution(import_(log, environment.store))
        own = {flow.name: flow for flow in environment.own_workflows}.get(execution.workflow.name)
        return environment.verify(execution.id, own, any_code=True)


def _tool(name: str, hints: Mapping[str, bool], **options: Any) -> ToolFunction:
    return ToolFunction(name, answered_from_the_log, hints=ToolHints(**hints), **options)


async def answered_from_the_log(*_: Any, **__: Any) -> NoReturn:
    """Stand for an action or a tool, which is not called where the log has its results."""
    raise AssertionError("an action or a tool was called while a log was driven again")
