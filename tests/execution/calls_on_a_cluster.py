"""A driver that is killed: ``python calls_on_a_cluster.py STORE TRACE ADDRESS`` begins a run, or goes on with it."""

import os
import sys
import time
from pathlib import Path

from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action


def lasting(trace, seconds=60.0):
    """Write one line, and take a while."""
    with Path(trace).open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
    until = time.monotonic() + seconds
    while time.monotonic() < until and not Path(f"{trace}.go").exists():
        time.sleep(0.01)
    return "done"


def main(store, trace, address):
    action = Action("lasting", lasting, idempotent=True)
    flow = Workflow("w", [Step("s", action="lasting", parameters={"trace": trace}, store="found")])
    with Environment(store=store, workflows=[flow], actions=[action], executor=address) as environment:
        left = environment.recoverable()
        execution = environment.resume(left[0].execution_id) if left else environment.start("w")
        execution.wait()
        sys.stdout.write(f"{execution.status} {execution.variables['found']}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
