from datetime import UTC, date, datetime

import pytest

from divebook.errors import ScriptError, ScriptLimitError, ScriptSyntaxError, UndefinedVariableError
from divebook.scripting import Limits, default_interpreter

NAMES = {"inputs": {"n": 3, "name": "Al"}, "state": {"count": 5, "user": {"age": 30}}, "item": "x"}


class FixedHost:
    """Answers every question the same way each time, and remembers what was asked."""

    def __init__(self, seed=b"0123456789abcdef"):
        self.seed = seed
        self.slept = []
        self.text = []
        self.documents = {"a.md": "hello"}

    def now(self):
        return 1_600_000_000.25

    def entropy(self):
        return self.seed

    def sleep(self, seconds):
        self.slept.append(seconds)

    def document(self, path):
        if path not in self.documents:
            raise FileNotFoundError(f"no document {path}")
        return {"path": path, "content": self.documents[path]}

    def printed(self, text):
        self.text.append(text)


class HostError(Exception):
    pass


class FailingHost(FixedHost):
    def now(self):
        raise HostError("diverged")


def run(source, host=None, **limits):
    return default_interpreter().run_script(source, NAMES, host, Limits(**limits))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("inputs.n + 1", 4),
        ("total = 0\nfor i in range(inputs.n):\n    total += i\ntotal", 3),
        ("item + '!'", "x!"),
        ('state.get("n", 0) + 1', 1),
        ("x = 1", None),
        ("", None),
        ("# nothing\n", None),
        ("if True:\n    5\n", None),
        ("def double(x):\n    return 2 * x\n\ndouble(inputs.n)", 6),
        ("class P:\n    def __init__(self, x):\n        self.x = x\n\np = P(4)\np.x += 1\n{'x': p.x}", {"x": 5}),
        ("import math\nmath.floor(2.5)", 2),
        ("json.loads('[1]')", [1]),
        ("import json\ntry:\n    json.loads('x')\nexcept json.JSONDecodeError as e:\n    r = 'bad'\nr", "bad"),
        ("from datetime import datetime as dt\ndt(2020, 1, 2).year", 2020),
        ("{1, 2}, (3,)", [[1, 2], [3]]),
        ("state.user.keys()", ["age"]),
        ("string(1) + str(2)", "12"),
        ("x = state['user']\nx['age'] = 1\nx.age", 1),
        ("def f(state):\n    state['x'] = 1\n    return state.x\n\nf({})", 1),
        ("__name__", "__main__"),
        ("eval('1 + inputs[\"n\"]')", 4),
        ("'doc'", "doc"),
        ("x = 1; x + 1;", 2),
        ("import asyncio\n\nasync def f():\n    return 3\n\nawait f()", 3),
        ("global_list = [1]\n\ndef f():\n    global made\n    made = 2\n\nf()\nmade", 2),
        ("str = 5\nlist = 6\nstate.user.age", 30),
        ("x = 1\r\nx + 1\r\n", 2),
    ],
)
def test_the_last_expression_is_the_result(source, expected):
    assert run(source, FixedHost()) == expected


def test_two_runs_share_nothing():
    run("leak = 1")
    with pytest.raises(UndefinedVariableError):
        run("leak")


def test_the_clock_is_the_hosts():
    source = "import time\nimport datetime as d\n"
    source += "[time.time(), d.datetime.now(), d.datetime.now(d.timezone.utc), d.date.today()]"
    moment = datetime(2020, 9, 13, 12, 26, 40, 250_000, tzinfo=UTC)
    assert run(source, FixedHost()) == [1_600_000_000.25, moment.replace(tzinfo=None), moment, date(2020, 9, 13)]


def test_chance_follows_from_the_hosts_entropy():
    source = "import random\n[random.random(), random.randint(1, 10**9)]"
    first = run(source, FixedHost())
    assert run(source, FixedHost()) == first
    assert run(source, FixedHost(b"another seed ...")) != first


def test_sleep_is_the_hosts():
    host = FixedHost()
    run("import time, asyncio\ntime.sleep(100)\n\nasync def f():\n    await asyncio.sleep(7)\n\nawait f()", host)
    assert host.slept == [100, 7]


def test_documents_are_the_hosts():
    assert run('documents.get("a.md").content + documents.get(path="a.md")["path"]', FixedHost()) == "helloa.md"


def test_a_missing_document_may_be_handled_and_else_is_the_hosts_error():
    handled = 'try:\n    documents.get("b")\nexcept FileNotFoundError as e:\n    r = str(e)\nr'
    assert run(handled, FixedHost()) == "no document b"
    with pytest.raises(FileNotFoundError, match=r"^no document b$"):
        run('documents.get("b")', FixedHost())


def test_an_error_of_the_host_cannot_be_caught_by_the_script_and_comes_out_unchanged():
    with pytest.raises(HostError, match=r"^diverged$"):
        run("import time\ntry:\n    time.time()\nexcept BaseException:\n    pass\n1", FailingHost())


def test_printing_is_handed_over_once_even_if_the_script_fails():
    host = FixedHost()
    run("print('a', 1)\nprint('b')", host)
    with pytest.raises(ScriptError):
        run("print('c')\n1 / 0", host)
    assert host.text == ["a 1\nb\n", "c\n"]


def test_without_a_host_there_is_no_clock():
    with pytest.raises(ScriptError, match="not available here"):
        run("import time\ntime.time()")


