"""Pipelines whose requests are among the recorded histories. Their envelopes are recorded in the variables of the log.

Like `history_world`, this module stays as it is: the logs in ``recorded`` contain its lines and digests.
"""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from divebook import Agent, Environment, ScriptedModel
from divebook.definitions.reader import read_definitions
from divebook.definitions.resources import AgentDefinition
from divebook.pipeline import Pipeline, StageResult, create_envelope
from divebook.pipeline.envelope import Envelope
from divebook.runtime.run import Run

RECEIVED_AT = datetime(2025, 6, 15, 15, 6, 40, tzinfo=UTC)
# Values that JSON lacks, one of each kind that a person is likely to put into an envelope.
VALUES = {
    "when": datetime(2025, 6, 1, 12, 30, 0, 500, tzinfo=UTC),
    "day": date(2025, 6, 1),
    "price": Decimal("1.10"),
    "id": UUID(int=7),
    "names": {"b", "a"},
    "raw": b"\x00\xff",
    "no limit": float("inf"),
    "large": 2**70,
}
DECLARED = """
Pipelines:
- Name: stages-declared
  Stages:
  - {Name: draft, Agent: unready, MaxRetries: 1, Next: check}
  - {Name: check, Agent: counter}
- Name: stages-failing
  Mode: parallel
  Stages:
  - {Name: draft, Agent: counter}
  - {Name: check, Agent: unready}
"""


def stages(name: str, /, **stages: object) -> dict[str, object]:
    """Return a pipeline of stages by name, each with its settings."""
    agents = [{"name": stage, "stage_order": order, **own} for order, (stage, own) in enumerate(stages.items())]
    return {"name": name, "max_llm_calls": 20, "max_agent_hops": 20, "on_exhausted": "ask", "agents": agents}


def request(metadata: dict[str, object] | None = None) -> Envelope:
    """Return the envelope of a request, always the same."""
    return create_envelope(
        "Write about rivers",
        "ann",
        "sess_1",
        metadata=metadata,
        clock=lambda: RECEIVED_AT,
        new_id=lambda prefix: f"{prefix}_0123456789abcdef",
    )


def _routes(condition: str, **targets: str) -> list[dict[str, object]]:
    return [{"condition": condition, "value": value, "target": target} for value, target in targets.items()]


# --- one stage after the other: a loop, a bound that is raised, a question of a stage ---------------------------------


def reviewing(environment: Environment) -> Pipeline:
    """Return a pipeline that goes back twice although one iteration is allowed, and then asks a question."""

    async def note(envelope: Envelope) -> None:
        envelope.metadata.update(VALUES)
        envelope.initialize_goals(["written", "checked"])

    async def draft(envelope: Envelope) -> StageResult:
        return StageResult({"text": f"version {envelope.iteration + 1}", "plan_id": "p1"}, 2)

    async def check(envelope: Envelope) -> dict[str, object]:
        if envelope.iteration < 2:
            return {"verdict": "back", "feedback": ["Too long.", {"by": envelope.iteration}]}
        return {"verdict": "ask", "question": "Of which river?"}

    async def publish(envelope: Envelope) -> dict[str, object]:
        interrupt = envelope.interrupt
        assert interrupt is not None
        assert interrupt.response is not None
        envelope.advance_stage(["written"], {"at": VALUES["when"]})
        return {"final_response": f"about the {interrupt.response.text}"}

    config = stages(
        "stages",
        draft={"default_next": "check", "output_key": "plan", "has_llm": True, "model_role": "poet"},
        check={"routing_rules": _routes("verdict", back="draft", ask="clarification")},
        publish={"output_key": "integration"},
    )
    config |= {"max_iterations": 1, "clarification_resume_stage": "publish"}
    services = {"draft": draft, "check": check, "publish": publish}
    return Pipeline(config, services=services, before={"draft": note}, environment=environment)


# --- stages side by side: a merge, a branch that fails and another one that takes over --------------------------------


