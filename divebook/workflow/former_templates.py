"""Definitions stored before templates had escapes and before nested texts were templates, in the present form.

Then ``$${x}`` was a dollar sign and a value, and texts inside lists and mappings were passed as they were written. The
texts of such a definition are rewritten, so that a recorded execution keeps its meaning when it resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divebook.dialects import MANNERS, OWN
from divebook.text.templates import each_text, literal, with_escapes, with_literal_depths

Data = dict[str, Any]


def with_present_templates(workflow: Data) -> Data:
    """Return the stored form 1 of a workflow that was stored in form 0."""
    has_values = MANNERS[workflow.get("dialect", OWN)].has_extensions
    steps = workflow.get("steps") or []
    return {**workflow, "steps": [_step(step, has_values=has_values) for step in steps]}


def _step(step: Data, *, has_values: bool) -> Data:
    changed = dict(step)
    for name in ("prompt", "thread", "signal", "workflow", "seconds"):
        if isinstance(step.get(name), str):
            changed[name] = with_escapes(step[name])
    for name, step_types in _FILLED.items():
        if step.get(name) and step.get("type") in step_types:
            changed[name] = with_literal_depths(step[name], has_values=has_values)
    if isinstance(step.get("ask"), Mapping):
        changed["ask"] = _ask(step["ask"])
    if isinstance(step.get("rollback"), Mapping):
        parameters = with_literal_depths(step["rollback"].get("parameters") or {})
        changed["rollback"] = {**step["rollback"], **({"parameters": parameters} if parameters else {})}
    each = step.get("each")
    if isinstance(each, Mapping) and isinstance(each.get("items"), list):
        changed["each"] = {**each, "items": each_text(each["items"], literal)}
    return changed


def _ask(ask: Mapping[str, Any]) -> Data:
    changed = {name: with_escapes(ask[name]) for name in ("question", "message") if isinstance(ask.get(name), str)}
    data = {"data": with_literal_depths(ask["data"])} if ask.get("data") else {}
    return {**ask, **changed, **data}


_FILLED = {"parameters": ("action",), "inputs": ("workflow", "continue_as_new")}
"""By field of a step, the types of step that fill it in."""
