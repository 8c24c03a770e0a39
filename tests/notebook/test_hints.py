"""The commands in a report can be followed as they are written: in Python, and with ``%dive`` in a notebook."""

import pytest

from divebook import Environment, Step, Workflow, workflow
from divebook.notebook.run_list import Runs
from divebook.steps.actions import Action

ASKED = Workflow("asked", [Step("ask", ask="Which bird?")])
SIGNALLED = Workflow("signalled", [Step("wait", signal="go")])


async def pay():
    """Pay, without an answer of the bank."""
    raise TimeoutError("no answer")


@pytest.fixture
def environment(tmp_path):
    with Environment(store=str(tmp_path / "runs.db")) as environment:
        yield environment


def parent_of(environment, child):
    """Return a run that waits for a run of the workflow `child`."""

    @workflow
    async def parent(ctx):
        await ctx.run(child.name)
        return "done"

    environment.add_workflow(child)
    run = environment.start(parent).wait(20)
    assert run.status == "waiting"
    return run


def hints_of(text, label):
    return [line.partition(label)[2] for line in text.splitlines() if line.startswith(label)]


@pytest.mark.parametrize(("child", "label"), [(ASKED, "to answer: "), (SIGNALLED, "to send it: ")])
def test_the_command_for_a_child_works_as_it_is_written(environment, child, label):
    run = parent_of(environment, child)
    (hint,) = hints_of(str(run), label)
    assert "to continue" not in str(run)
    eval(hint.replace("...", "'an owl'"), {"run": run})
    assert run.result(20) == "done"


def test_a_cancelled_run_is_resumed_before_it_is_answered(environment):
    run = environment.start(ASKED).wait(20)
    assert len(hints_of(str(run), "to answer: ")) == 1
    run.cancel().wait(20)
    assert hints_of(str(run), "to answer: ") == []
    assert hints_of(str(run), "to continue: ") == ["run.resume()"]
    run.resume().wait(20)
    (hint,) = hints_of(str(run), "to answer: ")
    eval(hint.replace("...", "'an owl'"), {"run": run})
    assert run.wait(20).status == "completed"


def test_no_choice_of_several_is_suggested(tmp_path):
    shop = Workflow("shop", [Step("pay", action="Test.Pay")])
    with Environment(store=str(tmp_path / "runs.db"), actions=[Action("Test.Pay", pay)]) as environment:
        run = environment.start(shop).wait(20)
        (question,) = run.open_questions
        text = str(run)
    assert "retry, done or fail" in text
    assert hints_of(text, "to answer: ") == [f"run.answer({question.id!r}, ...)"]


def test_choices_that_the_description_lacks_are_listed(environment):
    @workflow
    async def paint(ctx, colors: list):
        return await ctx.ask("Which color?", data={"choices": colors})

    run = environment.start(paint, {"colors": ["red", "blue"]}).wait(20)
    assert "Which color? (clarification: text; choices: red, blue)" in str(run)
    assert hints_of(str(run), "to answer: ")[0].endswith(", ...)")
    run = environment.start(paint, {"colors": ["red"]}).wait(20)
    assert hints_of(str(run), "to answer: ")[0].endswith(", 'red')")


def test_a_magic_names_the_store_only_if_it_is_not_that_of_the_session(cell, session, environment):
    run = environment.start(ASKED).wait(20)
    (hint,) = hints_of(str(run), "to answer: ")
    assert hint.endswith(f"TEXT --store {environment.store.location}")
    cell(hint.replace("TEXT", "owl"))
    assert run.refresh().wait(20).status == "completed"
    own = session.environment.start(ASKED).wait(20)
    (hint,) = hints_of(str(own), "to answer: ")
    assert hint.endswith("TEXT")


def test_a_hint_about_a_run_in_another_store_in_memory_is_a_call(cell, session):
    with Environment(store="memory:") as other:
        run = other.start(ASKED).wait(20)
        (hint,) = hints_of(str(run), "to answer: ")
        assert hint.startswith("run.answer(")
        eval(hint.replace("...", "'an owl'"), {"run": run})
        assert run.wait(20).status == "completed"


def test_report_and_list_say_that_the_process_of_a_run_ended(environment, tmp_path):
    run = environment.start(Workflow("sums", [Step("sum", script="1 + 1", store="n")])).wait(20)
    begun = [event for event in run.history() if event.sequence <= 2]
    with Environment(store=str(tmp_path / "died.db")) as later:
        later.store.append(run.id, begun, 0)
        died = later.run_of(run.id)
        assert died.status == "interrupted"
        assert "Interrupted: its process ended" in str(died)
        assert "Interrupted: its process ended at " in str(Runs(later))
        (hint,) = hints_of(str(died), "to continue: ")
        eval(hint, {"run": died})
        assert died.wait(20).variables == {"n": 2}
        assert "Interrupted" not in str(died)
