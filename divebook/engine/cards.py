"""What a person is shown of a call that waits for a yes, what may be answered, and the rule that an answer makes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from divebook.engine.approvals import TOOL, ToolCall
from divebook.engine.argument_patterns import exactly
from divebook.engine.rules import StandingRule
from divebook.events import catalog
from divebook.questions import Question
from divebook.questions.kinds import CONFIRMATION

RUN, ALWAYS = "run", "always"
"""Where a rule holds: in the execution that made it, or in all of its store."""
DAY = 24 * 60 * 60
LASTS, LONGEST = DAY, 90 * DAY
"""Seconds for which a rule for every execution holds: where nothing is said, and at most."""
OFFERS = "offers"
_MICROSECONDS = 1_000_000
_NOT_OURS: Final = frozenset({"$schema", "$id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef"})
_RULE: Final = {
    "type": "object",
    "properties": {
        "scope": {"enum": [RUN, ALWAYS]},
        "expires_in": {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST},
        "arguments": {"type": "object"},
    },
    "required": ["scope"],
    "additionalProperties": False,
}


def shown_on_card(call: ToolCall, rule: str) -> dict[str, Any]:
    """Return what a card shows of a call; `rule` is what wants the question."""
    about = {"agent": call.agent, "server": call.server, "hints": call.hints.to_dict(), "rule": rule}
    offers = {"scopes": [RUN, ALWAYS], "expires_in": LASTS}
    return {
        call.kind: call.tool,
        "parameters": dict(call.arguments),
        **{name: value for name, value in about.items() if value},
        OFFERS: offers,
    }


def schema_of_answer(arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the JSON schema of what may come with a yes: other arguments, and a rule for calls to come.

    Parameters
    ----------
    arguments
        JSON schema of the arguments, perhaps of a server's making: what it refers to elsewhere is never looked up
        (test_a_schema_that_refers_to_an_address_is_not_looked_up).
    """
    within = embedded({"type": "object"} if arguments is None else arguments, "#/properties/parameters")
    properties = {"parameters": within, "rule": _RULE}
    return {"type": "object", "properties": properties, "minProperties": 1, "additionalProperties": False}


def embedded(schema: Any, place: str) -> Any:
    """Return a schema as it must stand within another one, at a JSON pointer such as ``#/anyOf/0``."""
    if isinstance(schema, list | tuple):
        return [embedded(item, place) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    left_out = {key for key, value in schema.items() if key in _NOT_OURS and isinstance(value, str)}
    kept = {key: embedded(value, place) for key, value in schema.items() if key not in left_out}
    reference = kept.get("$ref")
    if isinstance(reference, str):
        del kept["$ref"]
        if reference == "#" or reference.startswith("#/"):
            kept["$ref"] = f"{place}{reference[1:]}"
    return kept


def rule_id_of(execution_id: str, question_id: str) -> str:
    """Return the name of the rule that the answer to a question makes.

    It names the execution: questions of a copy have the ids of the original's, and its rules are not the copy's.
    """
    return f"rule_{hashlib.sha256(f'{execution_id}/{question_id}'.encode()).hexdigest()[:16]}"


def rule_made(
    execution_id: str, question: Question, response: Mapping[str, Any], by: str | None, at_us: int
) -> catalog.ApprovalRuleAdded | None:
    """Return the rule that an answer makes, if it makes one: nobody makes rules but by approving what a card shows."""
    data, told = question.data or {}, response.get("data") or {}
    wanted = told.get("rule") if isinstance(told, Mapping) else None
    if question.kind != CONFIRMATION or OFFERS not in data or response.get("approved") is not True or not wanted:
        return None
    kind = next(kind for kind in (TOOL, "action", "step") if kind in data)
    approved = told.get("parameters", data["parameters"])
    lasts = wanted.get("expires_in", LASTS if wanted["scope"] == ALWAYS else None)
    return catalog.ApprovalRuleAdded(
        rule_id_of(execution_id, question.id),
        "allow",
        data[kind],
        None if kind == TOOL else kind,
        data.get("agent"),
        data.get("server"),
        wanted.get("arguments", {name: exactly(value) for name, value in approved.items()}),
        wanted["scope"],
        None if lasts is None else at_us + int(lasts * _MICROSECONDS),
        question.id,
        by,
    )


def rules_of_run(execution_id: str, rules: Iterable[StandingRule]) -> list[StandingRule]:
    """Return the rules that were made in this execution, and not in the one that it is a copy of."""
    return [rule for rule in rules if rule.rule_id == rule_id_of(execution_id, rule.question or "")]
