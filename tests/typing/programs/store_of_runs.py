"""Stores: opening by address, two environments over one store, export and import."""

import tempfile
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.stores import EventStore, MemoryStore, SqliteStore, open_store

one = Workflow("one", [Step("s", script="1", store="n")], outputs=["n"])


def ids_of(store: EventStore) -> list[str]:
    return [record.execution_id for record in store.records()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "runs.db")
        assert isinstance(store, SqliteStore)
        with Environment(store=store, workflows=[one]) as environment:
            run = environment.start("one").wait()
            file = Path(folder) / "run.jsonl"
            events: int = run.export(file)
            assert events > 0
            assert ids_of(environment.store) == [run.id]
        with Environment(store=MemoryStore()) as other:
            assert other.open(file, keep=True).outputs == {"n": 1}
