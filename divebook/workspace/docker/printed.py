"""What a command in a container prints, on its way to where it is kept and to who listens."""

from __future__ import annotations

import codecs

from divebook.workspace.commands.output import KeptOutput
from divebook.workspace.commands.running import STDERR, STDOUT, Listen

_MOST_BEGINNING = 2000


class Printed:
    """Takes what comes of both streams."""

    def __init__(self, out: KeptOutput, err: KeptOutput, listen: Listen | None, undecodable: str = "replace") -> None:
        self._kept, self._listen = (out, err), listen
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = (make(errors=undecodable), make(errors=undecodable))
        self.beginning = b""
        """Of what it printed, where the engine says why it cannot begin."""

    def feed(self, data: bytes, *, is_error: bool) -> None:
        """Take in what came of a stream."""
        if len(self.beginning) < _MOST_BEGINNING:
            self.beginning += data[:_MOST_BEGINNING]
        self._kept[is_error].feed(data)
        self._hand_on(data, is_error=is_error)

    def finish(self) -> None:
        """Hand on what is left of a stream that ended within a letter."""
        for is_error in (False, True):
            self._hand_on(b"", is_error=is_error, final=True)

    def _hand_on(self, data: bytes, *, is_error: bool, final: bool = False) -> None:
        if self._listen is not None and (text := self._decoders[is_error].decode(data, final=final)):
            self._listen(STDERR if is_error else STDOUT, text)
