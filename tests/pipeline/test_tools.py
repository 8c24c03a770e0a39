"""Tools of a stage are actions, and called like any other."""

import pytest

from divebook import Retry
from divebook.pipeline import Pipeline
from divebook.steps import Action
from tests.pipeline.worlds import envelope, flat, world


def used(tool, **stage):
    """Return what a plan of one step came to, and the environment."""
    config = flat(plan={"default_next": "use"}, use={"has_tools": True, "tool_access": "all", **stage})
    place = world(actions=[tool])
    done = Pipeline(config, mocks={"plan": {"steps": [{"tool": tool.name}]}}, environment=place).run(envelope())
    return done.outputs["use"]["results"][0], place


class Flaky:
    """A tool that fails at first."""

    def __init__(self, failures):
        self.failures, self.calls = failures, 0

    def __call__(self):
        self.calls += 1
        if self.calls <= self.failures:
            raise OSError("down")
        return self.calls


def test_a_tool_is_tried_again_as_its_action_says():
    result, place = used(Action("flaky", Flaky(2), retry=Retry(3, seconds=5, jitter=0)))
    assert (result["success"], result["result"]) == (True, 3)
    assert place._clock.slept == [5, 10]


@pytest.mark.parametrize("retries", [0, 1])
def test_a_stage_that_may_be_tried_again_tries_its_tools_once(retries):
    tool = Flaky(2)
    result, _ = used(Action("flaky", tool, retry=Retry(3)), max_retries=retries)
    assert (result["success"], tool.calls) == ((False, 1) if retries else (True, 3))


class Later:
    """Something that can be called, and whose call is then awaited."""

    async def __call__(self, given):
        return {"asked": given.raw_input}


def test_a_function_may_return_what_is_to_be_awaited():
    done = Pipeline(flat(a={}), services={"a": Later()}).run(envelope())
    assert done.outputs == {"a": {"asked": "Do it"}}
