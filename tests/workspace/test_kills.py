"""A coding agent that is killed at work: `python -m tests.workspace.kills` kills it fifty times."""

from tests.workspace import kills


def test_a_killed_agent_comes_to_the_same_files():
    seen, wrong = kills.main(2)
    assert wrong == []
    assert seen["lost"] == 0
