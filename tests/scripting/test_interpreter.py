import asyncio
import builtins
import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import pytest

from divebook.errors import ScriptError, ScriptLimitError
from divebook.scripting import Interpreter, Limits, Purpose, default_interpreter
from divebook.scripting.interpreter import _WARM_SESSIONS
from divebook.scripting.prelude import BUILTINS
from divebook.scripting.syntax import SandboxError, compile_expression, compile_script, select
from divebook.steps import script_step


def value_of(expression, **names):
    return default_interpreter().evaluate(Purpose.TEMPLATE, [expression], names)[0]


class Mood(Enum):
    GOOD = "good"


@dataclass
class Order:
    number: int


def test_script_steps_are_not_expressions():
    with pytest.raises(ValueError, match="run_script"):
        default_interpreter().evaluate(Purpose.ACTIVITY, ["1"], {})


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 2**100, 1.5, "text é \U0001f600", "", b"\x00", [], {}, {"a": {"b": [1, None]}}, {1: 2, None: 3}],
)
def test_values_cross_unchanged(value):
    assert value_of("v", v=value) == value


def test_values_the_sandbox_does_not_know_cross_as_plain_data():
    value = MappingProxyType({"mood": Mood.GOOD, "rows": range(2), "raw": bytearray(b"a"), "n": MappingProxyType({})})
    assert value_of("v", v=value) == {"mood": "good", "rows": [0, 1], "raw": b"a", "n": {}}
    assert value_of("state.mood", state=value) == "good"


def test_an_object_that_cannot_cross_is_named_with_its_place():
    with pytest.raises(ScriptError, match=r"state.orders\[1\] is a Order, which scripts cannot read"):
        value_of("state", state={"orders": [1, Order(2)]})


def test_a_value_nobody_looks_at_does_not_have_to_cross():
    assert value_of("state.count", state={"count": 1, "order": Order(2)}) == 1


@pytest.mark.parametrize(
    ("expression", "reached"),
    [
        ("state.a", {"a": 1}),
        ("state['a'] + state.b", {"a": 1, "b": 2}),
        ("state.get('a', 0)", {"a": 1}),
        ("'a' in state", {"a": 1}),
        ("'z' not in state", {}),
        ("state.z", {}),
        ("[state.a for x in inputs.y]", {"a": 1}),
        ("f'{state.a}'", {"a": 1}),
        ("len(state)", {"a": 1, "b": 2, "c": 3}),
        ("state[inputs.y]", {"a": 1, "b": 2, "c": 3}),
        ("state.get(*inputs.y)", {"a": 1, "b": 2, "c": 3}),
        ("state.items()", {"a": 1, "b": 2, "c": 3}),
        ("state.a in state", {"a": 1, "b": 2, "c": 3}),
        ("[state for state in [state]]", {"a": 1, "b": 2, "c": 3}),
    ],
)
def test_only_the_keys_an_expression_can_reach_cross(expression, reached):
    names = {"state": {"a": 1, "b": 2, "c": 3}, "inputs": {"y": "a"}, "unused": 1}
    selected = select([compile_expression(expression)], names)
    assert selected["state"] == reached
    assert "unused" not in selected


def test_expressions_together_reach_what_each_of_them_reaches():
    names = {"state": {"a": 1, "b": 2, "c": 3}}
    programs = [compile_expression("state.a"), compile_expression("state.b")]
    assert select(programs, names) == {"state": {"a": 1, "b": 2}}
    assert select([*programs, compile_expression("state")], names) == names


def test_a_script_that_makes_code_reaches_everything():
    assert select([compile_script("eval('state')[state.a]")], {"state": {"a": 1, "b": 2}}) == {
        "state": {"a": 1, "b": 2}
    }


def test_preparing_a_script_is_remembered():
    assert compile_expression("state.a + 1") is compile_expression("state.a + 1")


def test_four_threads_share_one_interpreter():
    with Interpreter() as interpreter, ThreadPoolExecutor(4) as threads:
        start = threading.Barrier(4)

        def work(seed):
            start.wait(10)
            for number in range(50):
                names = {"state": {"n": number, "seed": seed}}
                values = interpreter.evaluate(Purpose.CONDITION, ["state.n * 10 + state.seed", "state.seed"], names)
                assert values == [number * 10 + seed, seed]
            return interpreter.run_script("state.seed + 1", {"state": {"seed": seed}})

        assert list(threads.map(work, range(4))) == [1, 2, 3, 4]


