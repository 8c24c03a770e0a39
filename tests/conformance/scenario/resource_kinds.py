"""The resources that cases about workspaces name by kind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from divebook.errors import WorkspaceNotEnteredError
from tests.conformance.scenario.places import Place


class Simple:
    """A resource with what cases look at."""

    def __init__(self, place: Place, told: Mapping[str, Any]) -> None:
        self.closed, self.setup_called = False, False
        self.tag = told.get("tag")
        self.data = told.get("data")
        self.text = told.get("text", "")
        self.calls: list[str] = []
        self.saw_operator = False
        self.first_found = False
        self.place = place

    def setup(self) -> None:
        """Note that it was set up."""
        self.setup_called = True
        self.calls.append("setup")

    def close(self) -> Any:
        """Note that it was closed."""
        self.closed = True
        if self.tag is not None:
            self.place.close_order.append(self.tag)


class AsyncClose(Simple):
    """Is closed in a coroutine."""

    async def close(self) -> None:
        """Note that it was closed."""
        await asyncio.sleep(0)
        super().close()


class CloseOnly:
    """Has nothing but `close`."""

    def __init__(self, _place: Place, _told: Mapping[str, Any]) -> None:
        self.closed = False

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class Resumable(Simple):
    """Has a state."""

    async def export_state(self) -> dict[str, Any]:
        """Return its data."""
        return {"data": self.data}

    async def restore_state(self, state: Mapping[str, Any]) -> None:
        """Take over data."""
        self.calls.append("restore")
        self.data = state.get("data", self.data)


class Instructed(Simple):
    """Says something to agents."""

    async def get_context_instructions(self) -> str:
        """Return its text."""
        return str(self.text)


class FailingInstructions(Simple):
    """Fails when it is to say something."""

    async def get_context_instructions(self) -> str:
        """Fail."""
        raise RuntimeError("no description")


class Toolset(Simple):
    """Offers a toolset."""

    def get_toolsets(self) -> list[Any]:
        """Return the one."""
        return [self.tag]

    def close(self) -> None:
        """Note that it was closed."""
        self.closed = True


class FailingClose(Simple):
    """Fails when it is closed."""

    def close(self) -> None:
        """Fail."""
        raise RuntimeError("does not close")


class FailingSetup(Simple):
    """Fails when it is set up."""

    def setup(self) -> None:
        """Fail."""
        raise RuntimeError("does not begin")


class Reader(Simple):
    """Reaches for files when it is closed."""

    def close(self) -> None:
        """Note whether there were files."""
        super().close()
        workspace = self.place.workspace
        try:
            self.saw_operator = workspace is not None and workspace.file_operator is not None
        except WorkspaceNotEnteredError:
            self.saw_operator = False


KINDS: Mapping[str, Callable[[Place, Mapping[str, Any]], Any]] = {
    "simple": Simple,
    "async_close": AsyncClose,
    "close_only": CloseOnly,
    "not_a_resource": lambda _place, _told: "plain text",
    "resumable": Resumable,
    "instructed": Instructed,
    "failing_instructions": FailingInstructions,
    "toolset": Toolset,
    "failing_close": FailingClose,
    "failing_setup": FailingSetup,
    "slow": Simple,
    "order": Resumable,
    "reader": Reader,
    "needs_first": Simple,
}
SLOW = 0.05
"""Seconds that the factory of the kind `slow` waits, so that a second one asks meanwhile."""


def factory(place: Place, told: Mapping[str, Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return a factory of a kind; its calls are counted by key once it has one, see `keyed`."""

    async def make(workspace: Any) -> Any:
        kind = told["$factory"]
        if kind == "slow":
            await asyncio.sleep(SLOW)
        made = KINDS[kind](place, told)
        if kind == "needs_first":
            made.first_found = workspace.resources.get("first") is not None
        place.last_resource = made
        return made

    return make


def keyed(place: Place, key: str, make: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[Any]]:
    """Return a factory that counts its calls."""

    async def counted(workspace: Any) -> Any:
        place.made[key] = place.made.get(key, 0) + 1
        return await make(workspace)

    return counted
