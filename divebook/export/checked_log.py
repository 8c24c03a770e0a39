"""What the tests call that `divebook.export.as_test` writes: a definition driven against a log in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from divebook.agents.unasked import unasked
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


def verified_log(
    log: str | Path,
    definitions: str | Path | None = None,
    modules: Sequence[str | Path] = (),
    actions: Mapping[str, Mapping[str, Any]] | None = None,
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
    actions
        By name, the options of the actions that steps call. They themselves are answered from the log, and not needed.

    Raises
    ------
    SetupError
        A module cannot be imported here.
    """
    held = [value for module in modules for value in vars(import_actions(str(module), "the tested module")).values()]
    return verified_against(read(log), None if definitions is None else read_from(definitions), held, actions or {})


def read_from(path: str | Path) -> Definitions:
    """Return the definitions of a file or folder, with their content in them."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    return with_documents(load(Path(path)), folder, FileDocuments())


def verified_against(
    log: LogFile, definitions: Definitions | None, held: Iterable[Any], actions: Mapping[str, Mapping[str, Any]]
) -> Verification:
    """Drive a definition against a log, with the agents and workflow functions among the things that modules hold."""
    answered = [Action(name, _answered_from_the_log, **options) for name, options in actions.items()]
    with Environment(store=MemoryStore(), actions=answered) as environment:
        take_in_held(environment, [*held])
        if definitions is not None:
            environment.define(definitions)
        for agent in environment.agents.values():
            environment.add_agent(unasked(agent), replace=True)
        execution = environment.execution(import_(log, environment.store))
        own = {flow.name: flow for flow in environment.own_workflows}.get(execution.workflow.name)
        return environment.verify(execution.id, own, any_code=True)


async def _answered_from_the_log(**_: Any) -> NoReturn:
    raise AssertionError("an action was called while a log was driven again")
