import asyncio
import json

from divebook.definitions.servers import CallOutcome, Discovered, OfferedTool
from tests.tools.fakes import FakeServer


def test_what_a_server_offers_comes_back_from_the_log_unchanged():
    tool = OfferedTool("add", "Add.", {"type": "object"}, {"read_only": True}, {"type": "integer"})
    found = Discovered((tool, OfferedTool("bare")), "Be brief.")
    assert Discovered.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_an_outcome_comes_back_from_the_log_unchanged():
    asks = CallOutcome(requests={"a": {"message": "Which?", "schema": {}}}, state="s")
    assert CallOutcome.from_dict(json.loads(json.dumps(asks.to_dict()))) == asks
    assert asks.needs_input
    assert not CallOutcome("text", is_error=True).needs_input


def test_a_fake_server_answers_after_a_round_of_questions():
    def paint(arguments, answers):
        return f"painted {answers['a']['content']}" if answers else CallOutcome(requests={"a": {"message": "Which?"}})

    server = FakeServer(paint=paint)
    first = asyncio.run(server.call("paint", {}))
    last = asyncio.run(
        server.call("paint", {}, answers={"a": {"action": "accept", "content": "red"}}, state=first.state)
    )
    assert (first.needs_input, last.content) == (True, "painted red")
