"""Processes that start one start key at the same moment: python -m tests.runtime.starters [ROUNDS]

Each process waits at a gate, and starts or forks an execution with the key: with the same inputs, with others, or of
another workflow. One of them may be killed within its start. Afterwards there is one execution, its action was carried
out by at most one process, and every other process has that execution or an error that says why it has none.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.errors import StartKeyTakenError
from divebook.steps.actions import Action
from divebook.stores import SqliteStore

ASKED = Workflow("asked", [Step("a", action="note", parameters={"value": "$(inputs.city)"})], inputs=["city"])
OTHER = Workflow("other", [Step("a", action="note", parameters={"value": "other"})])
SAME, INPUTS, REFUSE, WORKFLOW, FORK, CHANGE = WAYS = ("same", "inputs", "refuse", "workflow", "fork", "change")
PATIENCE = 60
LONGEST_START = 0.05
"""Seconds within which a killed process may be killed."""


def world(folder, number):
    """Return an environment over the store of the folder, whose action notes who carries it out."""

    def note(value):
        with (folder / "made").open("a") as file:
            file.write(f"{number}\n")
        return value

    store = SqliteStore(folder / "runs.db")
    return Environment(store=store, workflows=[ASKED, OTHER], actions=[Action("note", note)])


def start(environment, way, number, source):
    """Start with the key, as the way says."""
    city = "Bonn" if way in (SAME, WORKFLOW) else f"city {number}"
    match way:
        case "fork":
            return environment.run_of(source).fork(1, key="key")
        case "change":
            return environment.run_of(source).fork(1, {"inputs": {"city": city}}, key="key")
        case "workflow" if number % 2:
            return environment.start("other", key="key")
        case "refuse":
            return environment.start("asked", {"city": city}, key="key", on_conflict="refuse")
    return environment.start("asked", {"city": city}, key="key")


def process(folder, way, number, source):
    """Be one of the processes: wait at the gate, start, and print what came of it."""
    with world(folder, number) as environment:
        (folder / f"ready{number}").touch()
        while not (folder / "gate").exists():
            time.sleep(0.0005)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                execution = start(environment, way, number, source)
            except StartKeyTakenError as error:
                print(json.dumps({"refused": error.run_id}))  # noqa: T201
                return
        if execution.internals.was_driven:
            execution.wait(PATIENCE)
        print(json.dumps({"id": execution.id, "driven": execution.internals.was_driven, "warned": len(warned)}))  # noqa: T201


def faults_of(folder, way, count, killed_after=None):
    """Let so many processes start at once, one of which may be killed; return what was wrong in words."""
    source = ""
    if way in (FORK, CHANGE):
        with world(folder, "source") as environment:
            source = environment.start("asked", {"city": "Rome"}).wait(PATIENCE).id
    (folder / "made").write_text("")
    command = [sys.executable, "-m", "tests.runtime.starters", "--process", str(folder), way]
    running = [
        subprocess.Popen([*command, str(number), source], stdout=subprocess.PIPE, text=True) for number in range(count)
    ]
    while not all((folder / f"ready{number}").exists() for number in range(count)):
        time.sleep(0.005)
    (folder / "gate").touch()
    if killed_after is not None:
        time.sleep(killed_after)
        running[0].kill()
    said = [(one.communicate(timeout=PATIENCE)[0], one.returncode) for one in running]
    results = [json.loads(out) for out, code in said if code == 0]
    made = (folder / "made").read_text().split()
    with world(folder, "after") as environment:
        records = [record for record in environment.store.records() if record.execution_id != source]
        return [*_faults(way, records, results, made, said, has_killed=killed_after is not None)]


def _faults(way, records, results, made, said, *, has_killed):
    if any(code not in (0, -9) for _, code in said) or (not has_killed and len(results) < len(said)):
        yield f"a process ended otherwise: {said}"
    if len(records) != 1:
        yield f"there are {len(records)} executions"
        return
    (record,) = records
    if {result.get("id", result.get("refused")) for result in results} - {record.execution_id}:
        yield f"a process has another execution: {results}"
    drivers = [result for result in results if result.get("driven")]
    if len(drivers) > 1 or len(made) > 1 or (drivers and record.status != "completed"):
        yield f"{len(drivers)} drove it, {made} carried it out, it is {record.status}"
    if not has_killed and len(drivers) != 1:
        yield "no process drove it"
    others = [result for result in results if not result.get("driven")]
    if way in (SAME, FORK) and any(other.get("warned") or "refused" in other for other in others):
        yield f"a process was warned, or refused: {others}"
    if way in (INPUTS, CHANGE) and not all(other.get("warned") for other in others):
        yield f"a process was not warned: {others}"
    if way == REFUSE and not all("refused" in other for other in others):
        yield f"a process was not refused: {others}"


def main(rounds, seed=1):
    """Return the faults of so many rounds of each way."""
    chance, faults = random.Random(seed), []
    for number in range(rounds):
        for way in WAYS:
            count, killed = chance.choice((2, 4)), chance.choice((None, chance.uniform(0, LONGEST_START)))
            with tempfile.TemporaryDirectory() as folder:
                faults += [(way, number, fault) for fault in faults_of(Path(folder), way, count, killed)]
    return faults


if __name__ == "__main__":
    if sys.argv[1:2] == ["--process"]:
        process(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
        sys.exit()
    ROUNDS = int(sys.argv[1]) if sys.argv[1:] else 5
    FAULTS = main(ROUNDS)
    sys.stdout.write(f"{ROUNDS} rounds of {len(WAYS)} ways, {len(FAULTS)} faults {FAULTS[:10] or ''}\n")
    sys.exit(bool(FAULTS))
