"""Requests on their way through the stages of a pipeline: `Pipeline`.

All that a request is stands here, above `environment`: an envelope is used alone as well, and of an execution it is a
fold of the log. Only its bounds stand lower (`divebook.questions.bounds`), since workflows and the engine share them.
Nothing below imports this package: `Environment.add_step_type` takes in the steps that pipelines become, and
`Execution.envelope` asks `divebook.extensions`.
"""

from divebook.pipeline.pipeline import Pipeline, StageOutput
from divebook.pipeline.stages import StageResult
from divebook.workflow.pipelines import AgentStage, EdgeLimit, PipelineConfig, RoutingRule

__all__ = ["AgentStage", "EdgeLimit", "Pipeline", "PipelineConfig", "RoutingRule", "StageOutput", "StageResult"]
