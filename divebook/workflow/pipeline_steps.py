"""The workflow that a pipeline becomes: stages around a step that says where a request goes next.

::

    sequential    route -> the chosen stage -> route -> ...
    parallel      route -> batch (each ready stage, side by side) -> merge -> route -> ...

The step ``route`` checks the bounds before every stage, asks the questions that stages raise, and holds the definition
of the whole pipeline. The variable `STATE` holds the envelope, and the stages that are to run next: so each stage has
the envelope as the one before left it, and the log tells where it was. Questions are asked between stages, never inside
one: an envelope that waits is complete and may be kept anywhere (``tests/pipeline/test_questions.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from divebook.errors import UNFIT
from divebook.events import catalog
from divebook.events.catalog import Payload
from divebook.workflow.definition import InputDefinition, OutputDefinition, Workflow
from divebook.workflow.pipelines import RESERVED, AgentStage, PipelineConfig, RunMode
from divebook.workflow.policies import Catch
from divebook.workflow.step import STAGE, Each, Edge, Step

STATE = "pipeline"
"""Variable: ``{"envelope": state, "next": [stage, ...], "again": whether route has another question}``."""
BRANCHES = "branches"
"""Variable: what the stages of a batch returned."""
ENVELOPE, SLOTS, RESPONSE = "envelope", "slot_names", "response"
"""The inputs: an envelope's state, its slot names, and the answer to the question it came with."""
DETACHED = "detached"
"""Input: whether to end at a question of the envelope, without asking it, since the envelope is kept elsewhere."""
FEEDBACK = "feedback"
"""Input: whether a stage that sends a request back hands its feedback on; executions of earlier versions lack it."""
REQUEST, USER, SESSION, METADATA = "request", "user", "session", "metadata"
"""The inputs of a pipeline that a definition file declares: the text of the request, who sends it, and what belongs
to it."""
OUTPUTS = "outputs"
"""Variable and output of such a pipeline: what the stages put out, by slot."""
PART, NAME, FUNCTIONS = "part", "stage", "functions"
"""Parameters of a step: what it does, for which stage; of the first one, which stages need Python functions."""
ROUTE, RUN, BATCH, MERGE = "route", "run", "batch", "merge"


def compiled(config: PipelineConfig, mode: RunMode, functions: Iterable[str] = ()) -> Workflow:
    """Return a pipeline as a workflow; `functions` are the stages for which a process must have Python functions."""
    taken = set(config.order)
    route = _free(ROUTE, taken)
    steps = _sequential(config, route) if mode == "sequential" else _parallel(config, route, taken)
    if needed := sorted(functions):
        steps[0] = replace(steps[0], parameters={PART: ROUTE, FUNCTIONS: needed})
    optional = [InputDefinition(name, "map", required=False) for name in (SLOTS, RESPONSE)]
    flags = [InputDefinition(name, "bool", default=False) for name in (DETACHED, FEEDBACK)]
    inputs = [InputDefinition(ENVELOPE, "map"), *optional, *flags]
    return Workflow(config.name, steps, inputs=inputs, description=f"{mode} pipeline")


def declared(config: PipelineConfig) -> Workflow:
    """Return a pipeline of a definition file as a workflow, which is started with a request and not with an envelope.

    Its outputs are the slots of its stages.
    """
    made = compiled(config, config.default_run_mode)
    taken = {step.name for step in made.steps}
    last, route = _free(OUTPUTS, taken), made.steps[0]
    is_over = f"$(not state.{STATE}['again'] and len(state.{STATE}['next']) == 0)"
    steps = [
        replace(route, edges=(*route.edges, Edge(last, is_over))),
        *made.steps[1:],
        Step(last, script=f"state.{STATE}['envelope']['outputs']", store=OUTPUTS, next=[]),
    ]
    about = {
        REQUEST: "The text of the request",
        USER: "Who sends it",
        SESSION: "The session that it belongs to",
    }
    texts = [InputDefinition(name, "string", description=text, default="") for name, text in about.items()]
    inputs = [*texts, InputDefinition(METADATA, "map", required=False)]
    # The engine counts model calls, so that stages side by side do not overshoot. Where a person may be asked to allow
    # more, they are counted between the stages instead.
    stops = config.on_exhausted == "stop"
    bounds = {"max_llm_calls": config.max_llm_calls, "on_exhausted": "fail"} if stops else None
    return Workflow(
        config.name,
        steps,
        inputs=inputs,
        outputs=[OutputDefinition(OUTPUTS)],
        description=f"{config.default_run_mode} pipeline",
        bounds=bounds,
    )


