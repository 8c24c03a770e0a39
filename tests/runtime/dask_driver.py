"""A process that has a Dask cluster make calls, to be killed meanwhile: ``python -m tests.runtime.dask_driver``."""

import sys
from pathlib import Path

import cloudpickle

from divebook import Environment
from divebook.definitions import step, workflow

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def wait(folder, name):
    with Path(folder, "calls").open("a") as calls:
        calls.write(f"{name}\n")
    Path(folder, f"{name} there").write_text(name)
    return Path(folder, f"{name} goes on").read_text() + name


twice, once = step(idempotent=True)(wait), step(name="once")(wait)


def calling():
    """Return the workflow, made for who asks: the tests of one module forget what another has made at import."""

    @workflow
    async def both(ctx, folder: str):
        return await ctx.gather(twice(folder, "twice"), once(folder, "once"))

    return both


def main(address, folder):
    with Environment(store=Path(folder, "log.db"), workflows=[calling()], executor=address) as environment:
        environment.start("both", {"folder": folder}).wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
