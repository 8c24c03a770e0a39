"""Recorded histories of all kinds, one for each thing that may happen; ``python -m tests.replay.histories`` makes them.

It records those that `recorded` lacks; those that it has stay as they are, since logs of before are to load for ever.
With names it records these anew. Clock, chance and models are fixed, so that each recording gives the same bytes.
"""

import asyncio
import functools
import gzip
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary
from zlib import crc32

from divebook import Environment
from divebook.definitions.definition import Workflow
from divebook.definitions.reader import read_definitions
from divebook.environments.settings import EnvironmentWorkspaces
from divebook.events import Event
from divebook.events.catalog import ExecutionSnapshotted
from divebook.events.codec import decode_line, encode, event_to_dict
from divebook.events.event import type_id
from divebook.pipeline import Pipeline
from divebook.runtime.run import Run
from divebook.stores import MemoryStore, Owner
from divebook.stores.embedded import LineWriter, LogFile
from divebook.stores.transfer import export, import_, read
from divebook.workspaces import LocalWorkspace
from divebook.workspaces.egress.proxy import EgressAnswer
from tests.replay import history_pipelines
from tests.replay.history_world import world
from tests.runtime.test_resuming import FixedChance, StoppedClock

ROOT = Path(__file__).parents[2]
ANSWERED_AT = re.compile(r'("timestamp":)"[^"]+"(?=,"kind":"response")')
IN_FOLDER = re.compile(r'("folder":")[^"]+/')
WRITTEN_AT = re.compile(r"([0-9]\]\},)[0-9]{15,}")
MOVED_TO = re.compile(r'"[^"]+/moved\.jsonl"')
FOLDER = Path(__file__).parent / "recorded"
ENVELOPES = FOLDER / "envelopes.json.gz"
PATIENCE = 20

_BOUNDS = {"bounded": {"Bounds": {"MaxLLMCalls": 1}}}


@functools.cache
def defined() -> dict[str, Workflow]:
    """Return the workflows of ``workflows.yaml``."""
    import yaml

    made = {}
    for name, steps in yaml.safe_load((FOLDER / "workflows.yaml").read_text()).items():
        stated = {"Name": name, "Inputs": [{"Name": "n"}], "Steps": steps, **_BOUNDS.get(name, {})}
        text = yaml.safe_dump({"Workflows": [stated]}, sort_keys=False)
        made[name] = read_definitions(text, source_name=f"{name}.yaml").workflows[0]
    return made


CLOCKS: "WeakKeyDictionary[Environment, Steady]" = WeakKeyDictionary()
Story = Callable[[Environment], Run]


def _ran(name: str, n: int = 3, **options: Any) -> Story:
    def story(made: Environment) -> Run:
        return made.start(name, {"n": n}, **options).wait(PATIENCE)

    return story


def _answered(name: str, *answers: Any, **options: Any) -> Story:
    def story(made: Environment) -> Run:
        execution = made.start(name, {"n": 3}, **options).wait(PATIENCE)
        for answer in answers:
            execution.answer(execution.open_questions[0].id, answer, "ann").wait(PATIENCE)
        return execution

    return story


def _then(first: Story, after: Callable[[Environment, Run], Run | None]) -> Story:
    def story(made: Environment) -> Run:
        execution = first(made)
        return after(made, execution) or execution

    return story


def _everything(made: Environment) -> Run:
    execution = _answered("recorded_all", "three")(made)
    return execution.signal("go", 4, by="bob").wait(PATIENCE)


def _child(made: Environment, execution: Run) -> Run:
    return next(made.run_of(r.execution_id) for r in made.store.records() if r.execution_id != execution.id)


def _successor(made: Environment, execution: Run) -> Run:
    return _child(made, execution).wait(PATIENCE)


def _annotate(made: Environment, execution: Run) -> None:
    made.run_of(execution.id).annotate(tags=["kept"], labels={"of": "june"}, note="look here", by="ann")
    made.run_of(execution.id).annotate(untag=["kept"], by="ann")


