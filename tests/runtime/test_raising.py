"""What a function made with @step raises: caught as what it is, live and on replay; nothing is imported for it."""

import sys
import types

import pytest

from divebook import Environment, errors
from divebook.definitions import step, workflow
from divebook.engine.state import OperationRecord
from divebook.errors import OperationError
from divebook.runtime.errors import as_recorded, error_from, facts_of
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import cut


class RefusedError(ValueError):
    """An error whose constructor takes something else than its arguments."""

    constructed = 0

    def __init__(self, code, *, reason):
        RefusedError.constructed += 1
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason


def unreadable():
    b"\xff".decode("utf-8")


def raising(error):
    def call():
        raise error

    return call


ERRORS = [
    (raising(ValueError("no", 3)), ValueError),
    (raising(KeyError("b")), LookupError),
    (raising(FileNotFoundError(2, "gone", "a.txt")), OSError),
    (raising(ZeroDivisionError()), ArithmeticError),
    (raising(RefusedError(7, reason="late")), RefusedError),
    (unreadable, UnicodeDecodeError),
    (raising(TimeoutError("late")), TimeoutError),
    (raising(ExceptionGroup("both", [ValueError("x")])), OperationError),
]


def described(error):
    shown = {name: value for name, value in vars(error).items() if name != "__notes__"}
    return type(error), str(error), error.args, getattr(error, "errno", None), getattr(error, "filename", None), shown


@pytest.mark.parametrize(("call", "caught"), ERRORS, ids=lambda value: getattr(value, "__name__", ""))
def test_an_error_is_caught_as_what_it_is_and_is_the_same_on_replay(call, caught):
    seen = []
    made = step("fails", idempotent=True)(call)

    @workflow
    async def careful(ctx):
        try:
            await made()
        except caught as error:
            seen.append(described(error))
        return len(seen)

    world = Environment(store=MemoryStore())
    execution = world.start("careful").wait(20)
    assert execution.outputs == {"result": 1}
    before = RefusedError.constructed
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_failed")
    Environment(store=cut(execution.store, execution, length)).run_of(execution.id).resume().wait(20)
    assert seen[0] == seen[1]
    assert RefusedError.constructed == before


@pytest.mark.parametrize(("call", "_"), ERRORS)
def test_text_and_arguments_are_those_of_the_error_itself(call, _):
    with pytest.raises(Exception) as raised:
        call()
    error = raised.value
    again = as_recorded(error)
    assert again.error_names[0] == type(error).__name__
    if not isinstance(error, ExceptionGroup):
        assert (str(again), again.args) == (str(error) or "", error.args)


def record(types, **facts):
    return OperationRecord("op", "step_execution", None, 0, error="boom", raised={"types": types, **facts})


def test_a_log_never_causes_an_import_and_an_unknown_class_becomes_its_nearest_base():
    assert "antigravity" not in sys.modules
    error = error_from(record(["antigravity:Gravity", "builtins:LookupError"]))
    assert isinstance(error, LookupError)
    assert type(error_from(record(["antigravity:Gravity"]))) is OperationError
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "forged", ["builtins:SystemExit", "builtins:print", "os:system", "os:path.join", "sys:", ":", ""]
)
def test_what_is_no_exception_class_is_never_used(forged):
    assert type(error_from(record([forged]))) is OperationError


def test_a_lazy_module_is_not_asked():
    module = types.ModuleType("lazy_for_test")
    module.__getattr__ = lambda name: pytest.fail("the module was asked")
    sys.modules["lazy_for_test"] = module
    try:
        assert type(error_from(record(["lazy_for_test:Gone"]))) is OperationError
    finally:
        del sys.modules["lazy_for_test"]


def test_logs_without_the_facts_still_give_built_in_errors():
    old = OperationRecord("op", "t", None, 0, error="no", error_names=("ConnectionResetError", "ConnectionError"))
    assert isinstance(error_from(old), ConnectionError)


def test_arguments_that_are_large_or_cannot_be_stored_are_left_out():
    assert "args" not in facts_of(ValueError(object()))
    assert "args" not in facts_of(ValueError("x" * 100_000))


def test_a_failure_names_its_call_and_where_it_was_raised_without_secrets(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "swordfish-42")

    @step
    def login():
        token = "swordfish-42"
        return {}[token and "b"]

    @workflow
    async def visit(ctx):
        return await login()

    execution = Environment(store=MemoryStore()).start("visit").wait(20)
    assert execution.error.startswith("KeyError: 'b' (step login, tests/runtime/test_raising.py:")
    failed = next(e.data for e in execution.history() if e.event_type == "operation_failed")
    assert 'return {}[token and "b"]' in failed.trace


def test_an_error_of_the_workflow_function_itself_has_its_trace_in_the_log():
    @workflow
    async def wrong(ctx):
        return 1 // 0

    execution = Environment(store=MemoryStore()).start("wrong").wait(20)
    failed = next(e.data for e in execution.history() if e.event_type == "step_failed")
    assert "return 1 // 0" in failed.trace
    assert execution.error.startswith("ZeroDivisionError: integer division or modulo by zero (step wrong, tests/")


FIELDS_IN_LOGS = [
    (errors.ExecutionFailedError("exec_1", "no"), {"execution_id": "exec_1", "error": "no"}),
    (errors.StartKeyTakenError("k", "exec_1", "w"), {"key": "k", "execution_id": "exec_1", "workflow": "w"}),
    (errors.InterruptError("ask_1", "no"), {"interrupt_id": "ask_1", "reason": "no"}),
    (errors.TimedOutError("step 'a'", 1.5), {"what": "step 'a'", "seconds": 1.5}),
    (errors.StageTimeoutError("a", 1.5), {"stage": "a", "seconds": 1.5}),
    (errors.ShellTimeoutError("ls", 1.5), {"command": "ls", "timeout": 1.5}),
]


@pytest.mark.parametrize(("error", "fields"), FIELDS_IN_LOGS, ids=lambda value: type(value).__name__)
def test_logs_keep_the_names_and_units_that_attributes_of_errors_had_first(error, fields):
    facts = facts_of(error)
    assert fields.items() <= facts["fields"].items()
    again = as_recorded(error)
    restored = {name: value for name, value in vars(again).items() if name in vars(error)}
    assert restored == vars(error)


@pytest.mark.parametrize("name", ["execution_id", "interrupt_id"])
def test_a_former_attribute_of_an_error_is_named_with_the_present_one(name):
    with pytest.raises(AttributeError, match=f"no longer has '{name}'; write {errors.RENAMED[name]}"):
        getattr(errors.ExecutionPausedError("exec_1"), name)
