"""Groups whose cases say in data what holds of the log, of documents, fingerprints and resumed runs.

Each function runs one case and returns what was found under the keys of its `expect`. What cannot be run is named with
the reason by `reason_not_run`: prose in place of data, or something that divebook does otherwise by design.
"""

from __future__ import annotations

import copy
import itertools
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

from divebook.agents import Agent
from divebook.definitions import AgentDefinition, read_workflow
from divebook.definitions.step import fingerprint_block, fingerprint_blocks
from divebook.documents import DocumentRepository, FileDocuments, MemoryDocuments
from divebook.environments.environment import Environment
from divebook.errors import InvalidEventError, TemplateError
from divebook.events import Event
from divebook.events.catalog import FAILED, PAYLOADS, Payload
from divebook.events.codec import canonical_hash, decode_record, event_from_dict, event_to_dict, payload_from
from divebook.runtime.run import Run
from divebook.scripting import render_template
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.conformance import asked, confirming, hands, servers
from tests.conformance.not_run import NOT_RUN, NOT_RUN_OF_SHAPE, PROSE
from tests.conformance.overheard import OverheardModel

Data = Mapping[str, Any]
MANY = ("execution_started", "event_emitted")
SOME_TIME = "2024-01-15T10:00:00Z"
TIMEOUT = 30.0
STEP = [{"Name": "s", "Script": "1"}]


# --- events ----------------------------------------------------------------------------------------------------------


def _event(case: Data) -> dict[str, Any]:
    given = case["given"]
    if "event" in given:
        return _whole_event(given["event"])
    if "filter" in given:
        return {"valid": _accepts(lambda: MemoryStore().records(**given["filter"]), ValueError)}
    if "event_type" in given:
        return _payload(PAYLOADS[given["event_type"]].event_type, case["expect"])
    return {"types": [name for name in case["expect"]["types"] if name in PAYLOADS]}


def _whole_event(given: Data) -> dict[str, Any]:
    record = {**given, **({"timestamp": SOME_TIME} if given.get("timestamp") == "T" else {})}
    event = event_from_dict(record)
    again = decode_record(event_to_dict(event))
    typed = "typed by event_type" if type(event.data) is PAYLOADS[given["event_type"]] else "plain"
    return {"valid": True, "roundtrip_equal": again == event, "data_type": typed}


def _payload(event_type: str, expect: Data) -> dict[str, Any]:
    """Say which of the named fields are required, and which may be left out."""
    required, optional = expect["required"], expect["optional"]
    whole: dict[str, Any] = {}
    for name in (*required, *optional):
        field, _, inner = _field(name).partition("[].")
        if not inner:
            whole[field] = _sample(event_type, field)

    def is_valid(data: Data) -> bool:
        return _accepts(lambda: payload_from(event_type, copy.deepcopy(dict(data))), InvalidEventError)

    return {
        "required": [name for name in required if is_valid(whole) and not is_valid(_without(whole, _field(name)))],
        "optional": [
            name for name in optional if _is_known(event_type, name) and is_valid(_without(whole, _field(name)))
        ],
        "empty_payload_valid": is_valid({}),
    }


def _is_known(event_type: str, name: str) -> bool:
    return _field(name).partition("[].")[0] in PAYLOADS[event_type].field_names


def _field(name: str) -> str:
    """Return the name of a field, which some cases describe: ``iteration_index >= 0``."""
    return name.split(" ", 1)[0]


def _sample(event_type: str, field: str) -> Any:
    """Return a value that fits a field."""
    if field in _SAMPLES:
        return _SAMPLES[field]
    declared = {entry.name: str(entry.type) for entry in fields(PAYLOADS[event_type])}.get(field, "str")
    return next((value for begins, value in _OF_TYPE.items() if declared.startswith(begins)), "x")


_SAMPLES: Data = {
    "new_paths": [{"id": "main-1", "current_step": "a"}],
    "mutations": [{"type": "set", "key": "a", "value": 1}],
}
_OF_TYPE: Data = {"Mapping": {"a": 1}, "int": 1, "float": 1.0, "Sequence": ["x"], "bool": True}