def _expired(made: Environment, execution: Run) -> Run:
    CLOCKS[made].time += 7_200_000_000
    return made.run_of(execution.id).resume().wait(PATIENCE)


def _moved(made: Environment, execution: Run) -> Run:
    with TemporaryDirectory() as folder:
        made.run_of(execution.id).export(Path(folder) / "moved.jsonl", move=True)
    return made.run_of(execution.id)


def _snapshotted(made: Environment, execution: Run) -> Run:
    lines = io.BytesIO()
    export(made.store, execution.id, lines)
    lines.seek(0)
    elsewhere = made.internals.beside(MemoryStore())
    return elsewhere.run_of(import_(lines, elsewhere.store))


def _revoked(made: Environment, execution: Run) -> Run:
    execution.answer(execution.open_questions[0].id, RULE, "ann").wait(PATIENCE)
    ((_, rule),) = made.rules
    made.rules.revoke(rule.rule_id, by="ann")
    execution = made.run_of(execution.id)
    for answer in ("yes", True):
        execution.answer(execution.open_questions[0].id, answer, "ann").wait(PATIENCE)
    return execution


def _paused(made: Environment) -> Run:
    execution = made.create("slowly", {"n": 3})
    paused: list[object] = []

    def pause(new: Sequence[Event]) -> None:
        if not paused and any(event.event_type == "operation_started" for event in new):
            paused.append(execution.pause("lunch"))

    execution.subscribe(pause)
    return made.run_of(execution.start().wait(PATIENCE).id).resume().wait(PATIENCE)


def _raised(_: Environment, execution: Run) -> Run:
    while execution.open_questions:
        execution.answer(execution.open_questions[0].id, {"choice": "raise"}, "ann").wait(PATIENCE)
    return execution


def _forked(made: Environment, execution: Run) -> Run:
    fork = made.run_of(execution.id).fork(change={"variables": {"a": 9}}).wait(PATIENCE)
    return made.run_of(fork.id).fork(change={"variables": {"a": 11}}).wait(PATIENCE)


def _forked_turn(made: Environment, execution: Run) -> Run:
    fork = made.run_of(execution.id).fork(9).wait(PATIENCE)
    return fork.answer(fork.open_questions[0].id, False, "bob").wait(PATIENCE)


def _asked_otherwise(made: Environment, execution: Run) -> Run:
    found: Run = made.run_of(execution.id).what_if({"inputs": {"n": 4}}).run
    return found


def _redefined(made: Environment, execution: Run) -> Run:
    """Fork with another second step."""
    bounds, otherwise = {"max_llm_calls": 3}, defined()["script-otherwise"].to_dict()
    changed = {"definition": {**otherwise, "name": "script"}}
    return (
        made.run_of(execution.id)
        .fork(6, change=changed, tags=["forked"], note="otherwise", bounds=bounds)
        .wait(PATIENCE)
    )


class Steady(StoppedClock):
    """Moves when somebody sleeps, but for the hours in which a person may answer."""

    async def sleep(self, seconds: float) -> None:
        """Let time pass, or wait for the end of the process."""
        await (super().sleep(seconds) if seconds < 600 else asyncio.Event().wait())


def _asking_outside(made: Environment) -> Run:
    def made_there(
        _lending: EnvironmentWorkspaces, _definition: Any, folder: Path, told: Callable[[EgressAnswer], None]
    ) -> LocalWorkspace:
        told(EgressAnswer("pypi.org", 443))
        told(EgressAnswer("elsewhere.test", 443, "not on the list"))
        return LocalWorkspace(folder)

    with patch.object(EnvironmentWorkspaces, "made", made_there):
        return made.start("files", {"n": 3}).wait(PATIENCE)


class _RunningWorker:
    """A worker as a driver knows it."""

    is_running = True


def _enqueued(made: Environment) -> Run:
    execution = made.enqueue("script", {"n": 3}, queue="labels", priority=2)
    fingerprint = made.internals.registry.workflow("script").fingerprint
    (lease,) = made.store.claim(["labels"], {"script": fingerprint}, Owner.current(), 1)
    made._control.queues.take_up(lease, _RunningWorker())
    return execution.wait(PATIENCE)


