"""All commands of divebook by name, in the order of ``divebook --help`` and ``%dive help``."""

from __future__ import annotations

from divebook.commands import files, inspection
from divebook.commands.command import DECLARED, Command

# Importing a module declares its commands.
MODULES = (inspection, files)

COMMANDS: dict[str, Command] = {
    command.name: command
    for module in MODULES
    for command in DECLARED.values()
    if command.function.__module__ == module.__name__
}
"""All commands by name."""
