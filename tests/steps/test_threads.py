"""Conversations over several runs."""

import subprocess
import sys

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions.functions import workflow
from divebook.errors import NotFoundError, SetupError
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut

TALK = Workflow("talk", [Step("ask", prompt="${inputs.said}", agent="a", thread="t", store="answer")], inputs=["said"])


def world(store=None, script=("one", "two", "three", "four")):
    model = ScriptedModel(list(script))
    given = store if store is not None else MemoryStore()
    return Environment(store=given, agents=[Agent("a", model=model)], workflows=[TALK])


def said(environment, text):
    run = environment.start("talk", {"said": text}).wait(20)
    assert run.status == "completed", run.error
    return run


def texts(messages):
    return [message.text for message in messages if message.role != "system"]


def test_a_turn_begins_with_what_was_said_in_the_runs_before():
    environment = world()
    said(environment, "hello")
    run = said(environment, "and now?")
    (request,) = run.requests
    assert texts(request.said) == ["hello", "one", "and now?", "two"]
    assert texts(environment.threads["t"].messages) == ["hello", "one", "and now?", "two"]
    assert [turn.by for turn in environment.threads["t"].turns][-1] == run.id


def test_the_log_says_what_went_before_once_by_its_hash():
    environment = world()
    said(environment, "hello " * 2_000)
    run = said(environment, "and now?")
    begun = next(data for event in run.history() if getattr(data := event.data, "key", "") == "model-1")
    assert (begun.parameters["kept"], len(begun.parameters["new"])) == (2, 1)


def test_a_thread_goes_on_in_a_function_and_in_another_environment(tmp_path):
    @workflow("chat")
    async def chat(ctx, line: str):
        return await ctx.agent("a").run(line, thread="t")

    place = str(tmp_path / "t.db")
    with Environment(store=place, agents=[Agent("a", model=ScriptedModel(["one"]))]) as environment:
        environment.start(chat, {"line": "hello"}).wait(20)
    with Environment(store=place, agents=[Agent("a", model=ScriptedModel(["two"]))]) as environment:
        run = environment.start(chat, {"line": "again"}).wait(20)
        assert texts(run.conversation)[-2:] == ["again", "two"]
        assert texts(environment.threads["t"].messages) == ["hello", "one", "again", "two"]


def test_a_thread_that_nobody_has_begun_is_not_found():
    environment = world()
    with pytest.raises(NotFoundError, match=r"thread not found: missing \(no thread exists\)"):
        environment.threads["missing"]


def test_a_thread_that_is_not_found_is_told_from_those_that_are_there():
    environment = world()
    said(environment, "hello")
    with pytest.raises(NotFoundError, match=r"thread not found: missing \(known: t\)"):
        environment.threads["missing"]


def test_a_branch_that_is_not_there_ends_the_step_with_its_name():
    environment = world()
    environment.add_workflow(Workflow("talk", [Step("ask", prompt="x", agent="a", thread="t~7")]), replace=True)
    run = environment.start("talk").wait(20)
    assert (run.status, "thread not found: t~7" in run.error) == ("failed", True)


def test_rewinding_is_a_branch_and_the_thread_stays():
    environment = world()
    said(environment, "hello")
    said(environment, "and now?")
    back = environment.threads["t"].branch(1)
    assert (back.id, texts(back.messages)) == ("t@1", ["hello", "one"])
    assert texts(environment.threads["t"].branch(1).messages) == ["hello", "one"], "asked for twice it is the same"
    other = Workflow("talk", [Step("ask", prompt="or?", agent="a", thread="t@1")])
    environment.add_workflow(other, replace=True)
    environment.start("talk").wait(20)
    assert texts(environment.threads["t@1"].messages) == ["hello", "one", "or?", "three"]
    assert len(environment.threads["t"].turns) == 2
    with pytest.raises(SetupError, match="has 2 turns"):
        environment.threads["t"].branch(3)


