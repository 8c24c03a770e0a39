"""What a notebook keeps of changed files for those who have no extension: a table, with the difference of each."""

import pytest

from divebook import Environment, Step, Workflow
from divebook.analysis.run_report import MAX_DIFFERENCES, MAX_FILES, report_of
from divebook.definitions import WorkspaceDefinition
from divebook.projections.summary import ReadLog


@pytest.fixture
def ran(tmp_path):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a.txt").write_text("old\n")
    environments = []

    def run(command):
        definition = WorkspaceDefinition("app", folder=str(tmp_path / "project"))
        environments.append(Environment(store="memory:", workspaces=[definition]))
        step = Step("s", action="Workspace.Shell", parameters={"Command": command})
        execution = environments[-1].start(Workflow("w", [step], workspace="app")).wait(20)
        assert execution.status == "completed", execution.error
        report = report_of(execution, ReadLog.of(execution.history()))
        return report._repr_html_(), str(report)

    yield run
    for environment in environments:
        environment.close()


def test_changed_files_are_kept_with_their_differences_and_what_is_not_kept_is_named(ran):
    html, text = ran("echo '<b>new</b>' > a.txt; echo x > b; mkfifo pipe")
    assert "Changed files (2)" in html
    assert "&lt;b&gt;new&lt;/b&gt;" in html
    assert "<b>new" not in html
    assert "not stored: pipe (not a file, folder or link)" in html
    lines = [line.strip() for line in text.splitlines()]
    assert "workspace app: 2 files changed (+2 -1), from event" in text
    assert "M a.txt  +1 -1" in lines
    assert "not stored: pipe (not a file, folder or link)" in lines


def test_nothing_is_said_of_files_where_none_has_changed(ran):
    html, text = ran("true")
    assert "hanged files" not in html
    assert "workspace app" not in text


def test_of_many_files_the_first_are_kept_and_of_long_differences_the_names(ran):
    html, text = ran(
        f"yes | head -c {2 * MAX_DIFFERENCES} > a.txt; for n in $(seq {MAX_FILES + 7}); do echo $n > f$n; done"
    )
    total = MAX_FILES + 8
    assert f"{total} files changed, of which the first {MAX_FILES} are shown" in text
    assert "Too long to show here: run.files().changed() shows it." in html
    assert len(html) < 4 * MAX_DIFFERENCES