def side_by_side(environment: Environment) -> Pipeline:
    """Return a parallel pipeline whose branches ask a question each, and one of which fails."""

    async def look(envelope: Envelope) -> dict[str, object]:
        envelope.metadata["seen"] = {"left": [1, VALUES["day"]]}
        envelope.set_interrupt("confirmation", "", message="Go left?", expires_in=3600, data={"price": VALUES["price"]})
        return {"found": "a bridge"}

    async def listen(envelope: Envelope) -> dict[str, object]:
        envelope.metadata.setdefault("seen", {})["right"] = 2
        envelope.set_interrupt("agent_review", "q-right", message="Is it loud?")
        return {"heard": "water"}

    async def smell(envelope: Envelope) -> dict[str, object]:
        raise ValueError(f"{envelope.user_id} smells nothing")

    async def instead(envelope: Envelope) -> dict[str, object]:
        return {"instead of": sorted(envelope.failed_stages)}

    async def join(envelope: Envelope) -> dict[str, object]:
        return {"of": sorted(envelope.outputs), "errors": [error["error"] for error in envelope.errors if error]}

    config = stages(
        "stages-side-by-side",
        look={},
        listen={},
        smell={"error_next": "instead"},
        instead={"requires": ["smell"]},
        count={"requires": ["look"], "has_llm": True, "model_role": "counter"},
        join={"requires": ["look", "listen", "instead", "count"]},
    )
    config["default_run_mode"] = "parallel"
    services = {"look": look, "listen": listen, "smell": smell, "instead": instead, "join": join}
    return Pipeline(config, services=services, environment=environment)


# --- attempts: a stage that is tried again, and one that fails for good -----------------------------------------------


def trying(environment: Environment) -> Pipeline:
    """Return a pipeline with two stages that succeed at their third attempt, and one that fails."""
    calls: list[str] = []

    async def measure(envelope: Envelope) -> dict[str, object]:
        calls.append("measure")
        if len(calls) == 1:
            raise ConnectionError("no answer yet")
        return {"depth": 2.5} if len(calls) > 2 else {"width": 4}

    async def stop(envelope: Envelope) -> dict[str, object]:
        raise LookupError("there is no sea")

    config = stages(
        "stages-tried",
        count={"has_llm": True, "model_role": "unready", "max_retries": 3, "default_next": "measure"},
        measure={"max_retries": 2, "default_next": "end here", "required_output_fields": ["depth"]},
        **{"end here": {}},
    )
    return Pipeline(config, services={"measure": measure, "end here": stop}, environment=environment)


# --- a request whose execution does not wait for the answer -----------------------------------------------------------


def detached(environment: Environment) -> Pipeline:
    """Return a pipeline that asks for a confirmation, and ends its execution then."""

    async def propose(envelope: Envelope) -> dict[str, object]:
        envelope.set_interrupt("confirmation", "q", message="Delete 3 files?", data={"values": VALUES})
        return {"files": 3}

    async def delete(envelope: Envelope) -> dict[str, object]:
        return {"gone": envelope.outputs["propose"]["files"]}

    config = stages("stages-detached", propose={"default_next": "delete"}, delete={})
    pipeline = Pipeline(config, services={"propose": propose, "delete": delete}, environment=environment)
    pipeline._is_kept = False  # as for the environment that a pipeline makes for itself
    return pipeline


def continued(pipeline: Pipeline, execution: Run) -> Run:
    """Answer the question of an execution that has ended with it, by a clone of its envelope."""
    return pipeline._answer_and_continue(pipeline.envelope(execution).clone(), {"approved": True}, None)


# --- a question that nobody answers -----------------------------------------------------------------------------------


def expiring(environment: Environment) -> Pipeline:
    """Return a pipeline with a question that expires after an hour."""

    async def ask(envelope: Envelope) -> dict[str, object]:
        envelope.set_interrupt("clarification", "q-late", question="Which?", expires_in=3600)
        return {}

    return Pipeline(stages("stages-expired", ask={}), services={"ask": ask}, environment=environment)


PIPELINES = (reviewing, side_by_side, trying, detached, expiring)


def add_pipelines(environment: Environment) -> None:
    """Make all pipelines known to an environment, with the agents that only they use."""
    unready = ScriptedModel(
        ["no idea", '{"n": "neither"', '{"n": 1}', '{"n": 2}'],
        usage={"input_tokens": 7, "output_tokens": 3},
        price=0.25,
    )
    environment.add_agent(Agent(AgentDefinition("unready", goal="Count"), model=unready))
    environment.define(read_definitions(DECLARED, source_name="stages-declared.yaml"))
    for pipeline in PIPELINES:
        pipeline(environment)