def _without(data: Data, field: str) -> dict[str, Any]:
    outer, _, inner = field.partition("[].")
    if inner:
        return {**data, outer: [{key: value for key, value in part.items() if key != inner} for part in data[outer]]}
    return {key: value for key, value in data.items() if key != field}


def _accepts(act: Callable[[], object], refusal: type[Exception]) -> bool:
    try:
        act()
    except refusal:
        return False
    return True


# --- hashes and fingerprints -----------------------------------------------------------------------------------------


def _hashing(case: Data) -> dict[str, Any]:
    given = case["given"]
    if "same_workflow_twice" in given:
        first, second = (read_workflow({"Name": "w", "Steps": STEP}, dialect="dive") for _ in range(2))
        return {"equal": first.fingerprint == second.fingerprint}
    hashes = {name: canonical_hash(value) for name, value in given.items()}
    return {f"{a}=={b}": hashes[a] == hashes[b] for a, b in itertools.combinations(hashes, 2)}


def _fingerprint(case: Data) -> dict[str, Any]:
    given = case["given"]
    if "a" in given:
        first, second = (fingerprint_blocks(map(_text, given[name])) for name in ("a", "b"))
        return {"equal": first == second}
    if "texts" in given:
        blocks = [_text(text) for text in given["texts"]]
        each, whole = [fingerprint_block(block) for block in blocks], fingerprint_blocks(blocks)
        is_same = all(fingerprint_blocks(blocks) == whole for _ in range(given.get("repeat", 2)))
        found = {"hashes": [part.hash for part in each], "sources": [part.source for part in each]}
        return {**found, "hash": whole.hash, "source": whole.source, "size": whole.size, "all_equal": is_same} | {
            "repeatable": is_same
        }
    [(kind, value)] = given.items()
    one = fingerprint_block(_text(value) if kind == "text" else {"type": kind, **value})
    return {"hash": one.hash, "source": one.source, "size": one.size}


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


# --- documents -------------------------------------------------------------------------------------------------------


def _documents(case: Data) -> dict[str, Any]:
    """Do it with both kinds of repository; what they do must be the same."""
    with tempfile.TemporaryDirectory() as folder:
        found = [_in_repository(case, documents) for documents in (FileDocuments(folder), MemoryDocuments())]
    return found[0] if found[0] == found[1] else {"files and memory differ": found}


def _in_repository(case: Data, documents: DocumentRepository) -> dict[str, Any]:
    given, expect = case["given"], case["expect"]
    for path in given.get("files", ()):
        documents.put(path, path)
    if "list" in given:
        listed = documents.list(given["list"]["prefix"], recursive=given["list"]["recursive"])
        return {"count": len(listed), "contains": next((p for p in listed if p.endswith(expect["contains"])), listed)}
    if "put" in given:
        put = given["put"]
        documents.put(put.get("path", ""), put.get("content", ""))
    elif "content" in expect:  # of a document that an earlier case has written
        documents.put(given["get"], expect["content"])
    if isinstance(given.get("get"), list):
        return {"results": [_result(documents, *pair) for pair in zip(given["get"], expect["results"], strict=True)]}
    found: dict[str, Any] = {}
    if "get" in given:
        document = documents.get(given["get"])
        found = {"content": document.content, "name": document.name, "found": True}
    return {**found, "file": {path: documents.get(path).content for path in expect.get("file", ())}}


def _result(documents: DocumentRepository, path: str, wanted: str) -> str:
    """Return what getting a document gives, in the words of the case: an error, or as what it was resolved."""
    resolved = re.fullmatch(r"resolved below the root as (\S+)", wanted)
    if resolved is not None:
        documents.put(resolved[1], "here")
        return wanted if documents.get(path).path == resolved[1] else documents.get(path).path
    try:
        documents.get(path)
    except Exception as error:  # noqa: BLE001 - the case says which
        return wanted if wanted.removeprefix("error: ") in str(error) else f"error: {error}"
    return "found"


# --- what runs again -------------------------------------------------------------------------------------------------


