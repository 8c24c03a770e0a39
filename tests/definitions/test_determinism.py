"""Lines of workflow functions that come to something else when they run again are told where they are defined."""

import linecache
import sys
import types
import warnings

import pytest

from divebook.definitions import lint
from divebook.definitions.functions import WORKFLOW_FUNCTIONS
from divebook.errors import DeterminismWarning

HEAD = """\
import asyncio, concurrent.futures, os, pathlib, random, secrets, subprocess, threading, time, urllib.request, uuid
import datetime as dt
import anyio
import httpx2
import numpy as np
from datetime import date, datetime
from pathlib import Path
from random import choice
from time import perf_counter, sleep
from divebook.steps.actions import action
from divebook.definitions import step, workflow

SEEN, LIMITS = [], {"rows": 3}
COLOURS = {"red", "green"}

@step
def price(n):
    return n * time.time() + random.random()

@step
async def fetch(url):
    return await httpx2.AsyncClient().get(url)

def clean(text):
    return text.strip()

def shuffled(rows):
    random.shuffle(rows)
    return rows

async def twice(ctx, n):
    return await price(n) + await price(n)

"""


@pytest.fixture
def define():
    """Return what defines a workflow function whose body is given, and returns it with what was warned of."""
    known, name = dict(WORKFLOW_FUNCTIONS), "cell_of_lint"

    def run(*lines):
        text = HEAD + "@workflow\nasync def flow(ctx, rows):\n" + "".join(f"    {line}\n" for line in lines)
        file = f"<lint {hash(text)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        module = sys.modules[name] = types.ModuleType(name)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            exec(compile(text, file, "exec"), vars(module))
        return module.flow, [one for one in told if one.category is DeterminismWarning]

    yield run
    WORKFLOW_FUNCTIONS.clear()
    WORKFLOW_FUNCTIONS.update(known)
    sys.modules.pop(name, None)


FIRST = HEAD.count("\n") + 3
"""The line of the first statement of the function."""
CLOCK = (
    "time.time()",
    "time.monotonic_ns()",
    "perf_counter()",
    "datetime.now()",
    "dt.datetime.utcnow()",
    "date.today()",
)
CHANCE = (
    "random.random()",
    "choice(rows)",
    "uuid.uuid4()",
    "os.urandom(8)",
    "secrets.token_hex()",
    "np.random.rand(3)",
    "random.Random()",
    "np.random.default_rng()",
)
OUTSIDE = (
    "open('a.txt')",
    "os.getenv('HOME')",
    "os.environ['HOME']",
    "Path('a').read_text()",
    "pathlib.Path('a').exists()",
    "subprocess.run(['ls'])",
    "urllib.request.urlopen('http://x')",
    "input()",
    "os.listdir('.')",
    "os.path.exists('a')",
)
ELSEWHERE = (
    "threading.Thread(target=clean)",
    "concurrent.futures.ThreadPoolExecutor()",
    "await asyncio.to_thread(clean, 1)",
)
TASKS = ("asyncio.create_task(twice(ctx, 1))", "await asyncio.gather(twice(ctx, 1), twice(ctx, 2))")
ORDER = (
    "[clean(x) for x in set(rows)]",
    "list({'a', 'b'})",
    "','.join(COLOURS)",
    "[*frozenset(rows)]",
    "COLOURS.pop()",
    "{x: 1 for x in COLOURS - {'red'}}",
)
UNAWAITED = ("price(1)", "ctx.sleep(3)", "ctx.agent('critic').run('Is this good?')", "later = price(1)")
CHANGED = ("SEEN.append(rows)", "LIMITS['rows'] = 4", "LIMITS['rows'] += 1", "COLOURS.add('blue')")
UNRECORDED = ("await anyio.to_thread.run_sync(clean)", "server = anyio.Event(); await server.wait()")
LIMITED = (
    "async with asyncio.timeout(3): pass",
    "await asyncio.wait_for(price(1), 3)",
    "anyio.fail_after(3)",
    "anyio.move_on_after(3)",
)
DOUBTFUL = {
    "ctx.now()": CLOCK,
    "ctx.random()": CHANCE,
    "@step function": (*OUTSIDE, *ELSEWHERE),
    "ctx.gather": TASKS,
    "sorted(": ORDER,
    "write `await` before it": UNAWAITED,
    "variable of the function": CHANGED,
    "async @step function": UNRECORDED,
    "@step(timeout=seconds)": LIMITED,
    "ctx.sleep(seconds)": ("sleep(3)", "await asyncio.sleep(3)"),
    "hashlib": ("hash('a')", "id(rows)"),
}


