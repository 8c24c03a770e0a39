"""What a workspace has changed is taken over as a person says; functions of a person's own work there too."""

from pathlib import Path

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow, action, tool
from divebook.definitions import ApprovalRule
from divebook.definitions.functions import step, workflow
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.tools import REGISTERED_TOOLS
from divebook.errors import DivebookError, OperationError
from divebook.questions.answer import Typed
from divebook.steps.actions import REGISTERED
from divebook.steps.workspace_actions import MOST_SHOWN
from divebook.stores import MemoryStore
from divebook.workspaces import present_workspace

CHANGES = "sed -i s/-/+/ calc.py; echo new > new.txt; rm README; mkdir -p deep; echo x > deep/x"
ALL = ["README", "calc.py", "deep/x", "new.txt"]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (folder / "README").write_text("Adds.\n")
    return folder


@pytest.fixture
def environment(project):
    with Environment(
        store=MemoryStore(),
        workspaces=[WorkspaceDefinition("app", folder=str(project))],
        approvals=[ApprovalRule("*")],
    ) as made:
        yield made


def changing(environment, *commands, **parameters):
    """Start a workflow that runs commands and takes over what they change after each."""
    steps = []
    for at, command in enumerate(commands):
        steps += [
            Step(f"run{at}", action="Workspace.Shell", parameters={"Command": command}),
            Step(f"take{at}", action="Workspace.Apply", parameters=parameters, store=f"taken{at}"),
        ]
    environment.add_workflow(Workflow("change", steps, workspace="app"))
    return environment.start("change")


def asked(execution):
    (question,) = execution.wait().open_questions
    return question


def answer(execution, response):
    (question,) = execution.open_questions
    execution.answer(question.id, response)


def test_a_person_chooses_among_the_files_with_the_difference_of_each(environment, project):
    execution = changing(environment, CHANGES)
    question = asked(execution)
    assert question.message == "4 files changed in workspace app (+3 -2)"
    assert question.schema["items"]["enum"] == ALL
    shown = {row["path"]: row for row in question.data["files"]}
    assert "-    return a - b\n+    return a + b\n" in shown["calc.py"]["diff"]
    assert (shown["README"]["kind"], shown["new.txt"]["added"]) == ("deleted", 1)
    assert "a - b" in (project / "calc.py").read_text()
    answer(execution, ["calc.py", "new.txt"])
    assert execution.wait().variables["taken0"] == {
        "written": ["calc.py", "new.txt"],
        "there": [],
        "left": ["README", "deep/x"],
    }
    assert "a + b" in (project / "calc.py").read_text()
    assert sorted(path.name for path in project.iterdir()) == ["README", "calc.py", "new.txt"]


def test_the_log_is_followed_again_without_touching_the_folder(environment, project):
    execution = changing(environment, CHANGES)
    asked(execution)
    answer(execution, ALL)
    execution.wait()
    (project / "calc.py").write_text("mine")
    assert environment.run_of(execution.id).verify().divergence is None
    assert (project / "calc.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "written"),
    [("calc.py, new.txt", ["calc.py", "new.txt"]), ("calc.py", ["calc.py"]), ("[]", []), ("['README']", ["README"])],
)
def test_an_answer_may_be_typed(environment, text, written):
    execution = changing(environment, CHANGES)
    asked(execution)
    answer(execution, Typed(text))
    assert execution.wait().variables["taken0"]["written"] == written


def test_a_file_that_has_not_changed_cannot_be_chosen(environment):
    execution = changing(environment, CHANGES)
    asked(execution)
    with pytest.raises(DivebookError, match="does not fit"):
        answer(execution, ["calc.py", "nothing"])
    assert asked(execution).is_open


def test_what_was_taken_over_before_may_be_written_over(environment, project):
    commands = CHANGES, "sed -i s/add/plus/ calc.py; echo Again. > README; rm new.txt"
    execution = changing(environment, *commands, Ask=False)
    assert execution.wait().variables["taken1"]["written"] == ["README", "calc.py"]
    assert (project / "calc.py").read_text() == "def plus(a, b):\n    return a + b\n"
    assert (project / "README").read_text() == "Again.\n"


