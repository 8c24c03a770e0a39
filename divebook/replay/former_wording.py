"""Texts about budgets as older versions worded them, in the present wording.

The log holds the text of a question about a budget, and of the error that a budget ends a run with. divebook writes
these texts, and no definition determines their wording. So a log from before a change of the wording is compared in
the present one: the amounts are read from the old text, and the text is written again with them.

Example: ``max_llm_calls is reached: 1 model calls spent, at most 1 allowed`` is compared as
``Budget reached: 1 of 1 model calls made. Raise `max_llm_calls`.``
"""

from __future__ import annotations

import re
from typing import Any

from divebook.engine.bounds import Exhausted, asked_about

_MARK = " is reached: "
_UNITS = {
    "max_iterations": "passes through loops",
    "max_llm_calls": "model calls",
    "max_agent_hops": "agent steps",
    "max_tokens": "tokens",
    "max_cost": "US dollars",
    "max_seconds": "seconds",
    "edges": "passages",
    "max_repeats": "repetitions",
}
"""What each bound counted, as older versions wrote it."""
_QUOTED = r"'[^'\n]*'|\"[^\"\n]*\""
_REACHED = re.compile(
    rf"(?:agent (?P<agent>{_QUOTED}): )?"
    r"(?:the bound of the edge (?P<edge>[^\n]+?)|(?P<bound>max_[a-z_]+)) is reached: "
    rf"(?P<used>\S+) (?P<unit>{'|'.join(_UNITS.values())}) spent"
    r"(?:, (?P<reserved>\S+) reserved by calls under way, (?P<needed>\S+) for the next one \(MaxTokens lowers it\))?"
    r", at most (?P<limit>\S+) allowed"
    r"(?:(?P<question>\. Raise the bound and go on, or stop\?)"
    rf"|; to go on, raise (?:its Bounds|the Bounds of agent (?P<owner>{_QUOTED})) and resume)?"
)


def in_present_wording(value: Any) -> Any:
    """Return plain data with every text about a budget in the present wording; the value itself if it has none."""
    match value:
        case str():
            return _REACHED.sub(_reworded, value) if _MARK in value else value
        case list():
            return [in_present_wording(part) for part in value]
        case dict():
            return {name: in_present_wording(part) for name, part in value.items()}
    return value


def _reworded(match: re.Match[str]) -> str:
    """Return one such text in the present wording; as it is, if no version of divebook wrote it."""
    bound = match["bound"] or "edges"
    if _UNITS.get(bound) != match["unit"]:
        return match[0]
    amounts = (match["limit"], match["used"], match["edge"], match["reserved"], match["needed"])
    try:
        exhausted = Exhausted(bound, *amounts)
        if match["question"]:
            return asked_about(exhausted)[0]
        if match["agent"] is None:
            return str(exhausted)
        return _error_of_agent(exhausted, match["agent"], match["owner"])
    except ArithmeticError:  # the amounts are not numbers
        return match[0]


def _error_of_agent(exhausted: Exhausted, agent: str, owner: str | None) -> str:
    """Return the error at a bound of an agent; `owner` is the agent above it of whose bounds it has a share."""
    share = f" (its share of the bounds of agent {owner})" if owner else ""
    advice = f"Raise `{exhausted.name}` in the Bounds of agent {owner or agent} and resume."
    return f"Agent {agent}{share}: {exhausted.summary} {advice}"
