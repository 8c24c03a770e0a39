"""Plugins: objects that installed packages provide by entry points, and that divebook loads when a name needs them.

A package names its objects in its ``pyproject.toml``::

    [project.entry-points."divebook.stores"]
    lines = "acme.stores:open_lines"

``open_store("lines://runs")`` then calls ``acme.stores.open_lines``. A plugin is looked up only for a name that neither
divebook nor this process defines. Therefore ``import divebook`` does not scan packages, and a plugin cannot replace
anything. A plugin is imported when its name is used. If a plugin is broken, an error that names its distribution and
entry point is raised at that moment. Nothing else is affected.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

from divebook.errors import DivebookError, SetupError
from divebook.text.arguments import describe
from divebook.text.protocols import protocol_problems

STORES = "divebook.stores"
"""Group of functions that open the store at a URL, by scheme."""
TOOLS = "divebook.tools"
"""Group of tools for agents, by name: functions, or results of `@tool`."""
STEP_TYPES = "divebook.step_types"
"""Group of handlers of steps, by step type: coroutine functions from a `StepContext` to an `Outcome`."""
WORKSPACES = "divebook.workspaces"
"""Group of functions that make a workspace, by kind: they get the folder, the definition and options by name."""
NOTIFIERS = "divebook.notifiers"
"""Group of functions that make a notification hook for an address, by scheme."""
VALUES = "divebook.values"
"""Group of recorded forms, by the name of a class (``module.qualname``): pairs of functions to and from plain data."""

GROUPS: Mapping[str, tuple[Any, ...]] = {
    STORES: (Callable[[str], Any],),
    TOOLS: (),
    STEP_TYPES: (Callable[[Any], Awaitable[Any]],),
    WORKSPACES: (Callable[[Any, Any, Any], Any],),
    NOTIFIERS: (Callable[[str], Any],),
    VALUES: (Callable[[Any], Any], Callable[[Any], Any]),
}
"""For each group the types of its functions. The tools of agents have any parameters."""


class Plugin(NamedTuple):
    """Entry point of an installed package, not loaded."""

    group: str
    name: str
    target: str
    """Place of the object, ``module:attribute``."""
    distribution: str
    """Name and version of the package."""

    @property
    def full_name(self) -> str:
        """Description for errors, with all that is needed to find the package."""
        return f"the plugin {self.name!r} of {self.distribution} (entry point {self.target} in {self.group})"

    def load(self) -> Any:
        """Import the plugin, and return its object.

        Raises
        ------
        SetupError
            The import raised an error, or the object has the wrong form.
        """
        from importlib import metadata  # takes milliseconds, and few processes need it

        try:
            value = metadata.EntryPoint(self.name, self.target, self.group).load()
        # The import runs code of the package, which may raise anything. An interrupt by the user passes.
        except (Exception, SystemExit) as error:
            raise SetupError(f"{self.full_name} cannot be loaded: {type(error).__name__}: {error}") from error
        problems = _problems(self.group, value)
        if problems:
            raise SetupError(
                f"{self.full_name} has the wrong form: {'; '.join(problems)}. See the reference, 'extending'"
            )
        return value


def find(group: str, name: str) -> Any | None:
    """Return the object of the plugin with a name. It is loaded only once. Return None if no installed package has such
    a plugin.

    Raises
    ------
    SetupError
        The plugin cannot be loaded or has the wrong form, or several packages have a plugin with this name.
    """
    if (group, name) in _LOADED:
        return _LOADED[group, name]
    plugins = _index().get((group, name), ())
    # A package may have been installed meanwhile. Values are too many to look again for each.
    if not plugins and group != VALUES:
        _scan.cache_clear()
        plugins = _index().get((group, name), ())
    if not plugins:
        return None
    if len(plugins) > 1:
        raise SetupError(_ambiguous(plugins))
    _LOADED[group, name] = plugins[0].load()
    return _LOADED[group, name]


def distribution_of(group: str, name: str) -> str | None:
    """Return name and version of the package that has a plugin, without loading it; None if there is none."""
    plugins = _index().get((group, name), ())
    return plugins[0].distribution if plugins else None


def names(group: str) -> list[str]:
    """Return the names of the plugins of a group, sorted. Nothing is imported."""
    return sorted(name for other, name in _index() if other == group)


class PluginStatus(NamedTuple):
    """A plugin, and the reason why it cannot be used; None if it can be used."""

    plugin: Plugin
    error: str | None


def check_plugins() -> list[PluginStatus]:
    """Load the plugins of all installed packages, and return the state of each, sorted by group and name."""
    _scan.cache_clear()
    states = []
    for _, plugins in sorted(_index().items()):
        for plugin in plugins:
            error = _ambiguous(plugins) if len(plugins) > 1 else None
            try:
                plugin.load()
            except DivebookError as problem:
                error = str(problem)
            states.append(PluginStatus(plugin, error))
    return states


_LOADED: dict[tuple[str, str], Any] = {}
"""Objects of the plugins that were used, by group and name."""


def _index() -> Mapping[tuple[str, str], tuple[Plugin, ...]]:
    # Another path, as after an activation of an environment, is another set of packages.
    return _scan(tuple(sys.path))


@functools.lru_cache(maxsize=1)
def _scan(path: tuple[str, ...]) -> Mapping[tuple[str, str], tuple[Plugin, ...]]:
    from importlib import metadata

    del path  # the key of the cache
    index: dict[tuple[str, str], tuple[Plugin, ...]] = {}
    for group in GROUPS:
        for entry in metadata.entry_points(group=group):
            owner = entry.dist
            distribution = "an unknown package" if owner is None else f"{owner.metadata['Name']} {owner.version}"
            plugin = Plugin(group, entry.name, entry.value, distribution)
            same_name = index.get((group, entry.name), ())
            # A package that is found twice on the path, as in an editable installation, is one package.
            if plugin not in same_name:
                index[group, entry.name] = (*same_name, plugin)
    return index


def _problems(group: str, value: Any) -> list[str]:
    types = GROUPS[group]
    if group == TOOLS:
        is_tool = callable(getattr(value, "function", value)) and not isinstance(value, type)
        return [] if is_tool else [f"a tool must be a function, not {describe(value)}"]
    if len(types) == 1:
        return protocol_problems(value, types[0])
    if not isinstance(value, tuple) or len(value) != len(types):
        return [f"expected a pair of functions (to plain data, from plain data), not {describe(value)}"]
    return [problem for part, kind in zip(value, types, strict=True) for problem in protocol_problems(part, kind)]


def _ambiguous(plugins: Iterable[Plugin]) -> str:
    (first, *_) = plugins = tuple(plugins)
    owners = " and ".join(f"{plugin.distribution} ({plugin.target})" for plugin in plugins)
    return f"several packages have a plugin {first.name!r} in {first.group}: {owners}. Uninstall all but one"
