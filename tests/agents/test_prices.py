"""What requests cost."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ImageUrl,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from divebook import Agent, Bounds, Each, Step, Workflow
from divebook.agents.models import (
    TOKENS_PER_FILE,
    TOKENS_PER_MESSAGE,
    _price,
    _priced_model,
    cost_of,
    estimate,
    is_priced,
    tokens_of,
    tokens_of_definitions,
)
from divebook.engine.bounds import require_price
from divebook.questions.bounds import NANODOLLARS
from tests.runtime.worlds import environment

TOKENS = st.integers(0, 3_000_000)
SOLD = [(provider.id, model.id) for provider in get_snapshot().providers for model in provider.models]


def asked(model, provider, written, answered, read=0, write=0):
    """Return what genai-prices itself says."""
    try:
        seller, priced = get_snapshot().find_provider_model(model, None, provider, None)
    except LookupError:  # some ids of its own stand for several models
        return None
    usage = Usage(input_tokens=written, output_tokens=answered, cache_read_tokens=read, cache_write_tokens=write)
    found = priced.calc_price(usage, seller, genai_request_timestamp=datetime.now(UTC))
    return int(found.total_price * NANODOLLARS)


@given(sold=st.sampled_from(SOLD), fresh=TOKENS, read=TOKENS, write=TOKENS, answered=TOKENS)
def test_rates_give_the_prices_that_genai_prices_gives(sold, fresh, read, write, answered):
    provider, name = sold
    written = fresh + read + write
    assert _price(name, provider, written, answered, cache_read=read, cache_write=write) == asked(
        name, provider, written, answered, read, write
    )


def test_most_models_have_rates_and_those_whose_price_depends_on_more_have_none():
    assert _priced_model("gpt-4o-mini", "openai").rates is not None
    tiered = "gemini-2.5-pro", "google"
    assert _priced_model(*tiered).rates is None
    assert _price(*tiered, 300_000, 0) > 3 * _price(*tiered, 100_000, 0)


def test_a_request_that_costs_something_by_itself_has_that_in_its_price():
    assert _price("sonar", "perplexity", 0, 0) == asked("sonar", "perplexity", 0, 0) > 0
    assert _price("sonar", "perplexity", 5, 7) == asked("sonar", "perplexity", 5, 7)


def test_a_model_that_nobody_knows_has_no_price():
    assert not is_priced("no such model", "openai")


def test_models_of_ollama_cost_nothing():
    assert is_priced("qwen3:4b", "ollama")
    assert _price("qwen3:4b", "ollama", 1000, 1000) == 0
    response = ModelResponse([], usage=RequestUsage(input_tokens=9), model_name="qwen3:4b", provider_name="ollama")
    assert cost_of(response) == 0
    reserved = estimate(OllamaModel("qwen3:4b", provider=OllamaProvider("http://localhost:11434/v1")), 10, None)
    assert (reserved.is_priced, reserved.cost) == (True, 0)
    require_price(Bounds(max_cost=1), reserved)


def test_an_estimate_counts_tools_and_the_schema_of_the_answer():
    model, written = TestModel(), tokens_of(ModelRequest.user_text_prompt("go"))
    schema = {"type": "object", "properties": {"query": {"type": "string", "description": "x" * 1000}}}
    tool = ToolDefinition(name="search", parameters_json_schema=schema, description="y" * 1000)

    def tokens(**sent):
        definitions = tokens_of_definitions(ModelRequestParameters(**sent))
        return estimate(model, written + definitions, None).tokens

    plain = tokens()
    assert plain == estimate(model, written, None).tokens
    one = tokens(function_tools=[tool])
    assert one - plain > 1000
    assert tokens(output_tools=[tool]) == one
    assert tokens(output_object=OutputObjectDefinition(json_schema=schema)) - plain > 500


def test_data_that_a_tool_takes_and_returns_count_by_their_length_and_files_as_files():
    called, texts = ModelResponse([ToolCallPart("t", {"a": "word"})]), ["a text"] * 3
    assert tokens_of(called) < 2 * TOKENS_PER_MESSAGE
    returned = ModelRequest([ToolReturnPart("t", {"rows": [{"a": number} for number in range(1000)]}, "c")])
    assert 1000 < tokens_of(returned) < 10_000
    shown = ModelRequest([UserPromptPart([*texts, ImageUrl("https://example.org/a.png")])])
    assert TOKENS_PER_FILE < tokens_of(shown) < TOKENS_PER_FILE + 100


def test_more_read_from_the_cache_than_read_at_all_is_told():
    with pytest.raises(ValueError, match="cannot exceed"):
        _price("gpt-4o-mini", "openai", 1, 0, cache_read=2)


@pytest.mark.parametrize("is_at_work", [False, True])
def test_a_cost_is_bounded_where_the_provider_names_a_model_that_nobody_knows(is_at_work):
    class Deployed(FunctionModel):
        system = "openai"

        async def request(self, *args):
            made = await super().request(*args)
            return replace(made, model_name="deployment-7", provider_name="openai")

    def answer(_messages, _info):
        used = RequestUsage(input_tokens=10_000, output_tokens=4000)
        return ModelResponse(parts=[TextPart("done")], usage=used)

    def look(name: str) -> str:
        return name

    agent = Agent("a", model=Deployed(answer, model_name="gpt-5-mini"), tools=[look] if is_at_work else [])
    step = Step("ask", agent="a", prompt="${i}", each=Each(list(range(10)), as_="i"))
    world = environment(Workflow("w", [step]), agents=[agent])
    done = world.start("w", bounds={"max_cost": "0.02", "on_exhausted": "fail"}).wait(20)
    assert (done.status, done.usage.requests, done.state.own_usage.cost) == ("failed", 2, 2 * 10_500_000)