def is_pipeline(workflow: Workflow) -> bool:
    """Return whether a workflow was made of a pipeline."""
    return bool(workflow.steps) and workflow.start.type == STAGE


def visible_steps(workflow: Workflow) -> list[Step]:
    """Return the steps of a workflow as people see them: of a pipeline its stages, with the ways between them.

    In parallel mode these are the batch of stages and its merge, since the stages of a batch are its items.
    """
    if not is_pipeline(workflow):
        return list(workflow.steps)
    config = PipelineConfig.from_text(str(workflow.start.script))
    if any(step.parameters.get(PART) == BATCH for step in workflow.steps):
        batch, merge = (
            next(step for step in workflow.steps if step.parameters.get(PART) == part) for part in (BATCH, MERGE)
        )
        return [batch, replace(merge, edges=(Edge(batch.name),))]
    steps = {step.name: step for step in workflow.steps}
    return [replace(steps[stage.name], edges=_ways(stage, config), catch=_caught(stage)) for stage in config.agents]


def hidden_steps(data: Payload) -> frozenset[str]:
    """Return the names of the steps that people do not see, of the definition that an event of a log holds, if any.

    Views, progress and tables leave these out. A log and its frames have all steps.
    """
    definition: Mapping[str, Any] = {}
    if isinstance(data, catalog.ExecutionStarted | catalog.ExecutionForked):
        definition = data.definition or {}
    steps = definition.get("steps")
    first = steps[0] if isinstance(steps, Sequence) and steps else None
    if not isinstance(first, Mapping) or first.get("type") != STAGE:
        return frozenset()  # most workflows, of which nothing more need be read
    try:
        return hidden_in(Workflow.from_dict(definition))
    except UNFIT:
        return frozenset()


def hidden_in(workflow: Workflow) -> frozenset[str]:
    """Return the names of the steps of a workflow that people do not see."""
    return frozenset(step.name for step in workflow.steps) - {step.name for step in visible_steps(workflow)}


def _ways(stage: AgentStage, config: PipelineConfig) -> tuple[Edge, ...]:
    """Return the edges of a stage to other stages: its routes in order, then where it goes if none of them fits."""
    ways = [
        Edge(rule.target, f"{rule.condition} == {rule.value!r}")
        for rule in stage.routing_rules
        if config.stage(rule.target) is not None
    ]
    return (*ways, Edge(stage.default_next)) if config.stage(stage.default_next) is not None else tuple(ways)


def _caught(stage: AgentStage) -> tuple[Catch, ...]:
    return (Catch(stage.error_next),) if stage.error_next not in ("", *RESERVED) else ()


def _sequential(config: PipelineConfig, route: str) -> list[Step]:
    ways = [(name, f"$(state.{STATE}['next'] == [{name!r}])") for name in config.order]
    stages = [_step(name, RUN, store=STATE, next=[route], stage=name) for name in config.order]
    return [_route(config, route, ways), *stages]


def _parallel(config: PipelineConfig, route: str, taken: set[str]) -> list[Step]:
    batch, merge = _free(BATCH, taken), _free(MERGE, taken)
    ways = [(batch, f"$(len(state.{STATE}['next']) > 0)")]
    each = Each(f"$(state.{STATE}['next'])", as_="stage", parallel=max(2, len(config.order)))
    return [
        _route(config, route, ways),
        _step(batch, BATCH, store=BRANCHES, next=[merge], each=each),
        _step(merge, MERGE, store=STATE, next=[route]),
    ]


def _route(config: PipelineConfig, name: str, ways: list[tuple[str, str]]) -> Step:
    again = (name, f"$(state.{STATE}['again'])")
    return Step(name, type=STAGE, script=config.to_text(), parameters={PART: ROUTE}, store=STATE, next=[again, *ways])


def _step(
    name: str, part: str, *, store: str, next: list[str], each: Each | None = None, stage: str | None = None
) -> Step:
    parameters = {PART: part} if stage is None else {PART: part, NAME: stage}
    return Step(name, type=STAGE, parameters=parameters, store=store, next=next, each=each)


def _free(name: str, taken: set[str]) -> str:
    """Return a name for a step that no stage has."""
    while name in taken:
        name = f"{name}_"
    return name
