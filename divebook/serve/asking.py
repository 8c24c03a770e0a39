"""Questions of executions as elicitations: forms of plain fields that a client shows to its person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.types import ElicitRequestFormParams, ElicitResult

from divebook.events.readable import json_form
from divebook.questions import Question
from divebook.questions.kinds import CONFIRMATION
from divebook.questions.typed import Typed
from divebook.questions.wording import example_answer, wanted_answer
from divebook.text.redaction import shared

ANSWER: Final = "answer"
"""The field of a form that has one."""
_PLAIN = frozenset({"string", "number", "integer", "boolean"})
_KEPT = frozenset(
    {"type", "title", "description", "enum", "default", "format", "minimum", "maximum", "minLength", "maxLength"}
)


def can_ask(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether a client says that it can show forms to its person; before there were others, it said so by `{}`."""
    capabilities = context.session.client_capabilities
    asking = None if capabilities is None else capabilities.elicitation
    return asking is not None and (asking.form is not None or asking.url is None)


def form_of(question: Question, complaint: str = "") -> ElicitRequestFormParams:
    """Return a question as a form.

    Parameters
    ----------
    complaint
        What was wrong with an earlier answer to it.
    """
    parts = [complaint, question.question, question.message or "", _data_in_words(question)]
    message = "\n".join(part for part in parts if part)
    return ElicitRequestFormParams(message=shared().text(message), requested_schema=_fields(question))


def answer_of(question: Question, content: Mapping[str, Any]) -> Any:
    """Return what a filled form answers to a question."""
    if _is_form(question) or question.kind == CONFIRMATION:
        return dict(content)
    value = content.get(ANSWER, "")
    return Typed(value) if isinstance(value, str) and not _is_plain(question.schema) else value


def is_accepted(result: ElicitResult | None) -> bool:
    """Whether somebody filled a form, and did not decline or close it."""
    return result is not None and result.action == "accept"


def _fields(question: Question) -> dict[str, Any]:
    """Return the schema of a form, whose fields may hold plain values only."""
    if question.kind == CONFIRMATION:
        reason = {"type": "string", "description": "Why not; whoever asked is told."}
        return _object({"approved": {"type": "boolean"}, "text": reason}, ["approved"])
    schema = question.schema or {}
    if _is_form(question):
        fields = {name: _plain_field(entry) for name, entry in schema["properties"].items()}
        return _object(fields, list(schema.get("required", ())))
    if _is_plain(question.schema):
        return _object({ANSWER: _plain_field(schema)}, [ANSWER])
    wanted = f"{wanted_answer(question)}, for instance: {example_answer(question)}"
    return _object({ANSWER: {"type": "string", "description": wanted}}, [] if question.optional else [ANSWER])


def _object(fields: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(fields), "required": required}


def _is_form(question: Question) -> bool:
    """Whether it asks for a mapping of plain values, as a form gives it."""
    schema = question.schema or {}
    properties = schema.get("properties")
    return (
        question.kind != CONFIRMATION
        and schema.get("type") == "object"
        and isinstance(properties, Mapping)
        and bool(properties)
        and all(_is_plain(entry) for entry in properties.values())
    )


def _is_plain(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") in _PLAIN


def _plain_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name in _KEPT}


def _data_in_words(question: Question) -> str:
    return json.dumps(shared().value(json_form(dict(question.data))), ensure_ascii=False) if question.data else ""
