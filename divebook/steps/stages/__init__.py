"""The steps that a pipeline becomes: one stage, a batch of them, what joins a batch, and what chooses the next."""

from divebook.steps.stages.functions import StageFunctions, StageResult
from divebook.steps.stages.handler import StageStep

__all__ = ["StageFunctions", "StageResult", "StageStep"]
