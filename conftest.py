"""Isolation of tests, also of the examples in docstrings: each starts without the workflows, actions, tools and stores
that another one has registered.
"""

import sys

import pytest

from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.definitions.tools import REGISTERED_TOOLS
from divebook.steps.actions import REGISTERED
from divebook.stores.registry import _stores

_REGISTERED_AT_IMPORT = {}
"""By module of tests, what its decorators registered when it was imported: contents for each of `_REGISTRIES`."""
_REGISTRIES = (WORKFLOW_FUNCTIONS, REGISTERED, REGISTERED_TOOLS)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Keep what a module registers at import for its own tests, so that no other module's tests see it."""
    before = [dict(registry) for registry in _REGISTRIES]
    report = yield
    registered = [
        {name: entry for name, entry in registry.items() if known.get(name) is not entry}
        for registry, known in zip(_REGISTRIES, before, strict=True)
    ]
    if any(registered):
        _REGISTERED_AT_IMPORT[collector.nodeid] = registered
    _restore(before)
    return report


@pytest.fixture(autouse=True, scope="module")
def _functions_of_this_module():
    """Forget what fixtures of a module have made, which last longer than a test."""
    before = [dict(registry) for registry in _REGISTRIES]
    yield
    _restore(before)


@pytest.fixture(autouse=True)
def _functions_of_this_test(request):
    """Forget the workflows and actions that a test, or an example of the documentation, has made by decorators."""
    before = [dict(registry) for registry in _REGISTRIES]
    entries = _REGISTERED_AT_IMPORT.get(request.node.nodeid.partition("::")[0], [{} for _ in _REGISTRIES])
    for registry, registered in zip(_REGISTRIES, entries, strict=True):
        registry.update(registered)
    yield
    _restore(before)


_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def _main_stays():
    """Fail where a test leaves another `__main__`, as IPython makes one: processes are spawned by what it says."""
    yield
    left, sys.modules["__main__"] = sys.modules["__main__"], _MAIN
    assert left is _MAIN


@pytest.fixture(autouse=True)
def _stores_of_this_test():
    """Close the shared stores that a test has opened: a process keeps them, and has only so many open files."""
    before = dict(_stores.items())  # `dict(_stores)` fails where one is collected meanwhile
    yield
    for key, opened in list(_stores.items()):
        if key not in before:
            del _stores[key]
            opened.close()


def _restore(before):
    for registry, known in zip(_REGISTRIES, before, strict=True):
        registry.clear()
        registry.update(known)
