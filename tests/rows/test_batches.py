"""An agent asked for each row through a batch API: submitted once, collected by whichever process comes next."""

import time
from dataclasses import dataclass
from random import Random

import pandas as pd
import pytest
from pydantic import BaseModel
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from typing_extensions import TypedDict

from divebook import Agent, Environment, Retry, Step, Workflow
from divebook.agents import ScriptedModel
from divebook.errors import ExecutionError, SetupError
from divebook.mapping import mapped
from divebook.runtime.context import StepContext
from divebook.steps import prompt
from tests.rows.batch_server import batch_server
from tests.rows.batched import killed

FRAME = pd.DataFrame({"text": ["a", "b", "c", "d", "e"]}, index=list("vwxyz"))
PROMPT = "${state.row.text} ${inputs.given.kind}"
LABEL = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(prompt, "CHECKS", Retry(seconds=0.001, factor=1.5, jitter=0))
    monkeypatch.setattr(prompt, "MOST_ROWS", 2)


@pytest.fixture
def environment():
    with Environment(store="memory:") as made:
        yield made


@pytest.fixture
def server(monkeypatch):
    with batch_server() as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        yield made


def asked(environment, **options):
    given = {"prompt": PROMPT, "parameters": {"kind": "praise"}, "batch": True, **options}
    return mapped(environment, FRAME, Agent("critic", model="openai-responses:gpt-5-mini"), **given)


def test_rows_are_asked_in_batches_and_joined_by_index(environment, server):
    server.looks = 3
    rows = asked(environment).wait()
    assert rows.frame["result"].to_dict() == {at: f"{text.upper()} PRAISE" for at, text in FRAME["text"].items()}
    assert len(server.batches) == 3
    assert set(server.submitted.values()) == {1}
    assert rows.run.verify().equal
    assert asked(environment).done == 5
    assert len(server.batches) == 3


def test_what_rows_used_counts_at_half_the_price(environment, server):
    usage = asked(environment).wait().run.state.usage
    assert (usage.requests, usage.input_tokens, usage.output_tokens) == (5, 5000, 500)
    assert usage.cost == 5 * (1000 * 250 + 100 * 2000) / 2


def test_an_answer_of_a_type_is_columns(environment, server):
    rows = asked(environment, output=LABEL).wait()
    assert rows.frame["label"].tolist() == [f"{text.upper()} PRAISE" for text in FRAME["text"]]


class Mark(BaseModel):
    label: str


@dataclass
class Label:
    label: str


class Named(TypedDict):
    label: str


