"""Plugins of installed packages: one of each group in one workflow, and those that do not work."""

import importlib
import json
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from divebook import Environment, Step, Workflow, action, plugins
from divebook.agents import Agent, ScriptedModel
from divebook.cli.main import app
from divebook.definitions import read_definitions
from divebook.documents import Policy
from divebook.errors import DefinitionError, DivebookError, NotFoundError, SetupError, UnopenableValueError
from divebook.events.codec import decode, encode
from divebook.events.recorded import opened
from divebook.events.values import normalize
from divebook.stores import open_store
from tests.plugins.packages import EXAMPLE, install, install_example

ROOT = EXAMPLE.parents[2]


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder for packages, on the path of this process."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(plugins, "_LOADED", {})
    modules = {*sys.modules}
    yield folder
    for name in {*sys.modules} - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def example(packages):
    install_example(packages)
    return packages


# --- one of each ---

TEXT = """
Name: plugged
Workspaces:
  - Name: box
    Kind: acme_box
Agents:
  - Name: clerk
    Tools: [acme_weather]
    Workspace: box
Workflows:
  - Name: all
    Workspace: box
    Steps:
      - Name: loud
        Type: acme_shout
        Parameters: {Text: hello you}
        Store: text
      - Name: price
        Action: Price
        Store: price
      - Name: mark
        Action: Workspace.Read
        Parameters: {Path: mark.txt}
        Store: mark
      - Name: sky
        Agent: clerk
        Prompt: How is the weather?
        Store: sky
      - Name: ask
        Type: interrupt
        Ask: {Kind: clarification, Question: "Who?"}
        Store: who
"""


def test_one_workflow_uses_a_plugin_of_each_group(example, tmp_path):
    questions = tmp_path / "questions.txt"
    store = open_store(f"acme://{tmp_path / 'runs'}")
    import acme_divebook

    @action("Price")
    def price():
        return acme_divebook.Money(250, "EUR")

    script = [{"call": {"acme_weather": {"city": "Bonn"}}}, "sunny"]
    definitions = read_definitions(TEXT)
    with Environment(
        store=store, notify=f"acme://{questions}", actions=[price], policy=Policy("programs")
    ) as environment:
        environment.define(definitions)
        environment.add_agent(
            Agent(environment.definitions.agents["clerk"].definition, model=ScriptedModel(turns=[script])), replace=True
        )
        execution = environment.start("all").wait(20)
        assert execution.status == "waiting", execution.error
        variables = dict(execution.variables)
        ((execution_id, question_id),) = environment.store.asking()
        environment.answer(f"{question_id}@{execution_id}", "Ada")
        assert execution.wait(20).status == "completed"
    assert variables["text"] == "HELLO YOU"
    assert variables["price"] == acme_divebook.Money(250, "EUR")
    assert variables["mark"] == "box"
    assert variables["sky"] == "sunny"
    assert questions.read_text() == "Who?\n"
    assert len(list((tmp_path / "runs").glob("exec_*.jsonl"))) == 1


def test_values_come_back_and_show_their_plain_form_without_the_plugin(example, monkeypatch):
    import acme_divebook

    money = acme_divebook.Money(1, "EUR")
    recorded = normalize({"price": money})
    line = encode(recorded)
    assert json.loads(line) == {
        "price": {
            "$type": "plugin",
            "value": {
                "class": "acme_divebook.Money",
                "content": {"cents": 1, "currency": "EUR"},
                "distribution": "acme-divebook 1.0",
            },
        }
    }
    assert opened(decode(line)) == {"price": money}
    assert "plugin missing" not in repr(decode(line)["price"])
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(example)])
    value = decode(line)["price"]
    assert value.plain() == {"cents": 1, "currency": "EUR"}
    assert repr(value).endswith("(plugin missing: acme-divebook 1.0)")
    with pytest.raises(UnopenableValueError, match=r"its plugin is missing; install acme-divebook 1\.0"):
        value.to_python()


# --- nothing is loaded that is not needed ---