@pytest.mark.parametrize("name", ["other", "t", "t~2", "again"])
def test_a_branch_is_not_called_as_another_thread_is(name):
    environment = world()
    for text in ("hello", "and now?"):
        said(environment, text)
    thread = environment.threads["t"]
    thread.branch(2, "again")
    thread.branch(2, "other")
    with pytest.raises(SetupError, match=f"after turn 1 of thread t cannot have the id '{name}'"):
        thread.branch(1, name)
    assert [len(environment.threads[found].turns) for found in ("t", "other", "again")] == [2, 2, 2]
    assert environment.threads["other"].branches == ["other"]


def test_a_trimmed_thread_tells_the_latest_turns_only():
    environment = world()
    for line in ("a", "b", "c"):
        said(environment, line)
    assert texts(environment.threads["t"].trim(1).messages) == ["c", "three"]
    run = said(environment, "d")
    assert texts(run.requests[0].said) == ["c", "three", "d", "four"]
    with pytest.raises(SetupError, match="0 turns or more"):
        environment.threads["t"].trim(-1)


def test_two_turns_at_the_same_place_become_branches():
    environment = world()

    def interject() -> str:
        """Have another run speak in the meantime."""
        said(environment, "me first")
        return "done"

    slow = Agent("slow", model=ScriptedModel([{"call": {"interject": {}}}, "late"]), tools=[interject])
    environment.add_agent(slow)
    environment.add_workflow(Workflow("slow", [Step("ask", prompt="wait", agent="slow", thread="t")]))
    run = environment.start("slow").wait(20)
    assert (run.status, environment.threads["t"].branches) == ("completed", ["t", "t~2"])
    assert texts(environment.threads["t"].messages) == ["me first", "one"]
    late = texts(environment.threads["t~2"].messages)
    assert (late[0], late[-1]) == ("wait", "late")
    (told,) = [event.data for event in run.history() if event.event_type == "event_emitted"]
    assert (told.name, told.data) == ("thread_branched", {"thread": "t", "branch": "t~2"})
    environment.add_workflow(Workflow("on", [Step("ask", prompt="go on", agent="a", thread="t~2")]))
    environment.start("on").wait(20)
    assert texts(environment.threads["t~2"].messages) == [*late, "go on", "two"]
    assert environment.threads["t"].branches == ["t", "t~2"]


def test_a_run_whose_process_died_before_it_wrote_down_its_turn_does_so_once():
    environment = world()
    run = said(environment, "hello")
    ended = next(event for event in run.history() if event.event_type == "step_completed")
    left = cut(environment.store, run, ended.sequence - 1)
    other = world(left)
    assert other.run_of(run.id).resume().wait(20).status == "completed"
    assert texts(other.threads["t"].messages) == ["hello", "one"]
    again = world(cut(environment.store, run, ended.sequence - 1))
    assert again.run_of(run.id).resume().wait(20).status == "completed"


APPENDING = """
import sys
from tests.steps.test_threads import append
append(sys.argv[1], "x", lambda: print("ready", flush=True))
"""


def append(place, name, begin):
    agent = Agent("a", model=ScriptedModel(["said"] * 3))
    with Environment(store=place, agents=[agent], workflows=[TALK]) as environment:
        begin()
        for number in range(3):
            assert environment.start("talk", {"said": f"{name}{number}"}).wait(60).status == "completed"


def test_two_processes_append_and_nothing_that_was_said_is_lost(tmp_path):
    place = str(tmp_path / "t.db")
    with subprocess.Popen([sys.executable, "-c", APPENDING, place], stdout=subprocess.PIPE) as other:
        append(place, "y", other.stdout.readline)
    assert other.returncode == 0
    with Environment(store=place) as environment:
        names = environment.threads["t"].branches
        lines = {name: [text for text in texts(environment.threads[name].messages) if text != "said"] for name in names}
    assert {text for line in lines.values() for text in line} == {f"{name}{n}" for name in "xy" for n in range(3)}
    for line in lines.values():
        assert len(set(line)) == len(line)
