"""A process that is killed in the middle of a trial: ``python -m tests.replay.dying STORE``."""

import os
import signal
import sys

from divebook import Environment, Step, Workflow
from divebook.steps.actions import Action

FLOW = Workflow(
    "flow",
    [
        Step("one", script="inputs.n", store="one"),
        Step("two", action="pay", parameters={"of": "$(state.one)"}, store="two"),
    ],
    inputs=["n"],
)
FATAL = 101


def environment(store, *, dies=False):
    """Return an environment in which one payment kills the process, if it is to."""

    def pay(of):
        if dies and of == FATAL:
            os.kill(os.getpid(), signal.SIGKILL)
        return of

    return Environment(store=store, workflows=[FLOW], actions=[Action("pay", pay)])


if __name__ == "__main__":
    with environment(sys.argv[1], dies=True) as world:
        world.run_of(world.start("flow", {"n": 1}).wait(20).id).try_step("two", variables={"one": FATAL}, tools="live")
