"""Kill workers of a Dask cluster in the middle of calls: ``python -m tests.runtime.dask_kills [ROUNDS]``.

In each round one of two is killed at a random moment, while some calls are made that may be made twice and some that
may not. Of the latter each begins once, and a person is asked about exactly those that were lost; of the former each
completes. Each round has a cluster of its own: Dask does not replace a worker that dies as soon as it was replaced.
"""

import functools
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event

import cloudpickle

from divebook.definitions import step, workflow
from tests.runtime.worlds import becomes, environment

if __name__ != "__main__":
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # or each worker would import all of this
CALLS, PAUSE = 12, 0.5


def note(folder, name):
    """Say that a call has begun, take a moment, and say that it has ended."""
    for said in ("begun", "ended"):
        with Path(folder, said).open("a") as lines:
            lines.write(f"{name} {os.getpid()}\n")
        if said == "begun":
            Event().wait(0.05)
    return name


again, once = step(name="again", idempotent=True)(note), step(name="once")(note)


def names(folder, said):
    path = Path(folder, said)
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def one_round(client, folder, random):
    """Run the calls, kill a worker meanwhile; return how many questions there were, calls cut off, and made twice."""

    @workflow  # here, as the tests of one module forget what another has made at import
    async def calls(ctx, folder: str):
        both = [made(folder, f"{kind}{at}") for at in range(CALLS) for kind, made in (("a", again), ("o", once))]
        return len(await ctx.gather(*both))

    with environment(calls, executor=client) as world:
        execution = world.start("calls", {"folder": str(folder)})
        assert becomes(lambda: names(folder, "begun"))
        Event().wait(random.random() * PAUSE)
        latest = Path(folder, "begun").read_text().splitlines()[-1]
        os.kill(int(latest.split()[1]), signal.SIGKILL)
        asked = []
        while execution.wait(60).status == "waiting":
            for question in execution.open_questions:
                asked.append(question)
                world.answer(question.id, {"choice": "done", "result": "seen"})
        assert execution.status == "completed", execution.error
        history = execution.history()
    begun, ended = names(folder, "begun"), names(folder, "ended")
    once_begun = {name: count for name, count in begun.items() if name.startswith("o")}
    assert once_begun == {f"o{number}": 1 for number in range(CALLS)}, once_begun
    lost = {name for name in once_begun if name not in ended}
    assert lost <= {subject_of(question) for question in asked}, (lost, asked)
    assert len(asked) == len({subject_of(question) for question in asked})
    assert all(ended[f"a{number}"] for number in range(CALLS))
    assert sum(event.event_type == "operation_completed" for event in history) >= 2 * CALLS - len(asked)
    return len(asked), len(lost), sum(begun.values()) - 2 * CALLS


def subject_of(question):
    """Return which call a question is about."""
    return question.data["parameters"]["arguments"]["name"]


def main(rounds=10, seed=1):
    from distributed import Client, LocalCluster

    random, told = Random(seed), []
    start = functools.partial(LocalCluster, n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50)
    for _ in range(rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            start() as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            told.append(one_round(client, folder, random))
    asked, lost, twice = (sum(column) for column in zip(*told, strict=True))
    sys.stdout.write(
        f"{rounds} rounds, a kill of a worker in each: {rounds * CALLS} calls that may not be made twice began "
        f"once each, {lost} were cut off, {asked} questions; of {rounds * CALLS} others {twice} were made twice\n"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
