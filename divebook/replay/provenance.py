"""Why a variable has its value: which event, step, calls, variables and inputs made it, all the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divebook import extensions
from divebook.replay.traced import Traced
from divebook.replay.why_pictures import html_of, mermaid
from divebook.replay.why_text import text

if TYPE_CHECKING:
    import pandas as pd


class Provenance(Traced):
    """Where one value came from; printed it says so in words, in a notebook it unfolds.

    `divebook.Environment.why` and ``run.why("x")`` return it.

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

    def frame(self) -> pd.DataFrame:
        """Return a row for each value and choice that it came from: `divebook.analysis.provenance_frame.why_frame`."""
        made: pd.DataFrame = extensions.extension(extensions.FRAMES)("why", self)
        return made

    @property
    def graph(self) -> str:
        """The same as a flow chart in Mermaid's language, which JupyterLab and many pages draw."""
        return mermaid(self)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return html_of(self)