@pytest.mark.parametrize("kind", [Mark, Label, Named, LABEL])
@pytest.mark.parametrize("is_of_agent", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_an_answer_of_a_class_is_columns(environment, server, kind, is_of_agent, batch):
    model = ScriptedModel([{"output": {"label": "x"}}] * 5) if not batch else "openai-responses:gpt-5-mini"
    agent = Agent("critic", model=model, output=kind if is_of_agent else None)
    output = None if is_of_agent else kind
    rows = mapped(environment, FRAME, agent, prompt="${state.row.text}", output=output, batch=batch).wait()
    assert rows.frame["label"].tolist() == (["A", "B", "C", "D", "E"] if batch else ["x"] * 5)
    assert list(rows.frame) == ["text", "label", "error"]


def test_an_answer_that_is_no_object_is_one_column(environment):
    agent = Agent("critic", model=ScriptedModel([{"output": {"response": [1, 2]}}] * 5))
    rows = mapped(environment, FRAME, agent, prompt="${state.row.text}", output=list[int]).wait()
    assert rows.frame["result"].tolist() == [[1, 2]] * 5


@pytest.mark.parametrize("kind", [Mark, Label, lambda label: Named(label=label)])
def test_what_a_function_returns_of_a_class_is_columns(environment, kind):
    def labelled(text):
        return kind(label=text)

    assert mapped(environment, FRAME, labelled).wait().frame["label"].tolist() == list("abcde")


def test_what_cannot_be_an_answer_is_said(environment):
    with pytest.raises(SetupError, match="use a class, a TypedDict, or a JSON schema"):
        mapped(environment, FRAME, Agent("critic"), prompt="${state.row.text}", output=open)


def test_an_answer_that_does_not_fit_is_an_error_of_its_row(environment):
    model = FunctionModel(lambda *_: ModelResponse(parts=[TextPart("{}")]))
    rows = mapped(
        environment, FRAME, Agent("critic", model=model), prompt="${state.row.text}", output=LABEL, batch=True
    )
    assert rows.wait().frame["error"].str.startswith("UnexpectedModelBehavior").all()


def without_body(line):
    return {**line, "response": {"status_code": 200, "body": {}}}


def without_id(line):
    return {"response": line["response"]}


@pytest.mark.parametrize("spoiled", [without_body, without_id, lambda _: '{"custom_id": "x", "resp', lambda _: "null"])
def test_an_odd_line_is_the_error_of_its_row(environment, server, spoiled):
    server.spoil = lambda lines: [spoiled(lines[0]), *lines[1:]]
    rows = asked(environment).wait()
    assert list(rows.failed.index) == ["v", "x", "z"]
    assert rows.failed["error"].str.contains("StepError: .*batch_.*read.*retry_failed").all()
    assert rows.run.state.usage.requests == 2
    assert rows.run.verify().equal


def test_results_that_cannot_be_read_are_the_errors_of_their_rows(environment, server):
    broken = []
    server.spoil = lambda lines: lines if broken else broken.append(1) or ["not json"]
    rows = asked(environment).wait()
    assert list(rows.failed.index) == ["v", "w"]
    assert rows.failed["error"].str.startswith("StepError: the results of batch batch_").all()
    assert rows.frame["result"].notna().sum() == 3


def test_results_that_can_be_read_later_are(environment, server):
    pages = iter([(200, "<html>sign in</html>")] * 3)
    server.instead = lambda _, path: next(pages, None) if path.endswith("/content") else None
    assert asked(environment).wait().frame["error"].isna().all()


@pytest.mark.parametrize("kind", ["batches", "files"])
def test_a_batch_that_its_provider_lost_is_the_error_of_its_rows(environment, server, kind):
    lost = []

    def instead(method, path):
        asked_for, _, name = path.removesuffix("/content").partition("/")
        is_input = asked_for == "files" and "response" not in server.files.get(name, [{}])[0]
        if (method, asked_for) == ("GET", kind) and name and not is_input:
            lost.append(name)
        return (404, {"error": {"message": "no such thing"}}) if name and name in lost[:1] else None

    server.instead = instead
    rows = asked(environment).wait()
    assert list(rows.failed.index) == ["v", "w"]
    assert rows.failed["error"].str.contains("batch_.*404.*no such thing").all()
    assert rows.frame["result"].notna().sum() == 3


def test_a_look_that_brings_a_page_is_made_again(environment, server):
    pages = iter([(200, "<html>sign in</html>")] * 2)
    server.instead = lambda method, path: next(pages, None) if path.startswith("batches/") else None
    assert asked(environment).wait().frame["error"].isna().all()


def test_rows_that_failed_are_submitted_again_alone(environment, server):
    rows = asked(environment, prompt="${state.row.text} ${'fail' if state.row.text in 'bd' else ''}").wait()
    assert list(rows.failed.index) == ["w", "y"]
    assert "not now" in rows.failed.loc["w", "error"]
    assert rows.retry_failed().wait().frame["error"].isna().all()
    assert sorted(server.submitted.values()) == [1, 1, 1, 2, 2]


def test_a_row_without_a_prompt_has_its_error_and_is_not_sent(environment, server):
    rows = asked(environment, prompt="${1 / ('abde'.find(state.row.text) + 1)}").wait()
    assert list(rows.failed.index) == ["x"]
    assert "division by zero" in rows.failed.loc["x", "error"]
    assert sum(server.submitted.values()) == 4


@pytest.mark.parametrize("status", [429, 503])
def test_a_batch_that_is_not_taken_now_is_submitted_later(environment, server, status):
    server.refusals = [status] * 2
    rows = asked(environment).wait()
    assert rows.frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}  # though the provider had made it before it said 503
    assert rows.run.verify().equal