def test_a_session_is_not_used_again_after_a_limit():
    with Interpreter(Limits(seconds=0.1)) as interpreter:
        interpreter.evaluate(Purpose.CONDITION, ["1"], {})
        before = interpreter._processes.acquire(interpreter.limits, fresh=False)
        interpreter._processes.release(before, usable=True)
        with pytest.raises(ScriptLimitError, match=r"ran longer than 0.1 s"):
            interpreter.evaluate(Purpose.CONDITION, ["[0 for x in range(10**6) for y in range(10**6)]"], {})
        after = interpreter._processes.acquire(interpreter.limits, fresh=False)
        interpreter._processes.release(after, usable=True)
        assert after is not before


def test_values_left_by_earlier_expressions_do_not_take_the_room_of_later_ones():
    with Interpreter(Limits(memory=32 * 1024 * 1024)) as interpreter:
        for name in ("first", "second", "third"):
            assert interpreter.evaluate(Purpose.CONDITION, [f"len({name})"], {name: "x" * 12_000_000}) == [12_000_000]


def test_a_closed_interpreter_starts_again_when_used():
    interpreter = Interpreter()
    assert interpreter.evaluate(Purpose.EACH, ["1"], {}) == [1]
    interpreter.close()
    interpreter.close()
    assert interpreter.evaluate(Purpose.EACH, ["2"], {}) == [2]
    interpreter.close()


def _evaluate_in_child(answers):
    for interpreter in (default_interpreter(), Interpreter()):
        try:
            answers.put(interpreter.evaluate(Purpose.CONDITION, ["1"], {}))
        except ScriptError as error:
            answers.put(str(error))
    default_interpreter().close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_told_instead_of_waiting_for_ever_and_leaves_the_parent_alone():
    assert value_of("1") == 1
    forking = multiprocessing.get_context("fork")
    answers = forking.Queue()
    child = forking.Process(target=_evaluate_in_child, args=(answers,))
    child.start()
    assert "forked" in answers.get(timeout=30)
    assert "forked" in answers.get(timeout=30)
    child.join(30)
    assert child.exitcode == 0
    assert value_of("state.n + 2", state={"n": 1}) == 3


def test_a_program_that_used_scripts_ends_cleanly():
    code = "from divebook.scripting import *\nprint(evaluate_condition('1 < 2', {}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_importing_the_package_does_not_load_the_sandbox():
    code = "import sys, divebook.scripting\nassert 'pydantic_monty' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_set_order_does_not_depend_on_the_process():
    code = (
        "from divebook.scripting import *\n"
        'print(render_template(\'${[x for x in {"c", "a", "b"}]} ${{"z", "y"}} ${str({"q", "p"})}\', {}))'
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert texts == {"c\n\na\n\nb y\n\nz {'q', 'p'}\n"}


def test_the_lists_of_builtins_are_what_the_sandbox_has():
    candidates = [name for name in dir(builtins) if not name.startswith("_")]
    interpreter = default_interpreter()
    session = interpreter._processes.acquire(interpreter.limits, fresh=True)
    present = set()
    for name in candidates:
        with contextlib.suppress(SandboxError):
            session.evaluate(f"[{name}] and None", {})
            present.add(name)
    interpreter._processes.release(session, usable=False)
    assert present - {"True", "False", "None"} == BUILTINS


def test_a_session_that_has_no_time_to_begin_is_a_limit_like_any_other(monkeypatch):
    """On a busy machine: the limit of a first try passes while the sandbox is still made ready."""
    with Interpreter(Limits(seconds=1e-6)) as hurried:
        for _ in range(2 * _WARM_SESSIONS):  # each gives its process back, so that the next one has not to wait for it
            with pytest.raises(ScriptLimitError, match="ran longer"):
                hurried.evaluate(Purpose.CONDITION, ["len([1])"], {})
        with pytest.raises(ScriptLimitError, match="ran longer"):
            hurried.run_script("len([1])", {}, None, Limits(seconds=1e-6))
        monkeypatch.setattr(script_step, "INLINE", hurried)
        assert asyncio.run(script_step.render_texts(["up to ${max(state.n)}"], {"state": {"n": [1, 4]}})) == ["up to 4"]
