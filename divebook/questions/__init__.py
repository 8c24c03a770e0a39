"""One question: its kinds, what is asked, which answers fit, what typed text means, and how it is worded."""

from divebook.questions.answer import Fitting, Typed, checked_answer, value_of
from divebook.questions.question import InterruptKind, InterruptStatus, Question

__all__ = ["Fitting", "InterruptKind", "InterruptStatus", "Question", "Typed", "checked_answer", "value_of"]
