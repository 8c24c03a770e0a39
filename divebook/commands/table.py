"""All commands of divebook by name, in the order of ``divebook --help`` and ``%dive help``."""

from __future__ import annotations

from divebook.commands import (
    control,
    definitions,
    driving,
    files,
    inspection,
    queues,
    serving,
    starting,
    store,
    tutorial,
    variants,
)
from divebook.commands.command import (
    CHANGE,
    DECLARED,
    DEFINE,
    FILES,
    LOOK,
    NOTEBOOK,
    PEOPLE,
    QUEUES,
    START,
    STORES,
    Command,
)

# Importing a module declares its commands.
MODULES = (starting, driving, variants, inspection, files, control, queues, serving, store, definitions, tutorial)

GROUPS = (START, LOOK, FILES, CHANGE, PEOPLE, QUEUES, DEFINE, STORES)

COMMANDS: dict[str, Command] = {
    command.name: command
    for group in GROUPS
    for module in MODULES
    for command in DECLARED.values()
    if command.group is group and command.function.__module__ == module.__name__
}
"""All commands by name."""


def spelled_in_shell(line: str) -> str:
    """Return a command line as a person types it in a shell."""
    return f"divebook {line}"


def spelled_in_notebook(line: str) -> str:
    """Return a command line as a person types it in a cell. A command or option of the shell alone is written with an
    exclamation mark, which runs it in a shell.

    >>> spelled_in_notebook("show exec_01k8"), spelled_in_notebook("check")
    ('%dive show exec_01k8', '!divebook check')
    """
    name, *words = line.split()
    command = COMMANDS.get(name)
    if command is None or NOTEBOOK not in command.interfaces:
        return f"!divebook {line}"
    spellings = {spelling for parameter in command.parameters_in(NOTEBOOK) for spelling in parameter.spellings}
    options = {word for word in words if word.startswith("--")} - {"--store"}
    return f"%dive {line}" if options <= spellings else f"!divebook {line}"
