"""A scripted model whose calls are noted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.agents import ScriptedModel


class OverheardModel(ScriptedModel):
    """A scripted model whose calls are noted, in order, in a list it shares with others."""

    def __init__(self, agent: str, overheard: list[Mapping[str, Any]], spec: Mapping[str, Any]) -> None:
        super().__init__(list(spec.get("replies", ())), usage=spec.get("usage", {}), error=spec.get("error"))
        self._agent, self._overheard = agent, overheard

    def reply(self, prompt: str) -> str:
        """Note the call and answer it."""
        self._overheard.append({"agent": self._agent, "prompt": prompt})
        return super().reply(prompt)