def test_what_was_shown_is_taken_over_and_not_what_came_after(environment, project):
    @workflow(workspace="app")
    async def go_on(ctx):
        app = ctx.workspace()

        async def change_more():
            await ctx.confirm("Change more?")
            await app.write("calc.py", "other")
            await app.write("new.txt", "new")

        await app.write("calc.py", "shown")
        taken, _ = await ctx.gather(app.apply(), change_more())
        return [taken, await app.read("calc.py")]

    environment.add_workflow(go_on)
    execution = environment.start("go_on").wait()
    questions = {question.question: question.id for question in execution.open_questions}
    execution.answer(questions.pop("Change more?"), True)
    execution.wait()
    (choice,) = questions.values()
    execution.answer(choice, ["calc.py"])
    taken = {"written": ["calc.py"], "there": [], "left": []}
    assert execution.wait().outputs["result"] == [taken, "other"]
    assert (project / "calc.py").read_text() == "shown"
    assert not (project / "new.txt").exists()


def test_hidden_files_are_taken_over_only_if_a_person_selects_them(environment, project):
    command = "echo x > .envrc; mkdir .git; echo x > .git/config; echo new > new.txt"
    execution = changing(environment, command, "true")
    question = asked(execution)
    assert question.schema["items"]["enum"] == [".envrc", ".git/config", "new.txt"]
    assert question.schema["default"] == ["new.txt"]
    assert "2 protected files left out" in question.message
    answer(execution, ["new.txt", ".envrc"])
    asked(execution)
    assert execution.variables["taken0"] == {"written": [".envrc", "new.txt"], "there": [], "left": [".git/config"]}
    assert sorted(path.name for path in project.iterdir()) == [".envrc", "README", "calc.py", "new.txt"]


def test_where_nobody_is_asked_hidden_files_are_left_and_the_result_says_how_to_take_them(environment, project):
    command = "echo x > .envrc; echo new > new.txt"
    taken = changing(environment, command, Ask=False).wait().variables["taken0"]
    assert (taken["written"], taken["left"]) == (["new.txt"], [".envrc"])
    assert taken["left_out"].endswith("To include a file, name the file or its folder: Paths: [.envrc]")
    assert not (project / ".envrc").exists()


def test_paths_name_hidden_files(environment, project):
    command = "mkdir .git; echo x > .git/config; echo new > new.txt"
    taken = changing(environment, command, Ask=False, Paths=[".git/config", "new.txt"]).wait().variables["taken0"]
    assert taken == {"written": [".git/config", "new.txt"], "there": [], "left": []}


def test_a_difference_that_is_too_long_hides_no_other(environment):
    question = asked(changing(environment, f"yes | head -c {MOST_SHOWN} > a.lock; echo x > b.py"))
    assert [(row["path"], row["diff"] is None) for row in question.data["files"]] == [("a.lock", True), ("b.py", False)]


def test_a_file_that_was_changed_in_the_folder_is_not_written_over(environment, project):
    execution = changing(environment, CHANGES)
    asked(execution)
    (project / "calc.py").write_text("mine")
    answer(execution, ["calc.py", "new.txt"])
    assert "have changed in the meantime: calc.py. Nothing was written" in execution.wait().error
    assert (project / "calc.py").read_text() == "mine"
    assert not (project / "new.txt").exists()


def test_nobody_is_asked_where_nothing_has_changed(environment):
    execution = changing(environment, "true")
    assert execution.wait().variables["taken0"] == {"written": [], "there": [], "left": []}