class Rerun:
    """Environments one after the other over one store, as processes are, whose agents share their calls."""

    def __init__(self, case: Data) -> None:
        self.calls: list[Data] = []
        self.agents = {name: {"replies": replies} for name, replies in case.get("agents", {}).items()}

    def environment(self, store: MemoryStore, actions: Sequence[Action] = ()) -> Environment:
        """Return a new one."""
        models = {name: OverheardModel(name, self.calls, spec) for name, spec in self.agents.items()}
        agents = [Agent(AgentDefinition(name), model=model) for name, model in models.items()]
        return Environment(store=store, agents=agents, actions=actions)

    def again(self, execution: Run, events: int) -> Run:
        """Return the same execution resumed elsewhere from its first events only, as after a crash."""
        store = MemoryStore()
        store.append(execution.id, execution.history()[:events], expected_sequence=0)
        return self.environment(store).run_of(execution.id).resume().wait(TIMEOUT)


def _run_again(case: Data) -> dict[str, Any]:
    given = {**case, **case.get("given", {})}
    rerun, store = Rerun(case), MemoryStore()
    workflow = read_workflow({"Name": case["name"], **given["definition"]}, dialect="dive")
    done = rerun.environment(store).start(workflow, given.get("inputs", {})).wait(TIMEOUT)
    if "crash" in given:
        return _crashed(rerun, done, case["expect"])
    if "second" in given:
        return _replayed(rerun, done, case["expect"])
    loaded = rerun.environment(store).run_of(done.id)
    before, after = _stands(done), _stands(loaded)
    again = {"same_path_counter": before["path_counter"] == after["path_counter"]}
    again["operations_rerun"] = len(loaded.history()) - len(done.history())
    return {"checkpoint": before, "restored": {**after, **again}}


def _stands(execution: Run) -> dict[str, Any]:
    paths = list(execution.internals.paths)
    branched = [path for path in paths if path != "main"]
    return {
        "execution_id": "as given",  # it is looked up by it
        "workflow_name": execution.workflow.name,
        "status": execution.status,
        "error_non_empty": bool(execution.error),
        "path_counter": len(branched),
        "min_path_states": len(branched),
        "paths": paths,
        "path_count": len(paths),
        **{f"state.{name}": value for name, value in execution.variables.items()},
    }


def _crashed(rerun: Rerun, done: Run, expect: Data) -> dict[str, Any]:
    """Crash after each event in turn; say how often each step's operation was carried out then, and how it ended."""
    found: dict[str, Any] = {"status": set()}
    for events in range(1, len(done.history())):
        history = rerun.again(done, events)
        found["status"].add(history.status)
        began = [event.step for event in history.history() if event.event_type == "operation_completed"]
        for key in expect:
            step, counts, _ = key.partition("_operation_runs")
            if counts:
                found.setdefault(key, set()).add(began.count(step))
    return {key: values.pop() if len(values) == 1 else sorted(values) for key, values in found.items()}


def _replayed(rerun: Rerun, done: Run, expect: Data) -> dict[str, Any]:
    wanted = expect["first_has_event"]
    events = [(e.event_type, e.data.to_data().get("operation_type")) for e in done.history()]
    place = events.index((wanted["type"], wanted["operation_type"]))
    second = rerun.again(done, place + 1)
    results = [e for e in second.history()[: place + 1] if e.event_type == "operation_completed"]
    return {
        "first_has_event": wanted,
        "loaded_operation_results": len(results),
        "second_status": second.status,
        "agent_calls_total": len(rerun.calls),
    }


def _replay(case: Data) -> dict[str, Any]:
    return _recorded_failure(case) if "recorded_failure" in case["given"] else _run_again(case)


def _recorded_failure(case: Data) -> dict[str, Any]:
    """Let an operation fail, cut the log off after that, and go on from there."""
    recorded, runs = case["given"]["recorded_failure"], list[str]()

    def body() -> None:
        runs.append(recorded["op"])
        raise RuntimeError(recorded["error"])

    store, actions = MemoryStore(), [Action(recorded["op"], body)]
    environment = Environment(store=store, actions=actions)
    steps = [{"Name": "s", "Action": recorded["op"]}]
    first = environment.start(read_workflow({"Name": "w", "Steps": steps}, dialect="dive")).wait(TIMEOUT)
    names = [event.event_type for event in first.history()]
    cut, before = MemoryStore(), len(runs)
    cut.append(first.id, first.history()[: names.index("operation_failed") + 1], expected_sequence=0)
    second = Environment(store=cut, actions=actions).run_of(first.id).resume().wait(TIMEOUT)
    error = recorded["error"] if second.status == FAILED and recorded["error"] in (second.error or "") else second.error
    return {"error": error, "body_runs": len(runs) - before}


