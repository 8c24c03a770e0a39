"""One question: its kinds, what is asked, which answers fit, what typed text means, and how it is worded."""

from divebook.questions.answer import checked_answer, value_of
from divebook.questions.kinds import InterruptKind, InterruptStatus
from divebook.questions.question import Question
from divebook.questions.typed import Fitting, Typed

__all__ = ["Fitting", "InterruptKind", "InterruptStatus", "Question", "Typed", "checked_answer", "value_of"]
