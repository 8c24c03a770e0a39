"""A tool gets the execution that calls it as the parameter with the annotation `ToolContext`."""

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.signatures import library_tool
from divebook.definitions import step
from divebook.definitions.functions import takes_of
from divebook.definitions.tools import tool_of
from divebook.errors import DefinitionError
from divebook.events import catalog
from divebook.steps import Action
from divebook.stores import MemoryStore
from divebook.tools import ToolContext


def emitted(execution):
    return [(e.data.name, e.data.data) for e in execution.history() if isinstance(e.data, catalog.EventEmitted)]


def run_tool(function, arguments):
    model = ScriptedModel([{"call": {"report": arguments}}, "done"])
    with Environment(store=MemoryStore(), agents=[Agent("a", model=model, tools=[function])]) as environment:
        execution = environment.start(Workflow("w", [Step("p", prompt="Go", agent="a", store="text")])).wait(20)
        return execution, emitted(execution)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_emits_events_through_its_context(is_async):
    def report(execution: ToolContext, city: str) -> str:
        """Report a city."""
        execution.emit("city", city)
        return execution.run_id

    async def report_async(execution: ToolContext, city: str) -> str:
        """Report a city."""
        return report(execution, city)

    execution, events = run_tool(tool(name="report")(report_async if is_async else report), {"city": "Bonn"})
    assert (execution.status, events) == ("completed", [("city", "Bonn")])


def test_a_model_does_not_see_the_context_of_a_tool():
    @tool
    def report(city: str, execution: "ToolContext") -> str:
        """Report a city."""
        return city

    schema = library_tool(tool_of(report), None).function_schema.json_schema
    assert list(schema["properties"]) == ["city"]


def test_a_parameter_of_a_tool_that_is_only_called_context_is_an_argument_of_the_model():
    @tool
    def report(context: str) -> str:
        """Report a text."""
        return context

    execution, _ = run_tool(report, {"context": "here"})
    assert execution.status == "completed"
    assert list(library_tool(tool_of(report), None).function_schema.json_schema["properties"]) == ["context"]


def test_an_action_gets_its_context_by_annotation_or_by_name():
    def by_annotation(n, execution: ToolContext):
        return execution.run_id

    def by_name(n, context):
        return context.run_id

    for function in (by_annotation, by_name):
        flow = Workflow("w", [Step("s", action="act", parameters={"n": 2}, store="id")])
        with Environment(store=MemoryStore(), actions=[Action("act", function)]) as environment:
            execution = environment.start(flow).wait(20)
            assert execution.variables["id"] == execution.id


def test_a_context_may_be_optional_for_direct_calls():
    @tool
    def report(city: str, execution: ToolContext | None = None) -> str:
        """Report a city."""
        return "no run" if execution is None else execution.run_id

    assert list(library_tool(tool_of(report), None).function_schema.json_schema["properties"]) == ["city"]
    execution, _ = run_tool(report, {"city": "Bonn"})
    results = [e.data.result for e in execution.history() if isinstance(e.data, catalog.OperationCompleted)]
    assert {"result": execution.id} in results


IMPORTED_FOR_TYPES = """
from __future__ import annotations
from typing import TYPE_CHECKING
from divebook import tool
if TYPE_CHECKING:
    from divebook.tools import ToolContext
class Other:
    class ToolContext:
        pass
@tool
def report(city: str, execution: ToolContext) -> str:
    \"\"\"Report a city.\"\"\"
    return execution.run_id
@tool
def other(city: str, execution: Other.ToolContext | None = None) -> str:
    \"\"\"Report a city.\"\"\"
    return city
"""


def test_the_context_may_be_imported_for_type_checkers_only():
    names = {}
    exec(IMPORTED_FOR_TYPES, names)
    assert list(library_tool(tool_of(names["report"]), None).function_schema.json_schema["properties"]) == ["city"]
    execution, _ = run_tool(names["report"], {"city": "Bonn"})
    assert execution.status == "completed"
    assert takes_of(tool_of(names["other"]).function).context == ""


def test_a_step_function_cannot_have_the_context_of_a_tool():
    with pytest.raises(DefinitionError, match="execution of type ToolContext, which only actions and tools receive"):

        @step
        def report(execution: ToolContext):
            """Report."""


def test_a_tool_with_a_context_cannot_run_in_another_process():
    with pytest.raises(DefinitionError, match="remove the parameter execution, or the executor"):

        @tool(executor="process")
        def report(execution: ToolContext) -> str:
            """Report."""
            return ""
