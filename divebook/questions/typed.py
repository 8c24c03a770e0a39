"""Text that a person typed, in a shell, on the line of a magic, in a cell, or in a file: read alike everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from divebook.errors import DefinitionError
from divebook.questions.kinds import APPROVE, DONE, JUDGED, MODIFY, NO, OUTCOME_UNKNOWN, REJECT, YES
from divebook.questions.question import Question


class Fitting(NamedTuple):
    """The two tools for reading and checking answers that are not pure: a schema checker and a reader of YAML."""

    complaint: Callable[[Mapping[str, Any], Any], str | None]
    """Says what is wrong with a value by a JSON schema, or None."""
    written: Callable[[str], Any]
    """Reads a text as YAML; raises `DefinitionError` where it is none."""


@dataclass(frozen=True, slots=True)
class Typed:
    """An answer as somebody typed it; what it means depends on its question.

    It is data, in YAML, where it begins as YAML writes data or quoted text, or where the question asks for data that a
    text is not; a list needs no brackets. Anything else is the text itself, so that ``1.10`` stays a version. A yes or
    no with its reason (``no: not today``) is a text as well, whatever data might come with it. ``done RESULT`` answers
    a question about an unknown outcome in one text. Data in quotes, as shells want it (``'{count: 2}'``), is that data
    where a text would not fit.
    """

    text: str

    def meant(self, question: Question, fitting: Fitting) -> Any:
        """Return the answer to a question."""
        if question.kind == OUTCOME_UNKNOWN:
            word, _, result = self.text.strip().partition(" ")
            if word == DONE and result.strip():
                return {"choice": DONE, "result": _data_or_text(result.strip(), fitting)}
        if question.kind in JUDGED and self.text.partition(":")[0].strip().lower() in _WORDS:
            return self.text
        if self.text[:1] not in _OPENING and (
            question.schema is None or not fitting.complaint(question.schema, self.text)
        ):
            return self.text
        given = _data_or_text(self.text, fitting)
        if question.schema is None or question.kind in JUDGED:
            return given
        if isinstance(given, str) and fitting.complaint(question.schema, given):
            given = _data_or_text(given, fitting)
        is_entry = question.schema.get("type") == "array" and not isinstance(given, list)
        return _data_or_text(f"[{self.text}]", fitting) if is_entry else given


_OPENING = ("{", "[", "'", '"')
_WORDS = frozenset({*YES, *NO, APPROVE, REJECT, MODIFY})


def _data_or_text(text: str, fitting: Fitting) -> Any:
    try:
        return fitting.written(text)
    except DefinitionError:
        return text
