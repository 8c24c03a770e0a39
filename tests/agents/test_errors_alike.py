"""What a request to a model fails with is one error, live and from the log, for all who look at its class or fields."""

from typing import ClassVar

import pytest
from pydantic_ai import exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from divebook import Agent, Step, Workflow
from divebook.agents import agent_loop
from divebook.agents.request_record import CATEGORIES, MOST_BODY
from divebook.definitions.resources import AgentDefinition
from divebook.definitions.step import Retry
from divebook.errors import OperationError
from divebook.events import catalog
from divebook.events.codec import encode_line
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment

WORKFLOW = Workflow("w", [Step("s", prompt="go", agent="a", store="text")])


def look(name: str) -> str:
    """Look a bird up."""
    return name


class Caught(AbstractCapability):
    """Answers in place of a model that fails, as a fallback does, and keeps what it has seen."""

    seen: ClassVar[list] = []

    async def on_model_request_error(self, ctx, *, request_context, error):
        del ctx, request_context
        self.seen.append(error)
        return ModelResponse([TextPart(f"instead of {type(error).__name__}")])


@pytest.fixture
def caught(monkeypatch):
    monkeypatch.setattr(Caught, "seen", [])
    library = agent_loop.pydantic_ai.Agent

    def made(*args, capabilities=(), **options):
        return library(*args, capabilities=[*capabilities, Caught()], **options)

    monkeypatch.setattr(agent_loop.pydantic_ai, "Agent", made)
    return Caught.seen


def world(error, **options):
    def fail(_messages, _info):
        raise error()

    definition = AgentDefinition("a", retry=Retry(attempts=1))
    agent = Agent(definition, model=FunctionModel(fail), tools=[look])
    return environment(WORKFLOW, agents=[agent], **options)


def limited():
    headers = {"Retry-After": "7", "set-cookie": "account=of-mine"}
    body = {"error": {"message": "slow down", "odd": object()}}
    return ModelHTTPError.for_category(
        exceptions.ModelRateLimitError, status_code=429, model_name="m", body=body, headers=headers
    )


ERRORS = [
    limited,
    lambda: ModelHTTPError(418, "m", "short and stout"),
    lambda: ModelHTTPError(500, "m", "x" * (MOST_BODY + 1)),
    lambda: exceptions.ModelConnectionError("m", "reset", phase="read"),
    lambda: exceptions.ModelRequestTimeout("m", 3.0),
    lambda: exceptions.UnexpectedModelBehavior("odd", "body"),
    lambda: ValueError("no"),
    *(
        lambda category=category: ModelHTTPError.for_category(category, status_code=400, model_name="m")
        for category in CATEGORIES
    ),
]


def facts(error):
    names = ("status_code", "body", "retry_after", "model_name", "phase", "headers", "provider_error_code")
    known = {name: getattr(error, name, None) for name in names}
    bases = {base.__name__ for base in type(error).__mro__} - {"OperationError", "ExecutionError", "DivebookError"}
    return str(error), bases, known


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_has_the_same_class_and_fields_live_and_from_the_log(error, caught):
    execution = world(error).start("w").wait(20)
    assert execution.variables == {"text": f"instead of {type(error()).__name__}"}
    failed = next(event for event in execution.history() if isinstance(event.data, catalog.OperationFailed))
    again = world(lambda: pytest.fail("asked again"), store=cut(execution.store, execution, failed.sequence))
    assert again.run_of(execution.id).resume().wait(20).variables == execution.variables
    live, replayed = caught
    assert facts(live) == facts(replayed)
    assert isinstance(live, type(error()))


def test_what_is_said_of_a_limit_is_all_there_and_no_header_is(caught):
    execution = world(limited).start("w").wait(20)
    (error,) = caught
    assert isinstance(error, exceptions.ModelRateLimitError)
    assert isinstance(error, ModelHTTPError)
    assert (error.status_code, error.retry_after, error.headers) == (429, 7.0, None)
    assert error.body["error"]["message"] == "slow down"
    assert b"of-mine" not in b"".join(map(encode_line, execution.history()))


def test_an_error_of_a_class_that_is_gone_is_of_the_nearest_that_is_there(caught):
    class OwnError(ModelAPIError):
        pass

    execution = world(lambda: OwnError("m", "mine")).start("w").wait(20)
    assert execution.status == "completed"
    (error,) = caught
    assert isinstance(error, ModelAPIError)
    assert isinstance(error, OperationError)


def test_a_failed_request_ends_the_step_with_what_the_provider_said():
    execution = world(limited).start("w").wait(20)
    assert execution.error.startswith("ModelRateLimitError: status_code: 429, model_name: m")
