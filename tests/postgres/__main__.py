"""``python -m tests.postgres [--races 200] [--losses 100] [--failovers 20]``: what the suite has a short form of.

Processes race for one log; commits lose their connections in each of three ways; the server dies and comes back, while
executions run that must all come to their end, with sound logs. Ends with 1 at the first that does not.
"""

import argparse
import sys
import tempfile
import time
from random import Random

from divebook import Environment, Step, Workflow
from divebook.stores.maintenance import check
from tests.postgres.proxy import AFTER, BEFORE, LATE, proxy
from tests.postgres.racing import race
from tests.postgres.server import postgres_server

STEPS = 12
WORK = Workflow("work", [Step(f"step {n}", script=f"{n} + 1", store=f"n{n}") for n in range(STEPS)])
AT_ONCE = 1, 4
"""How many executions go on at a time: commits of one alone are waited for where they are sent."""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.postgres", description=__doc__)
    for name, count in (("races", 200), ("losses", 100), ("failovers", 20)):
        parser.add_argument(f"--{name}", type=int, default=count)
    asked = parser.parse_args()
    random = Random(1)
    with postgres_server() as server, tempfile.TemporaryDirectory(prefix="divebook-proxy-") as folder:
        timed("races", asked.races, lambda: race(server.url("races"), -(-asked.races // 3)))
        with proxy(folder, server) as between:
            timed("losses", asked.losses, lambda: lose(between, asked.losses, random))
        timed("failovers", asked.failovers, lambda: fail_over(server, asked.failovers, random))


def timed(name, count, work):
    began = time.monotonic()
    work()
    sys.stdout.write(f"{count} {name}: nothing was lost or doubled, {time.monotonic() - began:.1f} s\n")


def lose(between, count, random):
    """Run executions, a few at a time, until so many commits have lost their connections."""
    environment = Environment(store=between.url("losses"))
    left = count
    while left:
        lost = [random.choice([None, BEFORE, AFTER, LATE]) for _ in range(min(left, 8))]
        between.losses.extend(lost)
        carry_out(environment, random)
        left -= len([loss for loss in lost if loss]) or 0
        between.release()
    between.losses.clear()
    close(environment)


def fail_over(server, count, random):
    """Stop the server in the middle of executions, as a power failure would, and start it again."""
    environment = Environment(store=server.url("failovers"))
    carry_out(environment, random)
    for _ in range(count):
        begun = [environment.start(WORK) for _ in range(random.choice(AT_ONCE))]
        time.sleep(random.random() * 0.05)
        server.stop("immediate")
        server.start()
        ended(begun)
    close(environment)


def carry_out(environment, random):
    ended([environment.start(WORK) for _ in range(random.choice(AT_ONCE))])


def ended(begun):
    for execution in begun:
        done = execution.wait(60)
        found = [done.state.variables.get(f"n{n}") for n in range(STEPS)]
        assert (done.status, found) == ("completed", list(range(1, STEPS + 1))), done


def close(environment):
    report = check(environment.store)
    assert report.ok, report.all_damages()
    environment.store.close()


if __name__ == "__main__":
    main()
