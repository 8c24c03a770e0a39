"""A run as a test: it passes without key or network, and fails at the event, step and line of the first change."""

import importlib
import runpy
import subprocess
import sys

import pytest
from pydantic_ai.messages import ModelResponse, TextPart

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, tool
from divebook.agents.agent import unasked
from divebook.definitions.functions import WORKFLOW_FUNCTIONS, workflow
from divebook.definitions.reader import read_definitions
from divebook.errors import SetupError, StoreError
from divebook.export.pytest import write_test
from divebook.steps.actions import Action
from divebook.stores import MemoryStore

SECRET = "sk-proj-abcdefghij1234567890ABCDEFGH"
SHOP = """\
Agents:
- {Name: poet, Model: "openai:gpt-5-mini"}
Workflows:
- Name: shop
  Inputs: [{Name: api_key}]
  Steps:
  - Name: count
    Script: 1 + 1
    Store: n
  - Name: pay
    Action: pay
    Parameters: {amount: "$(state.n)", token: "$(inputs.api_key)"}
    Store: said
  - Name: tell
    Prompt: Tell of ${state.n}
"""


def shopped(text=SHOP):
    """Run the shop, which pays with a secret once somebody has said yes; return environment and execution."""
    pay = Action("pay", lambda amount, token: f"{amount} by {token}", approval=True)
    made = Environment(store=MemoryStore(), actions=[pay])
    made.define(read_definitions(text))
    if "Prompt" in text:
        made.add_agent(answering(made.internals.registry.agent("poet")), replace=True)
    execution = made.start("shop", {"api_key": SECRET}).wait(20)
    execution.answer(execution.open_questions[0].id, True).wait(20)
    assert execution.status == "completed", execution.error
    return made, execution


def answering(agent):
    """Return an agent that asks a model of the same name, which answers without a key."""
    other = unasked(agent)
    other.model.function = lambda *_: told()
    return other


async def told():
    return ModelResponse(parts=[TextPart("a tale")])


def run_here(file):
    """Run the test in a file, as pytest does."""
    held = runpy.run_path(str(file))
    next(value for name, value in held.items() if name.startswith("test_"))()


