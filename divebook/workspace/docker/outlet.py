"""The way out of one container: the proxy outside, its socket in a folder that is mounted, and the door inside."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable

from divebook.workspace.egress import door
from divebook.workspace.egress.answers import EgressAnswer
from divebook.workspace.egress.proxy import Egress

INSIDE = "/divebook-egress"
PORT = 3128
_NAMES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class Outlet:
    """A proxy, and the folder with its socket.

    Parameters
    ----------
    proxy
        Answers what comes.
    """

    def __init__(self, proxy: Egress) -> None:
        self._proxy = proxy
        self.folder: str | None = None
        """On this machine, to be mounted at `INSIDE`."""

    @classmethod
    def to(cls, allow: Iterable[str], told: Callable[[EgressAnswer], None]) -> Outlet:
        """Return one that leads to some hosts; see `Egress`."""
        return cls(Egress(allow, told=told))

    async def open(self) -> str:
        """Listen; return the folder that is to be mounted."""
        self.folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="divebook-egress-")
        await asyncio.to_thread(shutil.copy, door.__file__, f"{self.folder}/door.py")
        await self._proxy.start(f"{self.folder}/proxy")
        return self.folder

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead programs to the door; they hold the token."""
        address = f"http://divebook:{self._proxy.token}@127.0.0.1:{PORT}"
        return dict.fromkeys(_NAMES, address)

    @property
    def command(self) -> list[str]:
        """What runs the door inside; the image must have Python."""
        return ["python3", "-I", f"{INSIDE}/door.py", f"{INSIDE}/proxy", str(PORT)]

    async def close(self) -> None:
        """End the proxy; twice is once."""
        await self._proxy.close()
        if self.folder is not None:
            await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder = None