def test_secrets_in_differences_are_not_in_the_log(environment, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", "correct-horse-battery")
    execution = changing(environment, "echo password=correct-horse-battery > new.txt")
    asked(execution)
    raised = [event for event in execution.history() if event.event_type == "interrupt_raised"]
    assert "correct-horse" not in repr(raised)


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"Paths": "calc.py"}, ("must be a list")),
        ({"Ask": "no"}, "true or false"),
        ({"Path": []}, "has no parameter Path"),
    ],
)
def test_a_wrong_parameter_is_told(environment, parameters, told):
    assert told in changing(environment, CHANGES, **parameters).wait().error


def test_a_workspace_that_is_no_copy_has_nothing_to_take_over(environment):
    environment.add_workspace(WorkspaceDefinition("bare"))
    steps = [Step("take", action="Workspace.Apply", workspace="bare")]
    environment.add_workflow(Workflow("w", steps))
    assert "it is not a copy of a folder" in environment.start("w").wait().error


# --- workflow functions, and functions of a person's own ------------------------------------------------------------


def test_a_workflow_function_works_in_a_workspace(environment, project):
    @workflow(workspace="app")
    async def repair(ctx):
        app = ctx.workspace()
        before = await app.read("calc.py")
        await app.write("calc.py", before.replace("-", "+"))
        found, names = await ctx.gather(app.shell("cat calc.py", timeout=30), app.glob("*.py"))
        failed = await app.shell("exit 3", check=False)
        await app.delete("README")
        taken = await app.apply()
        return [found.stdout, names, failed.exit_code, sorted(await app.list()), taken]

    environment.add_workflow(repair)
    execution = environment.start("repair")
    asked(execution)
    answer(execution, ["calc.py"])
    taken = {"written": ["calc.py"], "there": [], "left": ["README"]}
    text = "def add(a, b):\n    return a + b\n"
    assert execution.wait().outputs["result"] == [text, ["calc.py"], 3, ["calc.py"], taken]
    assert (project / "calc.py").read_text() == text
    assert environment.run_of(execution.id).verify().divergence is None


def test_a_command_that_fails_is_an_error_of_the_function(environment):
    @workflow
    async def failing(ctx):
        try:
            await ctx.workspace("app").shell("echo no >&2; exit 3")
        except OperationError as error:
            return str(error)

    environment.add_workflow(failing)
    assert "exit code 3: no" in environment.start("failing").wait().outputs["result"]


def test_functions_of_a_person_work_in_a_workspace(environment, request):
    @action("Count", workspace="")
    async def count():
        return len(await present_workspace().file_operator.list_dir("."))

    @step(workspace="app")
    def mark(text: str):
        Path(present_workspace().root.path, "mark").write_text(text)

    @tool(workspace="", read_only=True)
    async def measure() -> str:
        """Measure."""
        return str((await present_workspace().shell.execute("cat mark")).stdout)

    request.addfinalizer(lambda: (REGISTERED.pop("Count"), REGISTERED_TOOLS.pop("measure")))

    @workflow(workspace="app")
    async def marking(ctx):
        await mark("here")
        return await ctx.agent("coder").run("measure")

    agent = Agent(
        "coder", model=ScriptedModel(turns=[[{"call": {"measure": {}}}, "done"]]), tools=[measure], workspace="app"
    )
    environment.add_agent(agent)
    environment.add_workflow(marking)
    environment.add_workflow(Workflow("count", [Step("count", action="Count", store="n")], workspace="app"))
    assert environment.start("count").wait().variables["n"] == 2
    execution = environment.start("marking").wait()
    assert execution.status == "completed", execution.error
    (changed,) = [event.data for event in execution.history() if event.event_type == "files_changed"]
    assert changed.changes == [{"path": "mark", "kind": "added", "added": 1, "removed": 0}]
    assert [e.data.result for e in execution.history() if e.event_type == "operation_completed"][2] == {
        "result": "here"
    }


def test_a_function_that_works_in_a_workspace_stays_in_this_process(environment):
    @step(workspace="app", executor="process")
    def mark():
        pass

    @workflow
    async def elsewhere(ctx):
        await mark()

    environment.add_workflow(elsewhere)
    assert "exists only in this process (workspace)" in environment.start("elsewhere").wait().error
