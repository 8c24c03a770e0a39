"""Questions to people: kinds and wording of questions, validation of answers, and bounds (budgets) of runs."""

from divebook.questions.answer import Fitting, Typed, checked_answer, value_of
from divebook.questions.question import InterruptKind, InterruptStatus, Question

__all__ = ["Fitting", "InterruptKind", "InterruptStatus", "Question", "Typed", "checked_answer", "value_of"]
