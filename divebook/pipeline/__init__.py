"""Requests on their way through the stages of a pipeline: `Pipeline`.

All that a request is stands here, above `environment`: an envelope is used alone as well, and of an execution it is a
fold of the log. Only its bounds stand lower (`divebook.questions.bounds`), since workflows and the engine share them.
No module below imports this package when it is loaded: `Environment` adds the step type of stages, and
`Execution.envelope` loads it when it is first used.
"""

from divebook.pipeline.pipeline import Pipeline, StageOutput
from divebook.pipeline.stages import StageResult
from divebook.workflow.pipelines import AgentStage, EdgeLimit, PipelineConfig, RoutingRule

__all__ = ["AgentStage", "EdgeLimit", "Pipeline", "PipelineConfig", "RoutingRule", "StageOutput", "StageResult"]
