"""A coding agent at work is killed, over and over: whoever takes it up finds the files as the log says, or asks.

python -m tests.workspace.kills [KILLS]
"""

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.definitions import ApprovalRule
from divebook.definitions.resources import WorkspaceDefinition
from divebook.workspaces.paths import Root
from divebook.workspaces.snapshots.take import Snapshots

ROOT = Path(__file__).parents[2]
CALLS = [
    call
    for number in range(5)
    for call in (
        {"replace": {"file_path": f"f{number}", "content": f"{number}\n" * 50}},
        {"edit": {"file_path": f"f{number}", "old_string": f"{number}\n" * 50, "new_string": f"edited {number}\n"}},
        {"shell": {"command": f"for i in 1 2 3; do echo $i >> log{number}; sleep 0.03; done; mkdir -p d{number}/e"}},
        {"move": {"pairs": [{"src": f"f{number}", "dst": f"d{number}/f"}]}},
    )
]


def environment(folder):
    """Return an environment whose agent makes twenty calls in a workspace."""
    made = Environment(
        store=folder / "runs.db",
        workspaces=[WorkspaceDefinition("app", folder=str(folder / "project"))],
        approvals=[ApprovalRule("shell")],
    )
    agent = Agent("coder", model=ScriptedModel(turns=[[*({"call": call} for call in CALLS), "done"]]))
    agent.definition = replace(agent.definition, workspace="app", tool_iteration_limit=40)
    made.add_agent(agent)
    made.add_workflow(Workflow("work", [Step("go", prompt="work", agent="coder")]))
    return made


def live(folder):
    """Begin the run, or take it up; have what is asked about done again."""
    with environment(folder) as made:
        known = made.store.records()
        if known and known[0].status == "completed":  # it was killed on its way out
            return "completed"
        execution = (made.run_of(known[0].execution_id).resume() if known else made.start("work")).wait()
        while execution.status == "waiting":
            for question in execution.open_questions:
                execution.answer(question.id, "retry" if question.kind == "outcome_unknown" else "restore")
            execution.wait()
        return execution.status


def tree_on_disk(folder):
    root = Root(folder)
    try:
        with Snapshots(root, watch=False) as snapshots:
            return snapshots.take().tree.digest
    finally:
        root.close()


def found(folder):
    """Return what a dead process has left: ``as the log says``, ``in a call``, or ``lost``."""
    with environment(folder) as made:
        known = made.store.records()
        state = made.run_of(known[0].execution_id).state if known else None
        held = None if state is None else state.workspaces.get("app")
        if held is None:
            return "nothing yet"
        if tree_on_disk(held.reference["folder"]) == held.tree:
            return "as the log says"
        opened = [path.open for path in state.paths.values() if path.open is not None]
        records = [record for one in opened for record in one.operations.values()]
        return (
            "in a call" if any(r.operation_type == "tool_call" and r.status == "running" for r in records) else "lost"
        )


def finished(folder):
    """Return the tree that the run came to, as the log has it and as it stands on disk."""
    with environment(folder) as made:
        (known,) = made.store.records()
        kept = made.run_of(known.execution_id).files()
        return known.status, kept.at().digest, tree_on_disk(kept.folder)


def project(folder):
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "README").write_text("A project.\n")
    return folder


def main(kills, seed=1):
    """Kill a run that many times, beginning anew where it has ended; return what was found, and wrong ends."""
    chance, seen, wrong = random.Random(seed), Counter(), []
    with tempfile.TemporaryDirectory() as scratch:
        whole = project(Path(scratch, "whole"))
        assert live(whole) == "completed"
        expected = finished(whole)[1]
        number, folder = 0, project(Path(scratch, "0"))
        while kills:
            with subprocess.Popen([sys.executable, "-m", "tests.workspace.kills", "--live", folder], cwd=ROOT) as life:
                limit = time.monotonic() + 0.8 + chance.random() * 1.5
                while life.poll() is None and time.monotonic() < limit:
                    time.sleep(0.005)
                life.kill()
            if life.returncode == 0:
                ended = finished(folder)
                wrong += [] if ended == ("completed", expected, expected) else [ended]
                number, folder = number + 1, project(Path(scratch, str(number + 1)))
            else:
                kills -= 1
                seen[found(folder)] += 1
        assert live(folder) == "completed"
        ended = finished(folder)
        wrong += [] if ended == ("completed", expected, expected) else [ended]
    return seen, wrong


if __name__ == "__main__":
    if sys.argv[1:2] == ["--live"]:
        sys.exit(0 if live(Path(sys.argv[2])) == "completed" else 1)
    SEEN, WRONG = main(int(sys.argv[1]) if sys.argv[1:] else 50)
    sys.stdout.write(f"killed: {dict(SEEN)}; wrong ends: {WRONG or 0}\n")
    sys.exit(1 if WRONG or SEEN["lost"] else 0)