def _staged(pipeline: Callable[[Environment], Pipeline], *answers: Any) -> Story:
    def story(made: Environment) -> Run:
        execution = pipeline(made).start(history_pipelines.request(history_pipelines.VALUES)).wait(PATIENCE)
        for answer in answers:
            execution.answer(execution.open_questions[0].id, answer, "ann").wait(PATIENCE)
        return execution

    return story


def _continued(made: Environment) -> Run:
    detached = _staged(history_pipelines.detached)(made)
    return history_pipelines.continued(history_pipelines.detached(made), detached).wait(PATIENCE)


def _declared(made: Environment) -> Run:
    execution = made.start("stages-declared", {"request": "Count", "user": "ann", "metadata": {"a": [1]}})
    return made.run_of(execution.wait(PATIENCE).id).resume().wait(PATIENCE)


RULE = {"approved": True, "data": {"rule": {"scope": "run"}}}
STORIES: dict[str, Story] = {
    **{
        name: _ran(name)
        for name in (
            "script",
            "values",
            "large",
            "chance",
            "sleeping",
            "script-fails",
            "action",
            "action-fails",
            "retried",
            "retried-in-vain",
            "caught",
            "undone",
            "choosing",
            "side-by-side",
            "one-fails",
            "items",
            "items-at-once",
            "item-fails",
            "rows",
            "pause",
            "prompt",
            "thread",
            "tools-at-once",
            "typed",
            "denied",
            "assigned",
            "assigned-in-vain",
            "telling",
            "calling",
            "calling-in-vain",
            "files",
        )
    },
    "looping": _ran("looping"),
    "egress": _asking_outside,
    "enqueued": _enqueued,
    "asking": _answered("asking", "four"),
    "asking-still": _ran("asking"),
    "choice": _answered("choice", "blue"),
    "items-that-ask": _answered("items-that-ask", "well", "better"),
    "signal": _then(_ran("signal"), lambda made, run: made.run_of(run.id).signal("go", {"x": 4}, "bob").wait(PATIENCE)),
    "tools": _answered("tools", True),
    "tools-refused": _answered("tools", False),
    "paying": _answered("paying", True, True),
    "everything": _everything,
    "everything-child": _then(_everything, _child),
    "gather": _ran("recorded_gather", 5),
    "abandoning": _then(
        _ran("recorded_abandons", 2), lambda made, run: made.run_of(run.id).signal("go", 4, "bob").wait(PATIENCE)
    ),
    "version": _ran("recorded_version"),
    "chain": _ran("recorded_chain", 1),
    "chain-of-steps": _ran("chain-of-steps"),
    "chain-of-steps-on": _then(_ran("chain-of-steps"), _successor),
    "function-fails": _ran("recorded_fails"),
    "resumed": _then(_ran("mended"), lambda made, run: made.run_of(run.id).resume().wait(PATIENCE)),
    "cancelled": _then(_ran("asking"), lambda _, run: run.cancel("enough").wait(PATIENCE)),
    "expiring": _then(_ran("expiring"), _expired),
    "expired-in-vain": _then(_ran("expired-in-vain"), _expired),
    "bounded": _then(_ran("bounded"), _raised),
    "ruled": _answered("paying-thrice", RULE),
    "revoked": _then(_ran("paying-asking"), _revoked),
    "paused": _paused,
    "moved": _then(_ran("asking"), _moved),
    "snapshotted": _then(_ran("asking"), _snapshotted),
    "named": _ran("script", key="once", tags=["a"], note="first", model="scripted", identity={"user_id": "ann"}),
    "what-if-served": _then(_ran("items"), _asked_otherwise),
    "fork-of-definition": _then(_ran("script"), _redefined),
    "fork-of-fork": _then(_ran("script"), _forked),
    "fork-of-turn": _then(_answered("tools", True), _forked_turn),
    "stages": _staged(history_pipelines.reviewing, "raise", "Rhine"),
    "stages-side-by-side": _staged(history_pipelines.side_by_side, True, "approve"),
    "stages-tried": _staged(history_pipelines.trying),
    "stages-declared": _declared,
    "stages-failing": lambda made: made.start("stages-failing", {"request": "Count"}).wait(PATIENCE),
    "stages-detached": _staged(history_pipelines.detached),
    "stages-continued": _continued,
    "stages-expired": _then(_staged(history_pipelines.expiring), _expired),
    "deleting": _ran("deleting"),
    "annotated": _then(_ran("script"), _annotate),
    "fork": _then(
        _ran("script"), lambda made, run: made.run_of(run.id).fork(change={"variables": {"a": 9}}).wait(PATIENCE)
    ),
    "what-if": _then(_ran("script"), lambda made, run: made.run_of(run.id).what_if({"inputs": {"n": 2}}).run),
}
"""What happens in each history; the execution that it returns is the one that is recorded."""


