"""Required strings of definition classes: another value is an error where the definition is created."""

from dataclasses import MISSING, fields
from importlib import import_module
from typing import get_type_hints

import pytest

import divebook
from divebook.definitions.stored_form import Definition
from divebook.errors import DefinitionError, SetupError

MODULES = ("definition", "pipelines", "resources", "servers", "step", "tools")


def classes():
    modules = [vars(import_module(f"divebook.definitions.{name}")).values() for name in MODULES]
    definitions = {
        each for values in modules for each in values if isinstance(each, type) and issubclass(each, Definition)
    }
    # A sketch of a pipeline is a workflow, and its errors are those of workflows.
    return sorted(
        (each for each in definitions if each.__name__ not in ("Definition", "Sketch")), key=lambda each: each.__name__
    )


def required(cls):
    """Return the fields without a default, and of these those that hold strings."""
    hints = get_type_hints(cls)
    names = [
        each.name for each in fields(cls) if each.init and each.default is MISSING and each.default_factory is MISSING
    ]
    return names, [name for name in names if hints[name] is str]


CASES = [(cls, name) for cls in classes() for name in required(cls)[1]]


def test_there_are_such_classes():
    assert {"Catch", "Edge", "InputDefinition", "OutputDefinition", "Rollback", "Step"} <= {
        c.__name__ for c, _ in CASES
    }


@pytest.mark.parametrize("value", [None, 5, ["a"]], ids=str)
@pytest.mark.parametrize(("cls", "name"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_a_required_string_is_checked_where_it_is_given(cls, name, value):
    arguments = dict.fromkeys(required(cls)[0], "x")
    with pytest.raises(DefinitionError) as caught:
        cls(**{**arguments, name: value})
    assert repr(value) in str(caught.value)
    assert name in str(caught.value)
    assert f"{cls.__name__}(" in str(caught.value)


@pytest.mark.parametrize("listener", [None, 5, "text"])
@pytest.mark.parametrize("method", ["subscribe", "subscribe_text"])
def test_a_listener_of_a_run_is_a_function(method, listener):
    environment = divebook.Environment(store="memory:")
    done = environment.start(divebook.Workflow("sum", [divebook.Step("add", script="1 + 1")]))
    done.wait()
    with pytest.raises(SetupError, match="listener"):
        getattr(done, method)(listener)
