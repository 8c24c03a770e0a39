"""The steps that a pipeline becomes: one stage, a batch of them, what joins a batch, and what chooses the next."""

from divebook.pipeline.stages.functions import StageFunctions, StageResult
from divebook.pipeline.stages.handler import StageStep, add_stages, stage_step

__all__ = ["StageFunctions", "StageResult", "StageStep", "add_stages", "stage_step"]
