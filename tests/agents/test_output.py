"""Answers that are data: asked of the model as a schema, checked by the library, kept as typed values."""

from dataclasses import dataclass
from enum import Enum

import pydantic_ai
import pytest
from pydantic import BaseModel
from pydantic_ai.models.test import TestModel

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.agents.signatures import output_type, text_of_output
from divebook.config import load
from divebook.definitions.resources import AgentDefinition
from divebook.errors import DefinitionError, SetupError
from divebook.events import classes
from divebook.events.codec import decode_line, encode_line
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment


class Size(Enum):
    SMALL = "small"


@dataclass
class Bird:
    name: str
    size: Size = Size.SMALL


class Report(BaseModel):
    birds: list[Bird]
    note: str | None = None


OWL = {"name": "owl", "size": "small"}
SCHEMA = {"type": "object", "properties": {"seen": {"type": "integer", "minimum": 1}}, "required": ["seen"]}
LIST = {"type": "array", "items": {"$ref": "#/$defs/name"}, "$defs": {"name": {"type": "string"}}}
OUTPUTS = [
    (Report, {"birds": [OWL]}, Report(birds=[Bird("owl")]), '{"birds":[{"name":"owl","size":"small"}],"note":null}'),
    (Bird, OWL, Bird("owl"), '{"name":"owl","size":"small"}'),
    (list[Bird], {"response": [OWL]}, [Bird("owl")], '[{"name":"owl","size":"small"}]'),
    (int, {"response": 3}, 3, "3"),
    (SCHEMA, {"seen": 2}, {"seen": 2}, '{"seen":2}'),
    (LIST, {"response": ["owl"]}, ["owl"], '["owl"]'),
]


def asking(**options):
    return Workflow("ask", [Step("ask", prompt="Which?", agent="a", store="said", **options)])


@pytest.fixture(autouse=True)
def no_class_is_allowed(monkeypatch):
    monkeypatch.setattr(classes, "_ALLOWED", {})


@pytest.mark.parametrize(("output", "said", "value", "text"), OUTPUTS)
def test_an_answer_is_a_typed_variable_live_and_from_the_log(output, said, value, text):
    def world(script, **options):
        return environment(asking(), agents=[Agent("a", model=ScriptedModel(script), output=output)], **options)

    execution = world([{"output": said}]).start("ask").wait(20)
    assert execution.variables == {"said": value}
    at = next(event for event in execution.history() if event.event_type == "step_completed")
    assert at.data.output == text
    again = world([{"error": "asked again"}], store=cut(execution.store, execution, at.sequence - 2))
    assert again.run_of(execution.id).resume().wait(20).variables == {"said": value}


def test_where_the_class_is_not_allowed_the_value_stays_as_it_is_recorded(monkeypatch):
    agent = Agent("a", model=ScriptedModel([{"output": OWL}]), output=Bird)
    execution = environment(asking(), agents=[agent]).start("ask").wait(20)
    monkeypatch.setattr(classes, "_ALLOWED", {})
    assert execution.variables["said"].cls.endswith("test_output.Bird")
    log = [decode_line(encode_line(event)) for event in execution.history()]
    assert [event.event_type for event in log][-1] == "execution_completed"


@pytest.mark.parametrize(
    ("output", "wrong", "right", "complaint"),
    [
        (SCHEMA, {"seen": 0}, {"seen": 2}, "seen: 0 is less than the minimum of 1"),
        (Bird, {"size": "small"}, OWL, "Field required"),
        (LIST, {"response": [7]}, {"response": ["owl"]}, "[0]: 7 is not of type 'string'"),
    ],
)
def test_what_does_not_fit_is_asked_for_again_by_the_library(output, wrong, right, complaint):
    model = ScriptedModel([{"output": wrong}, {"output": right}])
    execution = environment(asking(), agents=[Agent("a", model=model, output=output)]).start("ask").wait(20)
    assert (execution.status, model.calls) == ("completed", 2)
    assert complaint in str(execution.requests[1].messages[-1])


def test_an_answer_that_never_fits_fails_the_step_in_words():
    agent = Agent("a", model=ScriptedModel([{"output": {"seen": 0}}] * 5), output=SCHEMA)
    execution = environment(asking(), agents=[agent]).start("ask").wait(20)
    assert (
        "agent a gave no answer after 2 requests: its answer did not have the expected form (seen: 0 is less"
        in execution.error
    )


def test_a_step_may_want_other_data_than_its_agent():
    agent = Agent("a", model=ScriptedModel([{"output": {"seen": 2}}]), output=Bird)
    assert environment(asking(output=SCHEMA), agents=[agent]).start("ask").wait(20).variables == {"said": {"seen": 2}}


def test_the_class_of_a_library_agent_is_allowed():
    library = pydantic_ai.Agent(TestModel(custom_output_args={"birds": []}), output_type=Report, name="a")
    execution = environment(asking(), agents=[library]).start("ask").wait(20)
    assert execution.variables == {"said": Report(birds=[])}


YAML = """
Agents:
  - Name: a
    Model: scripted
    Output: {agent}
Workflows:
  - Name: ask
    Steps:
      - Name: ask
        Prompt: Which?
        Agent: a
        Store: said
        Output: {step}
"""


def test_output_in_a_file_is_a_schema_or_the_name_of_an_allowed_class(tmp_path):
    file = tmp_path / "birds.yaml"
    file.write_text(YAML.format(agent="Bird", step="{type: object, properties: {seen: {type: integer}}}"))
    loaded = load(file)
    (agent,), (workflow,) = loaded.agents, loaded.workflows
    assert (agent.output, workflow.steps[0].output["type"]) == ("Bird", "object")
    assert type(workflow).from_dict(workflow.to_dict()) == workflow
    plain = environment(asking(), agents=[Agent(agent, model=ScriptedModel([{"output": OWL}]))])
    refused = plain.start("ask").wait(20)
    assert "class for Output (give it to divebook.allow) not found: Bird" in refused.error
    classes.allow(Bird, Size)
    assert plain.start("ask").wait(20).variables == {"said": Bird("owl")}


@pytest.mark.parametrize("wrong", [3, ["Bird"], {"type": "nonsense"}, ""])
def test_output_that_means_nothing_is_refused_where_it_is_written(wrong):
    with pytest.raises(DefinitionError, match="JSON schema"):
        AgentDefinition("a", output=wrong)
    with pytest.raises(DefinitionError, match="JSON schema"):
        asking(output=wrong)


def test_a_schema_that_refers_to_itself_cannot_be_asked_for():
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    with pytest.raises(SetupError, match="cannot be requested from a model"):
        output_type({**tree, "$defs": {"tree": tree}})


def test_the_text_of_an_answer():
    assert [text_of_output(value) for value in ("plain", None, [1, {"a": 2}])] == ["plain", "null", '[1,{"a":2}]']
