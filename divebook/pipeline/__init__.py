"""Requests on their way through the stages of a pipeline: `Pipeline`."""

from divebook.pipeline.pipeline import Pipeline
from divebook.pipeline.streaming import StageOutput
from divebook.steps.stages import StageResult
from divebook.workflow.pipelines.config import AgentStage, EdgeLimit, PipelineConfig, RoutingRule

__all__ = ["AgentStage", "EdgeLimit", "Pipeline", "PipelineConfig", "RoutingRule", "StageOutput", "StageResult"]
