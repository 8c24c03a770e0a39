"""Requests on their way through the stages of a pipeline: `Pipeline`."""

from divebook.pipeline.config import AgentStage, EdgeLimit, PipelineConfig, RoutingRule
from divebook.pipeline.pipeline import Pipeline
from divebook.pipeline.stages import StageResult
from divebook.pipeline.streaming import StageOutput

__all__ = ["AgentStage", "EdgeLimit", "Pipeline", "PipelineConfig", "RoutingRule", "StageOutput", "StageResult"]
