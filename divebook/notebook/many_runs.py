"""One thing done with many runs at once, in notebooks and scripts; what fails for one is a row of the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from divebook.bounds import Bounds
from divebook.config.many import Verb, handle_each
from divebook.environment import Environment
from divebook.starting import StartOptions
from divebook.what_ifs import GivenChange, WhatIfOptions

if TYPE_CHECKING:
    import pandas as pd


class ManyRuns(ABC):
    """Executions with which one thing is done; each method returns `divebook.analysis.handled.handled_frame`."""

    environment: Environment

    @abstractmethod
    def ids(self) -> Iterable[str]:
        """Return which they are."""

    def resume(self, bounds: Bounds | Mapping[str, Any] | None = None, *, wait: bool = True) -> pd.DataFrame:
        """Take each up again where its log ends, all at once; `wait` until they have ended or have to wait."""
        return self.handle(lambda environment, name: environment.resume(name, bounds), wait=wait)

    def cancel(self) -> pd.DataFrame:
        """Cancel each; they can be resumed."""
        return self.handle(lambda environment, name: environment.cancel(name))

    def tag(self, *tags: str) -> pd.DataFrame:
        """Give each of them tags."""
        return self.handle(lambda environment, name: environment.tag(name, *tags))

    def untag(self, *tags: str) -> pd.DataFrame:
        """Take tags away from each of them."""
        return self.handle(lambda environment, name: environment.untag(name, *tags))

    def note(self, text: str) -> pd.DataFrame:
        """Write a note beside each of them."""
        return self.handle(lambda environment, name: environment.note(name, text))

    def label(self, **labels: Any) -> pd.DataFrame:
        """Give each of them labels; None takes one away."""
        return self.handle(lambda environment, name: environment.label(name, **labels))

    def fork(
        self, at: int | None = None, change: GivenChange = None, *, wait: bool = True, **options: Unpack[StartOptions]
    ) -> pd.DataFrame:
        """Start a run from each that shares its events up to one; see `divebook.Environment.fork`."""
        return self.handle(lambda environment, name: environment.fork(name, at, change, **options), wait=wait)

    def what_if(
        self, change: GivenChange = None, at: int | None = None, **options: Unpack[WhatIfOptions]
    ) -> pd.DataFrame:
        """Go through each once more with one change, one after the other; see `divebook.Environment.what_if`."""
        return self.handle(lambda environment, name: environment.what_if(name, change, at, **options).execution)

    def handle(self, verb: Verb, *, wait: bool = True) -> pd.DataFrame:
        """Do anything with each of them: `verb` gets the environment and an id."""
        from divebook.analysis.handled import handled_frame

        return handled_frame(handle_each(self.environment, self.ids(), verb, wait=wait))