# --- executions and stores -------------------------------------------------------------------------------------------


def _execution(case: Data) -> dict[str, Any]:
    given = case["given"]
    with MemoryStore() as store:
        environment = Environment(store=store)
        if "workflow" in given:
            environment.start(given["workflow"])
        workflow = read_workflow(given["definition"], dialect="dive")
        return {"status": environment.start(workflow, given["inputs"]).wait(TIMEOUT).status}


def _event_store(case: Data) -> dict[str, Any]:
    given = case["given"]
    with MemoryStore() as store:
        if "get" in given:
            store.record(given["get"])
        for entry in given.get("append", ()):
            event = _event_of(entry)
            store.append("exec_a", [event], expected_sequence=max(event.sequence - 1, 0))
        if "events" in given:
            store.append("exec_a", [_event_of([n + 1, MANY[n > 0]]) for n in range(given["events"])], 0)
        read = store.read("exec_a")
        return {
            "history_sequences": [event.sequence for event in read],
            "from_seq_2": [event.sequence for event in store.read("exec_a", 1)],
            "stored": len(read),
            "payload_types_preserved": all(type(event.data) is PAYLOADS[event.event_type] for event in read),
        }


def _event_of(entry: Sequence[Any] | Data) -> Event:
    """Return an event of a number and a type, or of the fields that a case gives, and no others."""
    if isinstance(entry, Mapping):
        return Event(**{"execution_id": "", "sequence": 0, "recorded_at": 0, "data": Payload(), **entry})
    number, event_type = entry
    data = payload_from(event_type, {name: _sample(event_type, name) for name in PAYLOADS[event_type].required})
    return Event(f"event_{number}", "exec_a", number, number, data)


def _script_context(case: Data) -> dict[str, Any]:
    """Evaluate each name alone; the words of the case stand for what all of them must come to."""
    names = case["given"]["names"]
    known = [name for name in names if _accepts(partial(render_template, f"${{{name}}}", {}), TemplateError)]
    return {"each_name": case["expect"]["each_name"] if not known else f"known: {known}"}


# --- what is run, and what is not ------------------------------------------------------------------------------------


def _shapes(*keys: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(names.split()) for names in keys)


RUN: Mapping[str, tuple[Callable[[Data], dict[str, Any]], tuple[frozenset[str], ...]]] = {
    "event": (_event, _shapes("event", "filter", "event_type", "")),
    "event_store": (_event_store, _shapes("append", "get", "events one_batch")),
    "execution_api": (_execution, _shapes("workflow", "definition inputs")),
    "hashing": (_hashing, _shapes("same_workflow_twice", "a b c")),
    "fingerprint": (_fingerprint, _shapes("text", "texts", "texts repeat", "a b", "image", "document")),
    "documents": (_documents, _shapes("put", "get", "put get", "files list")),
    "script_context": (_script_context, _shapes("context names")),
    "resume": (_run_again, _shapes("definition crash", "")),
    "replay": (_replay, _shapes("definition first second", "replay recorded_failure")),
    "agent": (asked.run, _shapes(*asked.SHAPES)),
    "mcp": (servers.run, _shapes(*servers.SHAPES)),
    "tool": (hands.run, _shapes(*hands.SHAPES)),
    "confirmation": (confirming.confirmation, _shapes(*confirming.SHAPES["confirmation"])),
    "threads": (confirming.threads, _shapes(*confirming.SHAPES["threads"])),
}
"""By group: what runs a case, and the keys of `given` in its cases that are data."""


def is_data(case: Data) -> bool:
    """Whether a case of these groups can be run."""
    _, shapes = RUN.get(case["group"], (None, ()))
    return frozenset(case.get("given", ())) in shapes and ("given" in case or "definition" in case)


def reason_not_run(case: Data) -> str:
    """Return why a case cannot be run."""
    shape = (case["group"], frozenset(case["given"] if isinstance(case.get("given"), Mapping) else ()))
    return NOT_RUN_OF_SHAPE.get(shape) or NOT_RUN.get(case["group"], PROSE)
