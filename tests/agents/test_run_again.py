"""What of an agent of pydantic-ai is no operation runs again while its turn does, and never once the turn has ended."""

from collections import Counter

import pydantic_ai
import pytest
from pydantic_ai import ModelRetry, ToolOutput
from pydantic_ai.capabilities import AbstractCapability

from divebook import Agent, ScriptedModel
from divebook.agents.scripted_model import ScriptedFunction
from tests.agents.test_taking_agents import ASK
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

SCRIPT = [{"call": {"look": {"name": "owl"}}}, {"output": {"score": 9}}, {"output": {"score": 3}}]
"""What the model does: its first answer is refused."""


class Hooks(AbstractCapability):
    """Counts what it sees."""

    def __init__(self, ran):
        self._ran = ran

    async def before_model_request(self, ctx, request_context):
        self._ran["hook"] += 1
        return request_context


class Critic:
    """An agent with one of each part that is no operation, whose output function says who it is."""

    def __init__(self, name="Ann"):
        self.name = name
        self.ran, self.model = Counter(), ScriptedModel([*SCRIPT])
        judged = ToolOutput(self.judged, name="judged")
        self.agent = pydantic_ai.Agent(
            ScriptedFunction(self.model), name="critic", output_type=judged, capabilities=[Hooks(self.ran)]
        )
        self.agent.instructions(self.instructions)
        self.agent.output_validator(self.validated)
        self.agent.tool_plain(self.look, prepare=self.prepared)

    def instructions(self):
        self.ran["instructions"] += 1
        return "Be strict."

    async def prepared(self, ctx, definition):
        self.ran["prepare"] += 1
        return definition

    def look(self, name: str) -> str:
        """Look a bird up."""
        self.ran["tool"] += 1
        return name

    def judged(self, score: int) -> str:
        self.ran["output function"] += 1
        return f"{score} of 5, says {self.name}"

    def validated(self, text: str) -> str:
        self.ran["validator"] += 1
        if text.startswith("9"):
            raise ModelRetry("at most 5")
        return text


WHOLE = {"instructions": 3, "prepare": 3, "hook": 3, "tool": 1, "output function": 2, "validator": 2}
"""What runs in a turn of three requests and one call."""


def ended(execution, operation_type, number=-1):
    """Return the number of the event with which an operation of a type has ended."""
    ends = (e for e in execution.history() if e.event_type == "operation_completed")
    return [e.sequence for e in ends if e.data.operation_type == operation_type][number]


def resumed(execution, at, name="Ann"):
    """Go on in another process from the first events of a log; return what it came to, and what ran."""
    critic = Critic(name)
    there = environment(ASK, agents=[critic.agent], store=cut(execution.store, execution, at))
    return there.run_of(execution.id).resume().wait(20), critic.ran


@pytest.mark.parametrize(("ends", "done"), [(0, 0), (1, 1), (2, 1)], ids=["first", "refused", "accepted"])
def test_all_but_requests_and_calls_runs_again_in_an_unfinished_turn(ends, done):
    critic = Critic()
    execution = environment(ASK, agents=[critic.agent]).start("ask").wait(20)
    assert (execution.variables, dict(critic.ran)) == ({"said": "3 of 5, says Ann"}, WHOLE)
    other, ran = resumed(execution, ended(execution, "agent_response", ends))
    assert other.variables == execution.variables
    assert ran == Counter(WHOLE) - Counter({"tool": done})


def test_nothing_of_a_finished_turn_runs_again_and_its_answer_is_the_recorded_one():
    execution = environment(ASK, agents=[Critic().agent]).start("ask").wait(20)
    other, ran = resumed(execution, ended(execution, "agent_turn"))
    assert (other.variables, ran) == (execution.variables, {})


def test_an_output_function_that_answers_otherwise_when_it_runs_again_gives_the_later_answer():
    """Only the end of the turn records an answer: until then nobody has seen one."""
    execution = environment(ASK, agents=[Critic().agent]).start("ask").wait(20)
    other, ran = resumed(execution, ended(execution, "agent_response"), "Ben")
    assert (other.variables, ran["output function"]) == ({"said": "3 of 5, says Ben"}, 2)


def test_what_runs_again_is_said_where_agents_are_taken():
    said = " ".join(Agent.of.__doc__.split())
    assert "its hooks, validators, output functions and instructions run again on replay of an unfinished turn" in said
