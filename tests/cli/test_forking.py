"""`divebook fork`: what it begins, and what it says of a fork that cannot be."""

import pytest

from divebook.stores import open_store
from tests.cli.conftest import write


def test_fork_goes_on_from_an_event_with_another_input(divebook, hello):
    divebook("run", hello, "-v", "who=you")
    source = open_store().records()[0].execution_id
    forked = divebook("fork", source, "--at", "2", "--input", "who=me", "--quiet")
    assert forked.exit_code == 0, forked.output
    assert "1 output:\n  greeting = hello me hello me" in forked.stdout
    newest = open_store().records()[0]
    assert (newest.origin, newest.parent) == ("fork", source)


def test_a_fork_whose_agents_are_not_there_says_to_name_their_file(divebook, folder):
    text = """
Agents: [{Name: poet}]
Workflows:
  - Name: a
    Inputs: [{Name: n}]
    Steps: [{Name: s, Script: 1 / inputs.n}, {Name: ask, Agent: poet, Prompt: hi}]
"""
    divebook("run", write(folder / "a.yaml", text), "-v", "n:=0")
    source = open_store().records()[0].execution_id
    refused = divebook("fork", source, "--at", "2", "--input", "n=1")
    assert refused.exit_code == 2
    assert "poet" in refused.stderr
    assert "name the file that defines them with -d FILE or --actions" in refused.stderr.replace("\n", " ")
    assert len(open_store().records()) == 1
    assert divebook("fork", source, "-d", folder / "a.yaml", "--at", "2", "--input", "n=1").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--at", "900"], "after one of its events, 1 to "),
        (["--set", "who"], "write NAME=VALUE, for example --set city=Bonn"),
        (["--input", "whom=me"], "there is no input 'whom' to change"),
        (["--set", "n=[1"], "write the value in YAML"),
        (["--result", "op_1=3"], "the result of op_1 cannot be changed at event "),
        (["--answer", "ask_1=yes"], "question ask_1 has not been asked yet at event "),
    ],
)
def test_a_fork_that_cannot_be_says_why_and_starts_nothing(divebook, hello, options, message):
    divebook("run", hello, "-v", "who=you")
    (source,) = open_store().records()
    refused = divebook("fork", source.execution_id, *options)
    assert refused.exit_code == 2
    assert message in refused.stderr.replace("\n", " ")
    assert len(open_store().records()) == 1