def recording(name: str) -> tuple[Environment, Run]:
    """Let a story happen; return its environment and its execution, and let who asks close the first."""
    clock = Steady(1_750_000_000_000_000)
    made = world(MemoryStore(), clock=clock, chance=FixedChance(crc32(name.encode())))
    CLOCKS[made] = clock
    for flow in defined().values():
        made.add_workflow(flow)
    return made, STORIES[name](made)


def record(name: str) -> bytes:
    """Return a history as its file has it."""
    made, execution = recording(name)
    with made:
        lines = io.BytesIO()
        writer = LineWriter(lines)
        writer.events(map(_anywhere, execution.history()))
        writer.end(execution.status)
    return gzip.compress(lines.getvalue(), mtime=0)


def _anywhere(event: Event) -> Event:
    """Return an event as it would be in any folder and at any time: a few things come from neither clock nor chance."""
    told = event_to_dict(event)
    if isinstance(event.data, ExecutionSnapshotted):
        told["id"] = type_id("event", event.recorded_at // 1000, event.sequence)
    text = encode(told).decode().replace(f"{ROOT}/", "")
    text = ANSWERED_AT.sub(rf'\1"{told["timestamp"]}"', text)
    text = WRITTEN_AT.sub(r"\g<1>1750000000000000000", IN_FOLDER.sub(r"\1", text))
    return decode_line(MOVED_TO.sub('"moved.jsonl"', text).encode())


def histories() -> Iterator[Path]:
    """Yield the files of all histories."""
    yield from sorted(FOLDER.glob("*.jsonl.gz"))


def log_of(file: Path) -> LogFile:
    """Return the log in such a file."""
    return read(io.BytesIO(gzip.decompress(file.read_bytes())))


def envelopes() -> dict[str, Any]:
    """Return the envelope of each recorded history at its end, as plain data."""
    with world(MemoryStore()) as made:
        for flow in defined().values():
            made.add_workflow(flow)
        ids = {file.name.partition(".")[0]: import_(log_of(file), made.store) for file in histories()}
        return {name: made.run_of(execution_id).envelope.to_state_dict() for name, execution_id in ids.items()}


def recorded_envelopes() -> dict[str, Any]:
    """Return the envelopes as they were when the histories were recorded."""
    recorded: dict[str, Any] = json.loads(gzip.decompress(ENVELOPES.read_bytes())) if ENVELOPES.exists() else {}
    return recorded


def main(names: Iterable[str]) -> None:
    """Record what is not recorded, and what is named."""
    FOLDER.mkdir(exist_ok=True)
    asked = set(names)
    kept = {name: state for name, state in recorded_envelopes().items() if name in STORIES and name not in asked}
    for name in STORIES:
        file = FOLDER / f"{name}.jsonl.gz"
        if name in asked or not file.exists():
            file.write_bytes(record(name))
            sys.stdout.write(f"{file.name}: {len(log_of(file).events)} events\n")
    text = json.dumps({**envelopes(), **kept}, indent=1, sort_keys=True)
    ENVELOPES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
