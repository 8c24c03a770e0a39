"""Executions at rest as version 0.1 left them, an event a row; how `recorded/resting.sql` was made.

They wait for answers, a signal and a child, are paused, cancelled or failed after retries, hold large values several
times, and stand in the middle of a workflow function. `python -m tests.store.resting FOLDER` made it, by the code of
then.
"""

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from threading import Event

from divebook import Each, Environment, Retry, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from tests.store.corpus import frames_of

WORKFLOWS = [
    Workflow(
        "side by side",
        [
            Step("begin", action="note", parameters={"text": "begin"}, next=["left", "right"]),
            Step("left", ask="Left?", store="left", next="join"),
            Step("right", ask="Right?", store="right", next="join"),
            Step("join", action="note", parameters={"text": "${state.left} ${state.right}"}, store="both", join=True),
        ],
    ),
    Workflow(
        "items",
        [
            Step("ask", ask="How many ${name}?", each=Each(["a", "b", "c"], as_="name", parallel=3), store="counts"),
            Step("after", action="note", parameters={"text": "$(state.counts)"}, store="noted"),
        ],
    ),
    Workflow(
        "signalled",
        [Step("wait", type="wait", signal="go", store="sent"), Step("after", action="note", parameters={"text": "x"})],
    ),
    Workflow("parent", [Step("sub", type="workflow", workflow="child"), Step("end", script="'over'", store="end")]),
    Workflow("child", [Step("ask", ask="Child?", store="said")], outputs=["said"]),
    Workflow(
        "paused", [Step("hold", action="hold"), Step("after", action="note", parameters={"text": "p"}, store="p")]
    ),
    Workflow("retried", [Step("fail", action="broken", retry=Retry(2, seconds=0), store="x")]),
    Workflow("cancelled", [Step("ask", ask="Go?", store="go")]),
    Workflow(
        "large",
        [
            Step("make", action="rows", store="rows"),
            Step("again", script="state.rows", store="same"),
            Step("ask", ask="Fine?", store="fine"),
            Step("count", script="len(state.rows) + len(state.same)", store="n"),
        ],
    ),
]


class Notes:
    """The actions; broken until they are mended."""

    def __init__(self, *, mended):
        self.mended = mended
        self.called = []
        self.begun, self.released = Event(), Event()

    def note(self, text):
        self.called.append(str(text))
        return str(text)

    def broken(self):
        self.called.append("broken")
        if not self.mended:
            raise ValueError("no such file")
        return "mended"

    def rows(self):
        self.called.append("rows")
        return [{"n": number, "text": f"{number}" * 40} for number in range(3000)]

    def hold(self):
        self.called.append("hold")
        self.begun.set()
        assert self.released.wait(20)

    def all(self):
        return [Action(name, getattr(self, name)) for name in ("note", "broken", "rows", "hold")]


def function(called):
    """Return a workflow function that stands after three calls, before one."""

    @step
    def twice(number):
        called.append(f"twice {number}")
        return number * 2

    @workflow(name="counting")
    async def counting(ctx):
        first = await twice(1)
        others = await ctx.gather(twice(2), twice(3))
        said = await ctx.ask("Go on?")
        return [first, *others, said, await twice(4)]

    return counting


def world(store, notes):
    function(notes.called)
    return Environment(store=store, workflows=WORKFLOWS, actions=notes.all())


def leave(environment, notes):
    """Bring each execution to where it rests; return their ids by name."""
    resting = {name: environment.start(name).wait() for name in ("side by side", "items", "signalled", "parent")}
    for name in ("retried", "cancelled", "large", "counting"):
        resting[name] = environment.start(name).wait()
    resting["side by side"].answer(resting["side by side"].open_questions[0].id, "l", by="ann").wait()
    resting["items"].answer(resting["items"].open_questions[1].id, "2", by="ann").wait()
    resting["paused"] = environment.start("paused")
    assert notes.begun.wait(20)
    resting["paused"].pause("for the corpus")
    notes.released.set()
    resting["paused"].wait()
    resting["cancelled"].cancel("for the corpus").wait()
    return {name: execution.id for name, execution in resting.items()}


def main():
    folder = Path(sys.argv[1])
    path = folder / "resting.db"
    with SqliteStore(path) as store:
        notes = Notes(mended=False)
        environment = world(store, notes)
        ids = leave(environment, notes)
        ids["child"] = next(record.execution_id for record in store.records() if record.workflow_name == "child")
        frames = {name: frames_of(store, execution_id) for name, execution_id in ids.items()}
        environment.close()
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        head = f"PRAGMA application_id = {mark};\nPRAGMA user_version = {version};\n"
        (folder / "resting.sql").write_text(head + "\n".join(connection.iterdump()) + "\n")
    (folder / "resting.json").write_text(json.dumps({"ids": ids, "frames": frames}, indent=1) + "\n")


if __name__ == "__main__":
    main()
