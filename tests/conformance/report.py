"""Differences as text, and the line that says how many cases pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance import loose
from tests.conformance.cases import Case
from tests.conformance.compare import Difference, compare_evaluation, compare_outcome
from tests.conformance.outcome import Evaluation
from tests.conformance.scenario.run import differences as scenario_differences
from tests.conformance.world import observe

SHOWN = 600
"""Characters shown of a value."""


def check(case: Case) -> list[Difference]:
    """Run one case and return its differences."""
    if case.is_scenario:
        return scenario_differences(case.data)
    if case.group in loose.RUN:
        return loose.differences(case.data)
    observed = observe(case)
    if isinstance(observed, Evaluation):
        return compare_evaluation(case.expect, observed)
    return compare_outcome(case.expect, observed)


def describe(case: Case, differences: Iterable[Difference]) -> str:
    """Return the differences of one case, readable."""
    lines = [f"{case.group}/{case.name}"]
    for difference in differences:
        lines += [
            f"  {difference.key}",
            f"    expected {_text(difference.expected)}",
            f"    got      {_text(difference.got)}",
        ]
    return "\n".join(lines)


def summary(cases: Sequence[Case], failed: int) -> str:
    """Return the last line of a run."""
    return f"{len(cases) - failed} of {len(cases)} cases pass"


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
