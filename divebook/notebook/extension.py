"""``%load_ext divebook`` and ``%unload_ext divebook``: magics, completion, and two changes to the text of cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from IPython.core.interactiveshell import InteractiveShell

from divebook.notebook import completion, inspection
from divebook.notebook.awaiting import await_magics, help_for_commands, runs_inside
from divebook.notebook.code_places import remember_cell
from divebook.notebook.dev_env_magic import DevEnvMagics
from divebook.notebook.magics import DiveMagics
from divebook.notebook.recovery import tell_on_load

Transform: TypeAlias = Callable[[list[str]], list[str]]


class AwaitWherePossible:
    """The change that lets cells await; bound to a shell, since not every cell can be changed."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Return the lines with long calls awaited, unless the shell would run them without a loop."""
        is_nested = runs_inside(InteractiveShell.run_code.__code__)
        return lines if is_nested or not self._shell.autoawait else await_magics(lines)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics, and say which executions were interrupted; loading twice is the same as once."""
    _take_away(shell)
    shell.register_magics(DiveMagics, DevEnvMagics)
    shell.input_transformers_cleanup.append(help_for_commands)
    shell.input_transformers_post.append(AwaitWherePossible(shell))
    completion.install(shell)
    inspection.install(shell)
    shell.events.register("pre_run_cell", remember_cell)
    tell_on_load()


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take away all that loading added, and close the session: runs that have not ended can be resumed later."""
    from divebook.notebook.session import close_session  # loading the extension must be quick

    _take_away(shell)
    close_session()


def _take_away(shell: InteractiveShell) -> None:
    _remove(shell.input_transformers_cleanup, lambda transform: transform is help_for_commands)
    _remove(shell.input_transformers_post, lambda transform: isinstance(transform, AwaitWherePossible))
    completion.remove(shell)
    inspection.remove(shell)
    if remember_cell in shell.events.callbacks["pre_run_cell"]:
        shell.events.unregister("pre_run_cell", remember_cell)
    shell.configurables[:] = [
        found for found in shell.configurables if not isinstance(found, DiveMagics | DevEnvMagics)
    ]
    for kind in (DiveMagics, DevEnvMagics):
        shell.magics_manager.registry.pop(kind.__name__, None)
    for magics in shell.magics_manager.magics.values():
        magics.pop("dive", None)
        magics.pop("dev_env", None)


def _remove(transforms: list[Transform], is_ours: Callable[[Transform], bool]) -> None:
    transforms[:] = [transform for transform in transforms if not is_ours(transform)]
