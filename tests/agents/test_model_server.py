"""A provider's own library over HTTP: what is streamed, what is recorded of it, and who hangs up."""

import contextlib
import importlib.util
import threading

import pytest

from divebook.agents.agent import MODEL_RETRY
from divebook.runtime.loop import ENGINE
from tests.agents.model_server import PATIENCE, PIECES, ModelServer
from tests.agents.test_streaming import ASK, facts, heard, started
from tests.runtime.worlds import event_types

TEXT = "".join(PIECES)


@pytest.fixture
def serve(require):
    """Return ``serve(**how)``: a model on a server of its own, and the server."""
    require("the library openai", importlib.util.find_spec("openai") is not None)
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    with contextlib.ExitStack() as stack:

        def serve(**how):
            server = stack.enter_context(ModelServer(**how))
            client = AsyncOpenAI(base_url=server.url, api_key="none")
            stack.callback(lambda: ENGINE.submit(client.close()).result(PATIENCE))
            return OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(openai_client=client)), server

        yield serve


def test_a_streamed_answer_is_recorded_like_a_whole_one(serve):
    model, server = serve()
    streamed, deltas = heard(model)
    whole = started(model).wait(PATIENCE)
    assert [delta.text for delta in deltas] == list(PIECES)
    assert server.streamed == [True, False]
    assert facts(streamed) == facts(whole)
    assert streamed.variables == {"poem": TEXT}
    used = streamed.usage
    assert (used.input_tokens, used.output_tokens, used.cost) == (11, 6, whole.usage.cost)
    assert used.cost > 0


def test_a_provider_that_refuses_to_stream_is_asked_plainly(serve):
    model, server = serve(refuses=True)
    execution, deltas = heard(model)
    assert (execution.variables, deltas, server.streamed) == ({"poem": TEXT}, [], [True, False])


def test_a_connection_that_is_cut_fails_the_call(serve):
    execution, deltas = heard(serve(cuts=True)[0])
    assert [(delta.at, delta.text) for delta in deltas] == [(0, PIECES[0])] * MODEL_RETRY.attempts
    assert len({delta.operation_id for delta in deltas}) == MODEL_RETRY.attempts
    assert execution.status == "failed"
    assert event_types(execution)[-4] == "operation_failed"


@pytest.mark.parametrize("stop", ["cancel", "pause"])
def test_a_run_that_is_stopped_hangs_up(serve, stop):
    model, server = serve(holds=True)
    reached = threading.Event()
    execution = started(model, ASK, lambda _: reached.set())
    assert reached.wait(PATIENCE)
    getattr(execution, stop)()
    execution.wait(PATIENCE)
    assert server.hung_up.wait(PATIENCE)
    stopped = {"cancel": ["path_cancelled", "execution_cancelled"], "pause": ["execution_paused"]}[stop]
    assert event_types(execution)[3:] == ["operation_started", *stopped]
