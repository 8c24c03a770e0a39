"""An AttributeError inside a property of an object with its own messages for missing attributes."""

import pytest

import divebook
from divebook.errors import missing_attribute


class Handle:
    value: object

    @property
    def broken(self):
        return self.value.nothing

    def __getattr__(self, name):
        raise missing_attribute(self, name)


def test_the_error_of_a_property_is_shown_as_it_is():
    handle = Handle()
    handle.value = 1
    with pytest.raises(AttributeError, match="'int' object has no attribute 'nothing'"):
        _ = handle.broken
    with pytest.raises(AttributeError, match="Handle has no attribute 'brokn'; did you mean 'broken'"):
        _ = handle.brokn


def test_an_error_inside_a_property_of_a_run_is_not_hidden(monkeypatch):
    environment = divebook.Environment(store="memory:")
    run = environment.start(divebook.Workflow("sum", [divebook.Step("add", script="1 + 1")])).wait()

    def broken(self):
        raise AttributeError("the fault inside")

    monkeypatch.setattr(type(run), "workflow", property(broken))
    with pytest.raises(AttributeError, match=r"^the fault inside$"):
        _ = run.workflow
    with pytest.raises(AttributeError, match="Run has no attribute 'workflw'"):
        _ = run.workflw