def test_pytest_runs_it_and_names_event_step_and_line_of_a_change(tmp_path):
    made, execution = shopped(SHOP.partition("  - Name: tell")[0])  # without a prompt it is quicker
    with made:
        good = write_test(made, execution, tmp_path / "test_good.py")
        bad = write_test(made, execution, tmp_path / "test_bad.py")
    assert all(SECRET not in file.read_text() for file in tmp_path.iterdir())
    changed = bad.with_suffix(".yaml")
    line = next(n for n, text in enumerate(changed.read_text().splitlines(), 1) if "1 + 1" in text)
    changed.write_text(changed.read_text().replace("1 + 1", "1 + 2"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."]
    told = subprocess.run([*command, good.name, bad.name], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in told.stdout, told.stdout + told.stderr
    assert "event 4 (operation_started), step 'count'" in told.stdout
    assert f"test_bad.yaml:{line}:" in told.stdout


def test_it_reads_the_definition_where_that_is_if_it_is_named(tmp_path):
    file = tmp_path / "flows" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(SHOP)
    made, execution = shopped()
    with made:
        test = write_test(made, execution, tmp_path / "test_shop.py", definitions=file)
    assert sorted(found.name for found in tmp_path.iterdir()) == ["flows", "test_shop.jsonl", "test_shop.py"]
    run_here(test)
    file.write_text(SHOP.replace("Tell of", "Speak of"))
    with pytest.raises(AssertionError, match=r"step 'tell', .*flows/shop.yaml:15"):
        run_here(test)


FLOWS = """\
from divebook import Agent, ScriptedModel, tool
from divebook.definitions.functions import step, workflow

@tool
async def weigh(what: str) -> str:
    "Weigh."
    return what * 2

judge = Agent("judge", model=ScriptedModel([{"call": {"weigh": {"what": "a"}}}, "heavy"]), tools=[weigh])

@step
async def double(n: int) -> int:
    return n * 2

@workflow
async def flows_of_a_test(ctx, n: int) -> str:
    found = await double(n)
    return await ctx.agent("judge").run(f"Judge {found}")
"""


@pytest.fixture
def flows(tmp_path, monkeypatch):
    """Return a module with a workflow function and an agent, which tests in the same folder can import."""
    (tmp_path / "flows_of_a_test.py").write_text(FLOWS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("flows_of_a_test")
    del sys.modules["flows_of_a_test"]


def test_workflow_functions_and_agents_made_in_python_are_imported(flows, tmp_path):
    with Environment(store=MemoryStore(), agents=[flows.judge], workflows=[flows.flows_of_a_test]) as made:
        execution = made.start("flows_of_a_test", {"n": 2}).wait(20)
        assert execution.status == "completed", execution.error
        test = write_test(made, execution, tmp_path / "test_flows.py")
    assert 'modules=["flows_of_a_test"]' in test.read_text()
    run_here(test)
    flows.double = None  # what is in the module by now does not matter, but the functions that were registered
    source = tmp_path / "flows_of_a_test.py"
    source.write_text(FLOWS.replace("double(n)", "double(n + 1)"))
    importlib.invalidate_caches()
    del sys.modules["flows_of_a_test"]
    with pytest.raises(AssertionError, match=r"step 'flows_of_a_test', .*flows_of_a_test.py:17"):
        run_here(test)
    source.unlink()
    del sys.modules["flows_of_a_test"]
    with pytest.raises(SetupError, match="'flows_of_a_test' cannot be imported: ModuleNotFoundError"):
        run_here(test)
    sys.modules["flows_of_a_test"] = flows


def test_what_a_test_cannot_import_is_said(tmp_path):
    @workflow(name="of_a_cell")
    async def of_a_cell(ctx) -> int:
        return 1

    @tool
    def weigh(what: str) -> str:
        """Weigh."""
        return what

    WORKFLOW_FUNCTIONS["of_a_cell"].function.__module__ = "__main__"
    agent = Agent("judge", model=ScriptedModel(["yes"]), tools=[weigh])
    asked = Workflow("asked", [Step("ask", agent="judge", prompt="Well?")])
    with Environment(store=MemoryStore(), agents=[agent], workflows=[of_a_cell, asked]) as made:
        for name, what in (("of_a_cell", "workflow function 'of_a_cell'"), ("asked", "agent 'judge'")):
            execution = made.start(name).wait(20)
            assert execution.status == "completed", execution.error
            with pytest.raises(SetupError, match=f"{what} was defined in a notebook or script.* Move it into a module"):
                write_test(made, execution, tmp_path / "test_it.py")
    assert [*tmp_path.iterdir()] == []


def test_it_is_not_written_where_it_would_fail_or_end_nowhere_or_take_the_place_of_another(tmp_path):
    made, execution = shopped()
    with made:
        changed = tmp_path / "changed.yaml"
        changed.write_text(SHOP.replace("1 + 1", "1 + 3"))
        with pytest.raises(SetupError, match=r"(?s)would fail.*event 4.*changed\.yaml:8"):
            write_test(made, execution, tmp_path / "test_it.py", definitions=changed)
        with pytest.raises(SetupError, match=r"is not a Python file; choose a name that pytest finds: test_shop.py"):
            write_test(made, execution, tmp_path / "it.txt")
        waiting = made.start(Workflow("waits", [Step("ask", ask="Well?")])).wait(20)
        with pytest.raises(SetupError, match=r"has not ended \(waiting\)"):
            write_test(made, waiting, tmp_path / "test_it.py")
        assert [found.name for found in tmp_path.iterdir()] == ["changed.yaml"]
        write_test(made, execution, tmp_path / "test_it.py")
        with pytest.raises(StoreError, match="exists already"):
            write_test(made, execution, tmp_path / "test_it.py")
        write_test(made, execution, tmp_path / "test_it.py", overwrite=True)


def test_tools_of_a_notebook_and_a_script_that_was_given_there_are_not_needed(tmp_path, monkeypatch):
    monkeypatch.setattr("divebook.definitions.tools.REGISTERED_TOOLS", {})

    @tool(read_only=True)
    def weigh(what: str, times: int = 2) -> str:
        """Weigh \U0001f40b.

        Args:
            what: Its name.
        """
        return what * times

    flows = """\
Agents:
- {Name: judge, Tools: [weigh], Output: {type: object, properties: {weight: {type: string}}}}
Workflows:
- Name: judged
  Steps:
  - {Name: ask, Each: {Items: "$([1, 2])"}, Agent: judge, Prompt: Well?, Store: said}
"""
    call = {"call": {"weigh": {"what": "a"}}}
    with Environment(store=MemoryStore(), tools=[weigh]) as made:
        made.define(read_definitions(flows))
        script = ScriptedModel(turns=[[call, {"output": {"weight": "aa"}}], [{"output": {"weight": "b"}}]])
        made.add_agent(made.internals.registry.agent("judge").with_script(script), replace=True)
        execution = made.start("judged").wait(20)
        assert execution.variables["said"] == [{"weight": "aa"}, {"weight": "b"}], execution.error
        test = write_test(made, execution, tmp_path / "test_it.py")
    run_here(test)
    text = test.read_text(encoding="utf-8")
    test.write_text(text.replace("Its name.", "Its colour."), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"Its \[-name-\]\{\+colour\+\}|Its colour"):
        run_here(test)