@pytest.mark.parametrize(("fix", "line"), [(fix, line) for fix, lines in DOUBTFUL.items() for line in lines])
def test_a_doubtful_line_is_told_with_what_to_write(define, fix, line):
    _, (told, *more) = define("x = 1", line, "return x")
    assert told.lineno == FIRST + 1
    assert fix in str(told.message)
    assert {one.lineno for one in more} <= {told.lineno}


@pytest.mark.parametrize("line", [line for lines in DOUBTFUL.values() for line in lines])
def test_a_line_can_be_passed_over(define, line):
    assert define(f"{line}  # dive: ignore", "return rows")[1] == []


SOUND = (
    "a = await price(1)",
    "a, b = await ctx.gather(price(1), twice(ctx, 2))",
    "later = price(1); a = await later",
    "calls = [price(n) for n in rows]; a = await ctx.gather(*calls)",
    "a = await asyncio.gather(*[price(n) for n in range(3)])",
    "a = await asyncio.gather(price(1), price(2)); b = asyncio.create_task(price(3))",
    "when = await ctx.now(); a = when.isoformat()",
    "a = datetime(2026, 1, 1).isoformat()",
    "a = dt.timedelta(days=1)",
    "a = random.Random(7).random",
    "a = np.random.default_rng(7)",
    "a = time.strftime('%Y', (2026, 1, 1, 0, 0, 0, 0, 1, 0))",
    "a = sorted({1, 2}) + sorted(COLOURS)",
    "a = 'red' in COLOURS and len(set(rows)) > 1 and any(set(rows))",
    "a = {x for x in set(rows)}",
    "own = []; own.append(1); own = {}; own['a'] = 1",
    "a = LIMITS['rows'] + len(SEEN)",
    "a = clean('x')",
    "a = await ctx.agent('critic').run('Is this good?')",
    "critic = ctx.agent('critic'); a = await critic.run('Is this good?')",
    "a = await fetch('http://x')",
    "ctx.emit('done', {'rows': 1})",
    "a = Path('a') / 'b'",
    "a = [x for x in rows if x]",
    "time = 3; a = time + 1",
    "a = {'now': 1}; b = a.pop('now')",
)


@pytest.mark.parametrize("line", SOUND)
def test_a_sound_line_is_let_be(define, line):
    assert [str(one.message) for one in define(line, "return rows")[1]] == []


def test_helpers_of_the_same_module_are_looked_into_and_steps_are_not(define):
    flow, (told,) = define("a = shuffled(list(rows))", "return await twice(ctx, await price(a))")
    assert "random.shuffle()" in str(told.message)
    assert told.lineno == HEAD[: HEAD.index("random.shuffle")].count("\n") + 1
    assert [found.line for found in lint(flow)] == [told.lineno]
    (found,) = lint(flow)
    assert repr(lint(flow)) == f"{told.filename}:{told.lineno}:{found.column}: {told.message}"


def test_a_global_that_is_assigned_is_told(define):
    _, (told,) = define("global SEEN", "SEEN = [1]", "return SEEN")
    assert "global SEEN changes state outside the function" in str(told.message)


def test_workflows_of_steps_have_nothing_to_tell():
    from divebook import Step, Workflow

    assert lint(Workflow("w", [Step("s", type="script", script="1 + 1")])) == []


def test_a_function_without_text_is_let_be(define):
    namespace = {}
    exec("async def hidden(ctx):\n    import time\n    return time.time()", namespace)
    assert lint(namespace["hidden"]) == []
