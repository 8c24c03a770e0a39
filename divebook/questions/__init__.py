"""Questions to a person: their kinds, content and wording, checks of answers, and parsing of typed text."""

from divebook.questions.answer import Fitting, Typed, checked_answer, value_of
from divebook.questions.question import InterruptKind, InterruptStatus, Question

__all__ = ["Fitting", "InterruptKind", "InterruptStatus", "Question", "Typed", "checked_answer", "value_of"]
