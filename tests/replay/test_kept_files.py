"""Files that a run has kept: what is none is said to be none, and names are shown and taken alike."""

import re

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.definitions.resources import WorkspaceDefinition
from divebook.errors import FileOperationError, SetupError
from divebook.text.colours import LIGHT


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "d").mkdir(parents=True)
    (folder / "README").write_text("Adds.\n")
    (folder / "to").symlink_to("README")
    (folder / "\udcff").write_text("odd")
    return folder


@pytest.fixture
def kept(tmp_path, project):
    """Return the files of a run whose agent has written some."""
    written = [{"call": {"replace": {"file_path": path, "content": "x"}}} for path in ("calc.py", "a\n  A forged")]
    definition = WorkspaceDefinition("app", folder=str(project))
    made = Environment(store=tmp_path / "runs.db", workspaces=[definition], approvals=[ApprovalRule("shell")])
    made.add_agent(Agent("coder", model=ScriptedModel(turns=[[*written, "done"]]), workspace="app"))
    made.add_workflow(Workflow("fix", [Step("go", prompt="repair it", agent="coder", store="out")]))
    yield made.run_of(made.start("fix").wait().id).files()
    made.close()


def test_what_is_no_file_is_read_as_none_with_the_reason(kept):
    assert kept.read("\\xff") == kept.read("\udcff") == b"odd"  # as lists show it
    with pytest.raises(FileOperationError, match="it is a folder"):
        kept.read("d")
    with pytest.raises(FileOperationError, match="it is a link to README"):
        kept.read("to")


def test_a_folder_that_is_none_is_said_and_none_is_made_in_vain(kept, project, tmp_path):
    with pytest.raises(SetupError, match="is not a folder"):
        kept.apply(tmp_path / "nowhere")
    with pytest.raises(SetupError, match="is not a folder"):
        kept.restore(project / "README")
    with pytest.raises(SetupError, match="was opened at event"):
        kept.restore(tmp_path / "fresh", 1)
    assert not (tmp_path / "fresh").exists()


def test_one_path_is_a_list_of_one(kept, project):
    assert kept.apply(paths="calc.py").written == ["calc.py"]
    assert (project / "calc.py").read_text() == "x"


def test_lines_that_begin_like_a_header_of_a_patch_are_shown_as_added_and_removed(project, tmp_path):
    (project / "list").write_text("-- so\nlast")
    replaced = {"call": {"replace": {"file_path": "list", "content": "++ more\n"}}}
    definition = WorkspaceDefinition("app", folder=str(project))
    with Environment(workspaces=[definition], approvals=[ApprovalRule("shell")]) as environment:
        environment.add_agent(Agent("coder", model=ScriptedModel(turns=[[replaced, "done"]]), workspace="app"))
        run = environment.start(Workflow("fix", [Step("go", prompt="repair it", agent="coder")])).wait()
        page = environment.run_of(run.id).files().changed()._repr_html_()
    shown = {re.sub("<[^>]*>", "", line): line for line in page.partition("<pre")[2].split("<br>")}
    assert shown["--- so"].count(f"background:{LIGHT['removed-mark']}") == 1
    assert shown["-last"].count(f"background:{LIGHT['removed-mark']}") == 1
    assert shown["+++ more"].count(f"background:{LIGHT['added-mark']}") == 1
    for header in ("--- a/list", "+++ b/list", "\\ No newline at end of file"):
        assert "background:" not in shown[header]


def test_a_name_with_a_line_end_is_one_line_of_a_list(kept):
    assert "  A a\\n  A forged  +1 -0" in str(kept.changed(whole=False)).splitlines()
