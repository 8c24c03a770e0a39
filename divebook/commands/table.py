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
    variants,
)
from divebook.commands.command import (
    CHANGE,
    DECLARED,
    DEFINE,
    FILES,
    LOOK,
    PEOPLE,
    QUEUES,
    START,
    STORES,
    Command,
)

# Importing a module declares its commands.
MODULES = (starting, driving, variants, inspection, files, control, queues, serving, store, definitions)

GROUPS = (START, LOOK, FILES, CHANGE, PEOPLE, QUEUES, DEFINE, STORES)

COMMANDS: dict[str, Command] = {
    command.name: command
    for group in GROUPS
    for module in MODULES
    for command in DECLARED.values()
    if command.group is group and command.function.__module__ == module.__name__
}
"""All commands by name."""
