"""Differences as text, and the line that says how many cases pass."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from tests.conformance import facts, loose
from tests.conformance.cases import Case
from tests.conformance.compare import Difference, compare_evaluation, compare_outcome
from tests.conformance.loose import PARTS
from tests.conformance.outcome import Evaluation
from tests.conformance.scenario.run import differences as scenario_differences
from tests.conformance.world import observe, run_workflow

SHOWN = 600
"""Characters shown of a value."""


def check(case: Case) -> list[Difference]:
    """Run one case and return its differences."""
    if case.is_scenario:
        return scenario_differences(case.data)
    if case.group in facts.RUN:
        return _facts(case)
    if case.group in loose.RUN:
        return loose.differences(case.data)
    observed = observe(case)
    if isinstance(observed, Evaluation):
        return compare_evaluation(case.expect, observed)
    return compare_outcome(case.expect, observed)


def _facts(case: Case) -> list[Difference]:
    """Compare what a case says of the log; of a whole workflow also what is said of every workflow."""
    run, _ = facts.RUN[case.group]
    of_workflow = {key: value for key, value in case.expect.items() if "definition" in case.data and key not in PARTS}
    found = compare_outcome(of_workflow, run_workflow(case.data)) if of_workflow else []
    rest = {key: value for key, value in case.expect.items() if key not in of_workflow}
    return [*found, *loose.compared(lambda: run(case.data), rest, rest.keys())]


def not_run(cases: Iterable[Case]) -> list[str]:
    """Return a line for each reason for which cases of a group cannot be run, with their names."""
    names: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        names.setdefault((case.group, facts.reason_not_run(case.data)), []).append(case.name)
    return [f"not run, {group}: {reason}: {', '.join(found)}" for (group, reason), found in names.items()]


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
