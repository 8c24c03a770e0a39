"""`divebook what-if`: what it prints, its exit codes, and what it says where it cannot be."""

import json

import pytest

from divebook.stores import open_store


def test_a_run_is_gone_through_again_in_a_shell(divebook, hello):
    divebook("run", hello, "-v", "who=you")
    (source,) = open_store().records()
    plan = divebook("what-if", source.execution_id, "--input", "who=me", "--plan")
    assert (plan.exit_code, len(open_store().records())) == (0, 1), plan.output
    assert f"plan of a what-if of {source.execution_id}, from event 2 on: " in plan.stdout
    found = divebook("what-if", source.execution_id, "--input", "who=me")
    assert found.exit_code == 0, found.output
    assert "comparable: full" in found.stdout
    assert "output greeting: hello [-you-]{+me+} hello [-you-]{+me+}" in found.stdout
    several = divebook("what-if", source.execution_id, "--input", "who=me", "--repeat", "2")
    assert several.stdout.count("completed") == 2
    (facts,) = json.loads(divebook("what-if", source.execution_id, "--input", "who=me", "--json").stdout)["what_ifs"]
    assert (facts["source"], facts["status"], facts["live"]) == (source.execution_id, "completed", 0)
    assert (facts["change"], facts["outputs"]) == ({"inputs": {"who": "me"}}, {"greeting": "hello me hello me "})
    assert facts["first_difference"] == {"event": 1, "step": "", "text": "input who: [-you-]{+me+}"}
    plan = json.loads(divebook("what-if", source.execution_id, "--input", "who=me", "--plan", "--json").stdout)["plan"]
    assert (plan["at"], plan["live"], plan["blocked"]) == (1, [], 0)
    listed = divebook("runs")
    assert listed.stdout.count("(what-if)") == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "900"], "after one of its events, 1 to "),
        (["--input", "whom=me"], "there is no input 'whom' to change"),
        (["--tools", "all"], "'all' is not one of 'recorded', 'read-only', 'live'"),
        (["--repeat", "0"], "must be run at least once, not 0 times"),
        (["--set", "none=1"], "because its log has no variable of that name"),
    ],
)
def test_a_what_if_that_cannot_be_says_why_and_makes_nothing(divebook, hello, options, message):
    divebook("run", hello, "-v", "who=you")
    (source,) = open_store().records()
    refused = divebook("what-if", source.execution_id, *options)
    assert refused.exit_code == 2
    assert message in refused.stderr.replace("\n", " ")
    assert len(open_store().records()) == 1