def failing_once(method, path, status):
    """Have the first request of a kind end with a status."""
    left = [(status, {"error": {"message": "come again"}})]
    return lambda *asked_for: left.pop() if asked_for == (method, path) and left else None


@pytest.mark.parametrize("status", [429, 500])
@pytest.mark.parametrize(("method", "path"), [("POST", "files"), ("GET", "batches"), ("POST", "batches")])
def test_what_fails_before_there_is_a_batch_is_done_later(environment, server, method, path, status):
    server.instead = failing_once(method, path, status)
    assert asked(environment).wait().frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}


def test_the_provider_says_when_it_is_to_be_asked_again(environment, server, monkeypatch):
    slept = []
    sleep = StepContext.sleep
    monkeypatch.setattr(StepContext, "sleep", lambda self, seconds: (slept.append(seconds), sleep(self, seconds))[1])
    server.instead = failing_once("POST", "files", 429)
    asked(environment).wait()
    assert slept[0] == 0.01  # for as long as the server wants nobody to ask


def test_a_batch_that_was_made_though_the_provider_failed_is_found_there(environment, server):
    server.refusals = [503]
    found = iter([(401, {"error": {"message": "bad key"}})])
    server.instead = lambda *asked_for: next(found, None) if server.batches and asked_for[1] == "batches" else None
    rows = asked(environment)
    with pytest.raises(ExecutionError, match="bad key"):
        rows.wait()
    environment.run_of(rows.run.id).resume().wait(check=True)
    assert rows.frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}


def test_a_batch_that_was_refused_is_submitted_when_the_run_is_resumed(environment, server):
    server.refusals = [400]
    rows = asked(environment)
    with pytest.raises(ExecutionError, match="come again"):
        rows.wait()
    environment.run_of(rows.run.id).resume().wait(check=True)
    assert rows.frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}


def listing_refused(method, path):
    return (403, {"error": {"message": "not allowed"}}) if (method, path) == ("GET", "batches") else None


def test_a_key_that_may_not_list_batches_submits_them(environment, server):
    server.instead = listing_refused
    assert asked(environment).wait().frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}


def test_where_batches_cannot_be_listed_a_person_is_asked_about_one_that_may_exist(environment, server):
    server.instead, server.refusals = listing_refused, [503]
    rows = asked(environment)
    (question,) = rows.run.wait().open_questions
    environment.answer(question.id, {"choice": "done", "result": next(iter(server.batches))})
    assert rows.wait().frame["error"].isna().all()
    assert set(server.submitted.values()) == {1}


def test_a_person_is_asked_where_the_list_is_closed_after_a_submission_that_may_have_made_it(environment, server):
    server.refusals = [503]
    server.instead = lambda *asked_for: listing_refused(*asked_for) if server.batches else None
    rows = asked(environment)
    (question,) = rows.run.wait().open_questions
    assert set(server.submitted.values()) == {1}
    environment.answer(question.id, {"choice": "retry"})
    assert rows.wait().frame["error"].isna().all()
    assert sorted(server.submitted.values()) == [1, 1, 1, 2, 2]


def count_of(text: str) -> int:
    """Count letters."""
    return len(text)


class Unsaid(FunctionModel):
    """Loses the connection once it has a batch, which it does not list."""

    made = 0

    async def batch_create(self, requests):
        self.made += 1
        batch = await super().batch_create(requests)
        if self.made == 1:
            raise ConnectionResetError("gone")
        return batch


