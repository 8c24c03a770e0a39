"""Why a variable has its value: which event, step, calls, variables and inputs made it, all the way back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from divebook import extensions
from divebook.events import Event, catalog
from divebook.replay.origin import Origin

if TYPE_CHECKING:
    import pandas as pd


class Provenance:
    """Where one value came from; printed it says so in words, in a notebook it unfolds.

    `divebook.Environment.why` and ``run.why("x")`` return it.

    Parameters
    ----------
    root
        The value that was asked about.
    known
        All values and choices of the log, by number.
    log
        The events, from the first on; they are looked at when something is shown.
    at
        The event at which it was asked.

    Examples
    --------
    >>> from divebook import Environment, Step, Workflow
    >>> steps = [Step("a", script="inputs.n + 1", store="x"), Step("b", script="state.x * 2", store="y")]
    >>> environment = Environment(store="memory:", workflows=[Workflow("sum", steps, inputs=["n"])])
    >>> why = environment.why(environment.start("sum", {"n": 1}).wait().id, "y")
    >>> print(why)
    y = 4: step b at event 11 (script)
      x = 2: step a at event 6 (script)
        inputs.n = 1: given at the start
    >>> [origin.name for origin in why.origins], why.inputs
    (['y', 'x', 'inputs.n'], ['n'])
    """

    def __init__(self, root: Origin, known: Sequence[Origin], log: Sequence[Event], at: int) -> None:
        self.root, self.at = root, at
        self._known, self._log = known, log
        self.depths = self._reached()
        """Numbers of all that it came from, itself first, with how many steps back that is."""

    def _reached(self) -> dict[int, int]:
        root, known = self.root, self._known
        depths = {root.number: 0}
        waiting = list(root.causes)
        depth = 0
        while waiting:
            depth += 1
            following: list[int] = []
            for number in waiting:
                if number not in depths:
                    depths[number] = depth
                    origin = known[number]
                    following += origin.reads
                    following += origin.because
            waiting = following
        return depths

    @property
    def name(self) -> str:
        """The variable; ``inputs.NAME``; ``state``."""
        return self.root.name

    def origin(self, number: int) -> Origin:
        """Return a value or choice that it came from."""
        return self.root if number == self.root.number else self._known[number]

    @property
    def origins(self) -> list[Origin]:
        """Everything that it came from, itself first, then what that came from, and so on."""
        return [self.origin(number) for number in self.depths]

    @property
    def inputs(self) -> list[str]:
        """The inputs that it depends on."""
        return sorted({origin.name.partition(".")[2] for origin in self.origins if origin.kind == "input"})

    @property
    def variables(self) -> list[str]:
        """The other variables that it depends on."""
        found = {origin.name for origin in self.origins if origin.kind in ("set", "deleted", "kept")}
        return sorted(found - {self.name})

    @property
    def steps(self) -> list[str]:
        """The steps that had a part in it, the latest first."""
        told = sorted(self.origins, key=lambda origin: -origin.sequence)
        return list(dict.fromkeys(origin.step for origin in told if origin.step))

    def value(self, origin: Origin) -> Any:
        """Return the recorded value of an origin; None where it has none."""
        data = self.event(origin.sequence).data if origin.kind in ("set", "input", "output") else None
        match data:
            case catalog.StateMutated():
                return next((made.value for made in data.mutations if made.key == origin.name), None)
            case catalog.ExecutionStarted():
                return data.inputs.get(origin.name.partition(".")[2])
            case catalog.ExecutionCompleted():
                return data.outputs.get(origin.name)
        return None

    def event(self, sequence: int) -> Event:
        """Return an event of its log."""
        return self._log[sequence - self._first]

    @cached_property
    def _first(self) -> int:
        return self._log[0].sequence

    # --- how it shows ----------------------------------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """Return a row for each value and choice that it came from: `divebook.analysis.provenance_frame.why_frame`."""
        made: pd.DataFrame = extensions.extension(extensions.FRAMES)("why", self)
        return made

    @property
    def graph(self) -> str:
        """The same as a flow chart in Mermaid's language, which JupyterLab and many pages draw."""
        from divebook.replay.why_pictures import mermaid

        return mermaid(self)

    def __str__(self) -> str:
        from divebook.replay.why_text import text

        return text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from divebook.replay.why_pictures import html_of

        return html_of(self)
