"""What servers have to read, as documents of the environment, and their prompts."""

import pytest

from divebook import Agent, ScriptedModel, Step, Workflow
from divebook.errors import NotFoundError, ServerError, SetupError
from tests.runtime.worlds import environment
from tests.tools.conftest import defined

TODAY = "mcp://good/notes://today"
READ = Workflow("read", [Step("read", action="Document.Read", parameters={"Path": TODAY}, store="said")])
TOLD = Workflow("told", [Step("told", prompt="Go", content=[{"document": TODAY}], agent="a")])
CALL = {"call": {"read_document": {"path": TODAY}}}
SCRIPT = Workflow("script", [Step("read", script=f"documents.get('{TODAY}').content", store="said")])
LOOK = Workflow("look", [Step("look", prompt="Go", agent="a", store="said")])


@pytest.fixture(scope="module")
def here():
    agent = Agent("a", model=ScriptedModel([CALL, "done"]), tools=["read_document"])
    with environment(
        READ, TOLD, SCRIPT, LOOK, agents=[agent], servers=[defined("good.py", name="good"), defined("rough.py")]
    ) as made:
        yield made


def test_resources_are_documents_that_are_only_read(here):
    found = here.definitions.documents.get(TODAY)
    assert (found.name, found.path, found.content) == ("today", "notes://today", "# Today\nNothing.")
    assert (found.id, found.content_type) == (TODAY, "text/markdown")
    assert here.definitions.documents.list("mcp://good/") == ["mcp://good/notes://bytes", TODAY]
    assert here.definitions.documents.get("mcp://good/notes://bytes").content.startswith(
        "[Binary resource notes://bytes"
    )
    for change in (here.definitions.documents.delete, lambda path: here.definitions.documents.put(path, "x")):
        with pytest.raises(SetupError, match="is read-only"):
            change(TODAY)


def test_a_document_may_have_a_name(here):
    here.definitions.documents.register("today", TODAY)
    assert here.definitions.documents.get("today").content.startswith("# Today")


def test_actions_scripts_and_tools_read_them_and_the_log_has_what_they_read(here):
    execution = here.start("read").wait(60)
    assert execution.variables == {"said": "# Today\nNothing."}, execution.error
    assert here.start("script").wait(60).variables == {"said": "# Today\nNothing."}
    execution = here.start("look").wait(60)
    assert "# Today" in str(execution.requests[-1].messages), execution.error


def test_content_is_no_place_for_what_takes_long(here):
    assert "MCP servers are not available here" in here.start("told").wait(60).error


def test_what_cannot_be_read_is_said(here):
    with pytest.raises(ServerError, match="MCP read_resource failed for server good: Unknown resource"):
        here.definitions.documents.get("mcp://good/notes://tomorrow")
    with pytest.raises(ServerError, match="MCP list_resources failed for server s: not supported"):
        here.internals.registry.servers["s"].resources()
    with pytest.raises(NotFoundError, match="nowhere"):
        here.definitions.documents.get("mcp://nowhere/x")


def test_prompts_are_listed_and_rendered(here):
    good = here.internals.registry.servers["good"]
    assert good.prompts() == [{"name": "review", "description": "Ask for a review.", "arguments": ["path"]}]
    assert good.prompt("review", path="a.py") == [{"role": "user", "content": "Review a.py."}]
    assert [found["name"] for found in good.resources()] == ["today", "some_bytes"]