@pytest.mark.parametrize(("choice", "made", "failed"), [("retry", 4, 0), ("done", 3, 2)])
def test_where_the_provider_does_not_tell_a_person_is_asked(environment, choice, made, failed):
    model = Unsaid(lambda *_: ModelResponse(parts=[TextPart("good")]))
    rows = mapped(environment, FRAME, Agent("critic", model=model), prompt="${state.row.text}", batch=True)
    (question,) = rows.run.wait().open_questions
    assert "critic" in question.question
    assert model.made == 1
    environment.answer(question.id, {"choice": choice, "result": None} if choice == "done" else {"choice": choice})
    assert len(rows.wait().failed) == failed
    assert model.made == made


def test_what_all_rows_may_spend_is_asked_before_they_are_submitted(environment, server):
    rows = asked(environment, bounds={"max_tokens": 20_000})  # 4,096 are taken for each answer
    (question,) = rows.run.wait().open_questions
    assert len(server.batches) == 2
    environment.answer(question.id, 100_000)
    assert len(rows.wait().frame["result"].dropna()) == 5


def test_batches_end_with_the_map_that_is_cancelled(environment, server, monkeypatch):
    monkeypatch.setattr(prompt, "CHECKS", Retry(seconds=2, jitter=0))
    server.looks = 99
    rows = asked(environment)
    while len([path for _, path in server.requests if path.startswith("/v1/batches/")]) < 1:
        time.sleep(0.01)
    time.sleep(0.1)
    rows.run.cancel()
    assert rows.run.wait().status == "cancelled"
    assert {batch["status"] for batch in server.batches.values()} == {"cancelled"}
    environment.run_of(rows.run.id).resume().wait(check=True)
    assert rows.failed["error"].str.contains("cancel").sum() == 5


def test_a_step_asks_for_rows(environment, server):
    environment.add_agent(Agent("critic", model="openai-responses:gpt-5-mini"))
    each = {"rows": "$(inputs.frame)"}
    step = Step("ask", agent="critic", prompt="${state.row.text}", each=each, store="told")
    told = environment.start(Workflow("w", [step], inputs=["frame"]), {"frame": FRAME}).wait(check=True)
    assert told.state.variables["told"] == {"rows": 5, "failed": 0}


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        (
            Agent("critic", model=FunctionModel(lambda *_: None), tools=[count_of]),
            "agent critic has tools, but a batch needs",
        ),
        (Agent("critic", model=FunctionModel(lambda *_: None), bounds={"max_llm_calls": 1}), "has bounds of its own"),
        (Agent("critic", model="deepseek:deepseek-chat"), "has no batch API: name another Model"),
    ],
)
def test_an_agent_that_cannot_be_asked_so_says_why(environment, agent, told, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")
    rows = mapped(environment, FRAME, agent, prompt="${state.row.text}", batch=True)
    with pytest.raises(ExecutionError, match=told):
        rows.wait()


def test_only_agents_are_asked_in_batches(environment):
    with pytest.raises(SetupError, match="batch=True is only for agents"):
        mapped(environment, FRAME, len, batch=True)


def test_a_process_that_is_killed_submits_nothing_twice(tmp_path):
    told, kills, server = killed(tmp_path, 20, 1, Random(3), parts=4)
    assert (told, kills) == ({"rows": 20, "errors": 0, "asked": []}, 1)
    assert set(server.submitted.values()) == {1}


def test_a_batch_of_a_model_without_a_price_cannot_have_its_cost_bounded(environment, server):
    agent = Agent("critic", model="openai-responses:nobody-knows-this")
    rows = mapped(
        environment, FRAME, agent, prompt=PROMPT, parameters={"kind": "praise"}, batch=True, bounds={"max_cost": 1}
    )
    with pytest.raises(ExecutionError, match="no price is known"):
        rows.wait()
    assert not server.batches
