"""Messages to the pages that show a kernel's notebook, outside of any cell: what the JupyterLab extension listens to.

The kernel opens a comm; a page that was loaded later finds it by asking the kernel for the comms of its target
(`widgets/src/lab/lines.ts`). Pages without the extension close their end and hear nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from divebook.text.redaction import shared


class KernelLine:
    """A comm of a kernel's own; what is sent on it has no secrets."""

    target: ClassVar[str]
    """By which the extension knows what it is about."""

    def __init__(self) -> None:
        from comm import create_comm

        self.comm = create_comm(target_name=self.target)

    def send(self, content: Mapping[str, Any], buffers: Any = None) -> None:
        """Send a message to all pages, without secrets."""
        self.comm.send(data=shared().value(content), buffers=buffers)

    def on_msg(self, callback: Callable[[object, Any, object], None]) -> None:
        """Call back with each message of a page, as widgets do."""
        self.comm.on_msg(lambda message: callback(self, message["content"]["data"], message.get("buffers")))

    def close(self) -> None:
        """Let the pages go."""
        self.comm.close()
