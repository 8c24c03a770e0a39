"""Credentials that nobody named, in what tools return and models write: neither the log nor the model has them."""

import json

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.request_record import with_cleaned_text
from divebook.definitions import ApprovalRule
from divebook.documents import Policy
from divebook.text.passwords import REDACTED as HIDDEN
from divebook.text.redaction import shared
from tests.planted import contents, told, traces

BY_NAME = {
    *("Docker", "Azure storage", "Azure shared access", "AWS presigned", "Cookie", "Set-Cookie", "keyword"),
    *("query token", "form body", "escaped twice"),
}
"""What only the name beside it tells: it is hidden where it is shown, and stored, as a token of a next page is."""
TOLD = {what: found for what, found in told().items() if what not in BY_NAME}
TEXTS = [text for text, _ in TOLD.values()]
FUNCTIONAL = {
    "next_page_token": "CAUQAA12k7Zq9xT4",
    "session_id": "f3c1a9e0-52b8-4d36-9e1f-0c7a1b2d3e4f",
    "digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "prose": "The key is under the mat; a password is asked for at the door.",
}
DATA = "AKIA" + "ABCDEFGHIJKLMNOP" * 20 + "=="
ASK = Workflow("w", [Step("ask", prompt="Go", store="said")])


GIVEN = []


@tool
def tells(said: list[str]) -> dict:
    """Tell what it was told, and more."""
    GIVEN.append(said)
    return {"as they are": TEXTS, **{text: {"deep": [text]} for text in TEXTS}, **FUNCTIONAL, "data": DATA}


def asked(folder, *allowed):
    """Run an agent that writes credentials into a call, gets them back and says them; return what came of it."""
    GIVEN.clear()
    model = ScriptedModel([{"call": {"tells": {"said": TEXTS}}}, "\n".join(["I know:", *TEXTS])])
    agent = Agent("a", model=model, tools=[tells])
    store = str(folder / "runs.db")
    with Environment(store=store, agents=[agent], approvals=[ApprovalRule()], policy=Policy(*allowed)) as world:
        execution = world.start(ASK).wait(30, check=True)
        seen = execution.requests[-1].messages
        (call,) = execution.tool_calls.to_dict("records")
    return execution, (GIVEN[0], call["result"]), json.dumps(seen), "".join(contents(path) for path in folder.iterdir())


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    return asked(tmp_path_factory.mktemp("left"))


@pytest.mark.parametrize("what", TOLD)
def test_what_has_the_form_of_a_credential_is_neither_in_the_log_nor_sent_to_the_model(left, what):
    _, given, seen, stored = left
    secret = TOLD[what][1]
    places = {"log": stored, "model": seen, "tool": json.dumps(given)}
    assert {where for where, text in places.items() for trace in traces(secret) if trace in text} == set()


def test_what_a_tool_needs_again_and_what_is_data_stays_as_it_was(left):
    execution, (_, result), seen, _ = left
    assert {name: result[name] for name in FUNCTIONAL} == FUNCTIONAL
    assert result["data"] == DATA
    assert execution.variables["said"].startswith("I know:")
    assert HIDDEN in seen


def test_what_was_left_out_is_said_once_of_each_thing(tmp_path, logs):
    asked(tmp_path)
    found = [text for text in logs() if "looks like a credential" in text]
    assert [text.split(" contained ")[0] for text in found] == ["a response of the model", "the result of tool tells"]
    assert all('Policy("credentials")' in text for text in found)


def test_a_policy_lets_agents_have_credentials(tmp_path, logs):
    execution, given, _, stored = asked(tmp_path, "credentials")
    assert given[0] == TEXTS
    assert execution.variables["said"].endswith(TEXTS[-1])
    assert TOLD["GitHub"][1] in stored
    assert logs() == []


def test_a_signed_thought_goes_back_to_its_provider_as_it_came():
    secret = TOLD["GitHub"][1]
    signed = {"part_kind": "thinking", "content": secret, "signature": "c2lnbmVk"}
    call = {"part_kind": "tool-call", "args": {"k": secret}, "tool_call_id": secret, "id": secret}
    made = with_cleaned_text({"parts": [signed, call], "provider_response_id": secret}, shared().without_certain)
    assert made["parts"] == [signed, {**call, "args": {"k": HIDDEN}}]
    assert made["provider_response_id"] == secret
