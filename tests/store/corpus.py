"""Executions as the store wrote them when each event was a row of its own; how `recorded/corpus.sql` was made.

It holds what runs leave behind: a question that waits, items of which one fails, paths side by side, large values, a
failed run, and sealed values. `python -m tests.store.corpus FOLDER` made it, by the code of then.
"""

import json
import sqlite3
import sys
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from divebook import Each, Environment, Step, Workflow
from divebook.analysis.store import Frames
from divebook.steps.actions import Action
from divebook.stores import SqliteStore
from divebook.stores.codec import FernetCodec

KEY = "b2xkLWtleS1vZi10aGUtY29ycHVzLTAxMjM0NTY3ODk="
"""What the sealed execution is encrypted with."""
FRAMES = ("events", "operations", "messages", "items", "steps")

WORKFLOWS = {
    "asking": [
        Step("make", action="rows", store="rows", next=["count"]),
        Step("count", script="len(state.rows)", store="n", next=["ask"]),
        Step("ask", ask="Fine?", store="fine", next=["after"]),
        Step("after", action="label", parameters={"item": "$(state.n)"}, store="label"),
    ],
    "items": [
        Step("all", action="odd", parameters={"item": "$(item)"}, each=Each([1, 2, 3, 5], as_="item", parallel=2))
    ],
    "paths": [
        Step("start", action="rows", next=["left", "right"]),
        Step("left", script="'l' * 10", store="left", end=True),
        Step("right", script="{'deep': [1, 2.0, None]}", store="right", end=True),
    ],
    "failing": [Step("make", script="1 + 1", store="two", next=["fail"]), Step("fail", action="broken", store="x")],
}


class Acts:
    """The actions; broken until they are mended."""

    def __init__(self, *, mended):
        self._mended = mended
        self.called = []

    def rows(self):
        self.called.append("rows")
        return [{"n": number, "text": f"{len(self.called)}" * 40} for number in range(2000)]

    def label(self, item):
        self.called.append("label")
        return f"label {item}"

    def odd(self, item):
        self.called.append("odd")
        if item % 2 == 0 and not self._mended:
            raise ValueError(f"{item} is even")
        return {"item": item, "half": item / 2}

    def broken(self):
        self.called.append("broken")
        if not self._mended:
            raise ValueError("no such file")
        return "mended"

    def all(self):
        return [Action(name, getattr(self, name)) for name in ("rows", "label", "odd", "broken")]


def world(store, acts):
    return Environment(store=store, actions=acts.all())


LATER = {"messages": ["request", "tool"], "steps": ["error_type"]}
"""Columns that frames have got since the oldest corpus was recorded."""
FILLED = {"steps": ["traceback"]}
"""Columns that said nothing of old logs then; now a step has the traceback of the call that failed in it."""


def frames_of(store, execution_id):
    """Return the frames of an execution as text, with the columns of the oldest corpus; of a long one, its digest."""
    frames = Frames(store, [store.record(execution_id)])
    tables = {name: getattr(frames, name).drop(columns=LATER.get(name, [])) for name in FRAMES}
    for name, columns in FILLED.items():
        tables[name][columns] = None
    texts = {name: table.to_json(orient="split", date_format="iso", date_unit="us") for name, table in tables.items()}
    return {name: text if len(text) < 10_000 else sha256(text.encode()).hexdigest() for name, text in texts.items()}


def main():
    folder = Path(sys.argv[1])
    path = folder / "corpus.db"
    frames = {}
    with SqliteStore(path) as store:
        environment = world(store, Acts(mended=False))
        for name, steps in WORKFLOWS.items():
            if name == "paths":
                store.sealing.codec = FernetCodec(KEY)
            execution = environment.start(Workflow(name, steps)).wait()
            frames[execution.id] = frames_of(store, execution.id)
            store.sealing.codec = None
    with closing(sqlite3.connect(path)) as connection:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        head = f"PRAGMA application_id = {mark};\nPRAGMA user_version = {version};\n"
        (folder / "corpus.sql").write_text(head + "\n".join(connection.iterdump()) + "\n")
    (folder / "corpus.json").write_text(json.dumps(frames, indent=1) + "\n")


if __name__ == "__main__":
    main()
