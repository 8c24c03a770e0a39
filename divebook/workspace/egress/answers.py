"""What the proxy has answered, as others are told of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EgressAnswer:
    """What the proxy has answered: `refused` is None where the connection was made, otherwise why not."""

    host: str
    port: int
    refused: str | None = None