def test_importing_divebook_and_running_scans_no_packages():
    code = (
        "import sys, divebook, divebook.plugins as p\n"
        "e = divebook.Environment(store='memory:')\n"
        "w = divebook.Workflow('w', [divebook.Step('a', script='1')])\n"
        "e.start(w).wait(10)\n"
        "assert p._scan.cache_info().misses == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plugin_replaces_nothing(packages):
    install(
        packages,
        "usurper",
        {plugins.STORES: {"sqlite": "usurper:f"}, plugins.STEP_TYPES: {"script": "usurper:f"}},
        "raise RuntimeError",
    )
    with Environment(store="memory:") as environment:
        execution = environment.start(Workflow("w", [Step("a", script="1 + 1", store="n")])).wait(10)
    assert execution.variables == {"n": 2}
    assert "usurper" not in sys.modules


def test_listing_imports_nothing(packages):
    install(packages, "slow", {plugins.STORES: {"slow": "slow:f"}}, "import time\ntime.sleep(600)\n")
    began = time.monotonic()
    assert "slow" in plugins.names(plugins.STORES)
    assert plugins.distribution_of(plugins.STORES, "slow") == "slow 1.0"
    with pytest.raises(SetupError, match=r"no store for 'other://x'.*slow://"):
        open_store("other://x")
    assert time.monotonic() - began < 60
    assert "slow" not in sys.modules


def test_a_package_that_is_installed_meanwhile_is_found(packages):
    with pytest.raises(SetupError):
        open_store("late://x")
    install(
        packages,
        "late",
        {plugins.STORES: {"late": "late:make"}},
        "from divebook.stores import MemoryStore\ndef make(url): return MemoryStore()\n",
    )
    importlib.invalidate_caches()
    with open_store("late://x") as store:
        assert store.records() == []


# --- plugins that do not work ---

BROKEN = {
    "raises at import": ("raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence"),
    "ends the process": ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
    "has no such attribute": ("", "cannot be loaded: AttributeError"),
    "needs a library": ("import no_such_library", "cannot be loaded: ModuleNotFoundError: No module named"),
    "is no function": ("f = 5", "has the wrong form: it cannot be called"),
    "takes no argument": ("def f(): ...", "has the wrong form: it takes (), but is called with (argument1)"),
    "is a coroutine function": ("async def f(url): ...", "is called without `await`"),
    "returns no store": ("def f(url): return 5", "the return value of the factory of bad://x must be"),
}


@pytest.mark.parametrize(("code", "expected"), BROKEN.values(), ids=BROKEN)
def test_a_broken_plugin_is_named_with_its_package_and_breaks_nothing_else(packages, code, expected):
    install(packages, "bad", {plugins.STORES: {"bad": "bad:f"}}, code or "\n")
    install(
        packages,
        "good",
        {plugins.STORES: {"good": "good:f"}},
        "from divebook.stores import MemoryStore\ndef f(url): return MemoryStore()\n",
    )
    with pytest.raises(SetupError) as refused:
        open_store("bad://x")
    assert expected in str(refused.value)
    if "the return value" not in expected:
        assert "the plugin 'bad' of bad 1.0 (entry point bad:f in divebook.stores)" in str(refused.value)
    with open_store("good://x") as store:
        assert store.records() == []


def test_two_packages_with_one_name_are_named(packages):
    for name in ("one", "two"):
        install(packages, name, {plugins.TOOLS: {"search": f"{name}:f"}}, "def f(): ...\n")
    with pytest.raises(SetupError, match=r"several packages have a plugin 'search' in divebook.tools: .*Uninstall"):
        plugins.find(plugins.TOOLS, "search")
    assert all(status.error for status in plugins.check_plugins() if status.plugin.name == "search")


WRONG = {
    plugins.TOOLS: ("f = 5", "a tool must be a function, not 5"),
    plugins.STEP_TYPES: ("def f(context): ...", "it is not a coroutine function"),
    plugins.WORKSPACES: ("def f(folder): ...", "it takes (folder)"),
    plugins.NOTIFIERS: ("f = None", "it cannot be called"),
    plugins.VALUES: ("f = print", "a pair of functions (to plain data, from plain data)"),
}


@pytest.mark.parametrize(("group", "code", "expected"), [(group, *row) for group, row in WRONG.items()])
def test_each_group_checks_the_form_of_its_plugins(packages, group, code, expected):
    install(packages, "bad", {group: {"bad": "bad:f"}}, code)
    with pytest.raises(SetupError) as refused:
        plugins.find(group, "bad")
    assert expected in str(refused.value)


def test_a_step_of_a_missing_or_broken_plugin_is_refused_before_a_run_starts(packages):
    with pytest.raises(DefinitionError, match='unsupported step type "odd"'):
        Workflow("w", [Step("a", type="odd")])
    install(packages, "odd", {plugins.STEP_TYPES: {"odd": "odd:f"}}, "raise RuntimeError('broken')")
    importlib.invalidate_caches()
    plugins.check_plugins()
    workflow = Workflow("w", [Step("a", type="odd")])
    with Environment(store="memory:") as environment:
        with pytest.raises(SetupError, match="cannot be loaded: RuntimeError: broken"):
            environment.start(workflow)
        assert environment.store.records() == []


def test_an_agent_with_an_unknown_tool_still_gets_the_error_of_before(packages):
    with Environment(store="memory:") as environment:
        environment.add_agent(Agent("a", tools=["no_such"]))
        with pytest.raises(NotFoundError, match="names an unknown tool: no_such"):
            environment.start(Workflow("w", [Step("s", agent="a", prompt="x")]))


def test_a_value_whose_plugin_fails_is_refused_with_its_reason(packages):
    code = "class C: ...\ndef broken(v): raise ValueError('no')\nPAIR = (broken, broken)\n"
    install(packages, "vals", {plugins.VALUES: {"vals.C": "vals:PAIR"}}, code)
    import vals

    with pytest.raises(DivebookError, match=r"the plugin for vals\.C raised ValueError: no"):
        normalize(vals.C())


def test_doctor_lists_plugins(example):
    install(example, "bad", {plugins.STORES: {"bad": "bad:f"}}, "raise RuntimeError('no licence')")
    shown = CliRunner().invoke(app, ["doctor"], catch_exceptions=False)
    text = " ".join(shown.output.split())
    assert "the plugin 'acme_weather' of acme-divebook 1.0 (entry point acme_divebook:weather" in text
    assert "the plugin 'bad' of bad 1.0 (entry point bad:f in divebook.stores) cannot be loaded" in text


def test_the_page_shows_the_example():
    page = (ROOT / "notebooks" / "reference" / "extending.md").read_text(encoding="utf-8")
    for language, file in (("toml", EXAMPLE / "pyproject.toml"), ("python", EXAMPLE / "acme_divebook" / "__init__.py")):
        blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        assert any(block in file.read_text(encoding="utf-8") for block in blocks)
    assert {group for group in plugins.GROUPS if f"| `{group}` |" in page} == {*plugins.GROUPS}
