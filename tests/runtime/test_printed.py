"""What commands print in workspaces is heard while they run, and only the end of a flood is held."""

import asyncio
import os
import threading

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import WorkspaceDefinition, step, workflow
from divebook.runtime.streaming import MOST_HELD, TextStreams
from divebook.workspaces import present_workspace


class Printed:
    """What the commands of a run print, as somebody hears it who lets each go on once it has printed a word."""

    def __init__(self, execution, gate):
        self.text, self.log_before, self._gate, self._execution = "", "", gate, execution
        execution.subscribe_text(self, parts=True)

    def __call__(self, delta):
        if delta.part == "output":
            self.text = self.text[: delta.at] + delta.text
            if "begun" in delta.text:
                self.log_before = str(self._execution.store.read(self._execution.id))
                threading.Thread(target=self._gate.write_text, args=["go on\n"]).start()


@pytest.mark.parametrize("made_by", ["an agent's tool", "a workflow function", "a function of one's own"])
def test_what_a_command_prints_is_heard_while_it_runs(tmp_path, made_by):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    command = f"echo begun; cat {gate}; printf '\\033[31mended' >&2"
    turns = [[{"call": {"shell": {"command": command}}}, "done"]]

    @workflow(workspace="app")
    async def by_function(ctx):
        return (await ctx.workspace().shell(command)).stdout

    @step(workspace="app")
    async def ours():
        return (await present_workspace().shell.execute(command)).stdout

    @workflow
    async def by_own(ctx):
        return await ours()

    asking = Workflow("fix", [Step("go", prompt="repair it", agent="coder")])
    name = {"an agent's tool": "fix", "a workflow function": "by_function"}.get(made_by, "by_own")
    with Environment(
        store="memory:",
        workspaces=[WorkspaceDefinition("app")],
        agents=[Agent("coder", model=ScriptedModel(turns=turns), workspace="app", approvals=[{"tool": "shell"}])],
        workflows=[asking, by_function, by_own],
    ) as made:
        execution = made.create(name)
        printed = Printed(execution, gate)
        assert execution.start().wait(60).status == "completed"
        assert "go on" in str(made.store.read(execution.id))
    assert printed.log_before
    assert "go on" not in printed.log_before
    assert printed.text == "begun\ngo on\n\x1b[31mended"


def test_only_the_end_of_a_flood_is_held_for_those_who_come_later():
    streams, heard = TextStreams(), []

    async def flood(write):
        for number in range(300):
            write(f"{number} " + "x" * 10_000, "output")
        streams.subscribe("exec", heard.append, parts=True)

    asyncio.run(streams.hand_on("exec", "op", flood))
    (delta,) = heard
    assert MOST_HELD - 20_000 < len(delta.text) <= MOST_HELD
    assert delta.at + len(delta.text) == sum(len(f"{number} ") + 10_000 for number in range(300))
