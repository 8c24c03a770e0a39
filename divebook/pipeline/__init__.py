"""Requests on their way through the stages of a pipeline: `Pipeline`."""

from divebook.pipeline.config import PipelineConfig
from divebook.pipeline.pipeline import Pipeline
from divebook.pipeline.stage import AgentStage, EdgeLimit, RoutingRule
from divebook.pipeline.stages import StageResult
from divebook.pipeline.streaming import StageOutput

__all__ = ["AgentStage", "EdgeLimit", "Pipeline", "PipelineConfig", "RoutingRule", "StageOutput", "StageResult"]
