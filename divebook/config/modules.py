"""Python modules and files whose agents, workflows and actions an environment uses."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from divebook.agents import Agent
from divebook.environment.environment import Environment
from divebook.errors import SetupError
from divebook.workflow.definition import Workflow
from divebook.workflow.resources import ScheduleDefinition
from divebook.workflow.servers import MCPServerDefinition


def add_values(environment: Environment, values: Iterable[Any]) -> None:
    """Add definitions among the values of a module or notebook to an environment.

    The contents of environments are added first, so that single agents and workflows replace those of the same names.
    """
    for value in values:
        if isinstance(value, Environment):
            environment.take_in(value)
    for value in values:
        if isinstance(value, Agent):
            environment.add_agent(value, replace=True)
        elif isinstance(value, Workflow):
            environment.add_workflow(value, replace=True)
        elif isinstance(value, ScheduleDefinition):
            environment.add_schedule(value, replace=True)
        elif isinstance(value, MCPServerDefinition):
            environment.add_server(value, replace=True)


def import_actions(source: str, what: str = "actions") -> ModuleType:
    """Import a module or Python file, which registers its ``@action`` and ``@workflow`` functions.

    Parameters
    ----------
    what
        The purpose of the module, for errors.

    Raises
    ------
    SetupError
        The import raises any exception.
    """
    try:
        if source.endswith(".py"):
            return _import_file(Path(source))
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        return importlib.import_module(source)
    except Exception as error:  # code of users may raise anything
        raise SetupError(f"{what} {source!r} cannot be imported: {type(error).__name__}: {error}") from error


def _import_file(path: Path) -> ModuleType:
    # A prefix, so that a file called json.py does not take the place of json.
    spec = importlib.util.spec_from_file_location(f"divebook_actions_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # as `python FILE` does
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
