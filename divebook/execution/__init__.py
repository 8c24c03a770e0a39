"""The drivers: carry out what the rules say, record what happened."""

from divebook.execution.context import StepContext
from divebook.execution.execution import Execution
from divebook.execution.streaming import TextDelta

__all__ = ["Execution", "StepContext", "TextDelta"]
