"""From the text that a model wrote to the object in it."""

from __future__ import annotations

import json
from typing import Any

from divebook.errors import StepError

MOST_SHOWN = 200
"""Characters of a text that an error shows."""


def object_in(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is, or the first one inside it.

    Raises
    ------
    StepError
        There is none.

    Examples
    --------
    >>> object_in('Here it is: {"verdict": "proceed", "why": "no } is missing"} Anything else?')
    {'verdict': 'proceed', 'why': 'no } is missing'}
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
        else:
            return dict(found)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
    raise StepError(f"the answer holds no JSON object: {shown!r}; ask for one in the agent's instructions")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
