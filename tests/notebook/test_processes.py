"""Functions of cells in processes: a real kernel."""

CELL = """\
import os
from divebook import Environment
from divebook.definitions import step, workflow

FACTOR = 2
class TooMuch(ValueError):
    pass

@step(executor="process")
def double(n):
    if n > 9:
        raise TooMuch(n)
    print("doubling", n)
    return [FACTOR * n, os.getpid() == KERNEL]

@workflow
async def doubles(ctx, n: int):
    try:
        return await double(n)
    except TooMuch as error:
        return f"too much: {error}"

KERNEL = os.getpid()
world = Environment(store="memory:")
world.start("doubles", {"n": 4}).wait(30).outputs["result"]
"""


def test_functions_of_cells_run_in_processes_as_they_stand(kernel):
    assert kernel.text(CELL) == "doubling 4\n[8, False]"
    kernel.text("FACTOR = 3")
    again = "world.start('doubles', {'n': N}).wait(30).outputs['result']"
    assert kernel.text(again.replace("N", "5")) == "doubling 5\n[15, False]"
    assert kernel.text(again.replace("N", "10")) == "'too much: 10'"
    assert kernel.text("world.close(); len(world._executors._processes._all)") == "0"