@pytest.mark.parametrize(
    "source",
    [
        "open('/etc/passwd').read()",
        "import os\nos.getenv('HOME')",
        "import os\nos.environ",
        "import os\nos.listdir('.')",
        "from pathlib import Path\nPath('x').write_text('y')",
    ],
)
def test_the_rest_of_the_system_is_refused(source):
    with pytest.raises(ScriptError, match=r"PermissionError: scripts are sandboxed"):
        run(source, FixedHost())


@pytest.mark.parametrize("name", ["subprocess", "socket", "numpy"])
def test_only_the_sandboxs_own_modules_can_be_imported(name):
    with pytest.raises(ScriptError, match=f"No module named '{name}'"):
        run(f"import {name}", FixedHost())


@pytest.mark.parametrize(
    "source",
    [
        "state.x = 1",
        "state['x'] = 1",
        "state.user.age += 1",
        "state['a']['b'].c = 1",
        "inputs = {}",
        "for state in []:\n    pass",
        "[state.x, y] = 1, 2",
        "del state['x']",
        "with_x = 1\nif with_x:\n    inputs.n = 4",
    ],
)
def test_writing_to_inputs_or_state_is_refused_with_advice(source):
    with pytest.raises(ScriptSyntaxError, match=r"cannot change '(state|inputs)' .*set Store in the step"):
        run(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = = 1", "invalid syntax"),
        ("x = 1\ny = (", "line 2"),
        ("return 5", "'return' outside a function (line 1); end the script with the value"),
        ("if 1:\n    return 5", "line 2"),
        ("from math import *", "import the names that you need"),
        ("__divebook_result__ = 1", "reserved"),
        ("def f(__divebook_attribute__):\n    pass", "reserved"),
        ("def f():\n    yield 1", "yield"),
        ("class A(Exception):\n    pass", "class inheritance"),
        ("nonlocal x", "nonlocal"),
        ("[id for id in [1]]", "a comprehension cannot assign to 'id'"),
    ],
)
def test_what_the_sandbox_cannot_run_is_a_syntax_error(source, message):
    with pytest.raises(ScriptSyntaxError) as caught:
        run(source)
    assert message in str(caught.value)


def test_an_unknown_name_is_found_before_anything_runs():
    host = FixedHost()
    with pytest.raises(UndefinedVariableError, match='undefined variable "nope"') as caught:
        run("print(1)\n\nx = nope", host)
    assert (caught.value.line, host.text) == (3, [])
    with pytest.raises(UndefinedVariableError, match="write 'import time' first"):
        run("time.time()", host)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("x = 1\n\n1 / 0", "ZeroDivisionError: division by zero (line 3)"),
        (
            "def f():\n    return state.cuont\n\nf()",
            "AttributeError: state has no key 'cuont' (did you mean 'count'?) (line 2)",
        ),
        ("raise ValueError('bad é')", "ValueError: bad é"),
        ('error("boom")', "boom"),
        ('x = 1\nerror("boom")', "boom (line 2)"),
        ("x = 'é€'; y = '\U0001f600'.nope\n", "AttributeError: 'str' object has no attribute 'nope'"),
        ('text = f"""{inputs.name}\n{inputs.n!r:>3}\n"""\n\n1 / 0', "(line 5)"),
        ("x = [\n    inputs.n,\n    inputs.nam,\n]", "inputs has no key 'nam' (did you mean 'name'?) (line 3)"),
        ("lambda: 1", "cannot return a function"),
        ("class P:\n    pass\n\nP", "cannot return a class"),
        ("class P:\n    pass\n\nP()", "cannot return P"),
        ("import math\nmath", "cannot return a module"),
        ("[len]", "cannot return len"),
    ],
)
def test_a_failure_keeps_type_message_and_line(source, message):
    with pytest.raises(ScriptError) as caught:
        run(source)
    assert message in str(caught.value)


def test_endless_and_greedy_scripts_are_stopped_and_cannot_prevent_it():
    with pytest.raises(ScriptLimitError, match=r"script ran longer than 0.2 s"):
        run(
            "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
            seconds=0.2,
        )
    with pytest.raises(ScriptLimitError, match=r"script needs more than 16 MiB"):
        run("x = []\nwhile True:\n    x.append('a' * 10_000)", memory=16 * 2**20)


def test_waiting_for_the_host_does_not_count_as_running():
    assert run("import time\nfor i in range(2000):\n    time.time()\ni", FixedHost(), seconds=5) == 1999


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("x = []\nx.append(x)\nx", "part of itself"),
        ("x = {}\nx['a'] = [(x,)]\n[1, x]", "part of itself"),
        ("async def f():\n    return 1\nf()", "cannot return a coroutine; await it"),
        ("async def f():\n    return 1\n[{'a': f()}]", "cannot return a coroutine; await it"),
    ],
)
def test_results_that_would_be_changed_in_silence_are_errors(script, message):
    with pytest.raises(ScriptError, match=message):
        default_interpreter().run_script(script, {})


@pytest.mark.parametrize("script", ["'\\ud800'", "f'{1}\\udfff'", "len('\\ud83d\\ude00')"])
def test_half_a_character_is_an_error_at_its_line(script):
    with pytest.raises(ScriptSyntaxError, match=r"half of a surrogate pair \(line 2\)"):
        default_interpreter().run_script(f"1\n{script}", {})


def test_results_that_only_look_odd_stay():
    script = "x = [1]\n[x, x, '[...]', '<coroutine object f>', {'...': (1, {2})}]"
    expected = [[1], [1], "[...]", "<coroutine object f>", {"...": [1, [2]]}]
    assert default_interpreter().run_script(script, {}) == expected
