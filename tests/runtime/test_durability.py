"""How surely the events of an execution are written is its own choice, its environment's, or the settings'."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.reader import read_definitions
from divebook.errors import NotFoundError
from tests.runtime.worlds import Failing, environment

SUM = Workflow("sum", [Step("add", script="1 + 1", store="n")])


def written(execution):
    return execution.store.record(execution.wait(20).id).durability


def test_full_durability_is_the_default():
    assert written(environment(SUM).start("sum")) == "full"


def test_an_execution_an_environment_and_its_settings_may_be_relaxed():
    settings = read_definitions("Name: e\nConfig: {Durability: relaxed}")
    world = environment(SUM, durability="full")
    assert written(world.start("sum", durability="relaxed")) == "relaxed"
    assert written(environment(SUM, durability="relaxed").start("sum")) == "relaxed"
    world.define(settings)
    assert written(world.start("sum")) == "full"
    unsaid = environment(SUM)
    unsaid.define(settings)
    assert written(unsaid.start("sum")) == "relaxed"


def test_what_is_resumed_goes_on_as_it_began():
    failing = Failing()
    workflow = Workflow("w", [Step("a", action="fail")])
    first = environment(workflow, actions=[failing.action()], durability="relaxed").start("w").wait(20)
    failing.broken = False
    again = Environment(store=first.store, actions=[failing.action()]).run_of(first.id).resume()
    assert (again.wait(20).status, again.internals.durability) == ("completed", "relaxed")


def test_an_unknown_durability_starts_nothing():
    world = environment(SUM)
    with pytest.raises(NotFoundError, match="unknown durability 'fast'"):
        world.start("sum", durability="fast")
    with pytest.raises(NotFoundError, match="unknown durability 'fast'"):
        environment(durability="fast")
    assert world.store.records() == []
