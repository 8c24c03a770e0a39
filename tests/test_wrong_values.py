"""Values of a wrong type in each parameter of the public API raise errors of divebook, never errors of its insides."""

import inspect
import re
from functools import partial

import pytest

import divebook
import divebook.testing
from divebook import (
    Agent,
    Ask,
    Bounds,
    Catch,
    Each,
    Edge,
    Environment,
    Retry,
    Rollback,
    ScriptedModel,
    Step,
    Workflow,
    action,
    allow,
    step,
    tool,
    workflow,
)
from divebook.definitions import (
    ApprovalRule,
    InputDefinition,
    MCPServerDefinition,
    OutputDefinition,
    ScheduleDefinition,
    WorkspaceDefinition,
    lint,
    read_definitions,
)
from divebook.environments.starts import StartOptions
from divebook.environments.variants import TrialOptions, WhatIfOptions
from divebook.errors import DivebookError, SetupError
from divebook.notebook.session import open_session
from divebook.queues import Worker


class Thing:
    """An object that no function of divebook expects."""


VALUES = (None, 5, -1, float("nan"), True, "x", "", b"", [], [5], {}, {1: 2}, Thing(), lambda *_: 1)
INSIDES = re.compile(r"<definition>|Value error, |/divebook/|\.py:\d|site-packages|object is not|has no attribute")
"""Texts that name something inside divebook or its libraries."""


def double(x: int = 1) -> int:
    return 2 * x


async def doubled(ctx, x: int = 1):
    return 2 * x


async def told(ctx, text: str = ""):
    return text


class Objects:
    """Objects on which the calls are made, in the session of a notebook over a store in memory."""

    def __init__(self):
        self.session = open_session("memory:")
        self.environment = divebook.environment()
        self.workflow = Workflow("adding", [Step("add", script="1", store="n")])
        self.environment.add_workflow(self.workflow)
        self.environment.add_workflow(Workflow("asking", [Step("ask", ask="Which?", store="n")]))
        self.done = self.environment.start("adding").wait()
        self.waiting = self.environment.start("asking").wait()


OPTIONS = tuple(StartOptions.__annotations__)
OF_AN_OBJECT = {
    Agent: {"definition": "a"},
    ApprovalRule: {},
    Ask: {"question": "q"},
    Bounds: {},
    Catch: {"step": "x"},
    Each: {},
    Edge: {"step": "x"},
    InputDefinition: {"name": "x"},
    MCPServerDefinition: {"name": "x"},
    OutputDefinition: {"name": "x"},
    Retry: {},
    Rollback: {"action": "x"},
    ScheduleDefinition: {"name": "x"},
    ScriptedModel: {},
    Step: {"name": "s", "script": "1"},
    Workflow: {"name": "w", "steps": [Step("s", script="1")]},
    WorkspaceDefinition: {"name": "x"},
    allow: {},
    divebook.testing.Context: {},
    lint: {"workflow": told},
    read_definitions: {"text": "Workflows: []"},
}
"""Public classes and functions that need no environment, each with valid arguments for its required parameters."""
DECORATORS = {step: double, action: double, tool: double, workflow: doubled}
OF_RUNS = {
    "divebook.answer": {"question": "x", "response": "y"},
    "divebook.frames": {},
    "divebook.inbox": {},
    "divebook.map": {"frame": [{"x": 1}], "function": double, "store": "doubles"},
    "divebook.resume": {"run": "done"},
    "divebook.run": {"workflow": "adding"},
    "divebook.runs": {},
    "divebook.show": {"run": "done"},
    "done.annotate": {"tags": ["a"]},
    "done.compare": {"other": "done"},
    "done.export": {"file": "run.jsonl", "overwrite": True},
    "done.files": {},
    "done.fork": {},
    "done.history": {},
    "done.note": {"text": "a"},
    "done.result": {},
    "done.resume": {},
    "done.retry": {},
    "done.run_again": {},
    "done.subscribe": {"listener": print},
    "done.to_html": {"file": "run.html", "overwrite": True},
    "done.to_notebook": {"file": "run.ipynb", "overwrite": True},
    "done.to_test": {"file": "test_run.py", "overwrite": True},
    "done.try_step": {"step": "add"},
    "done.verify": {},
    "done.wait": {},
    "done.what_if": {},
    "environment.add_action": {"action": double},
    "environment.add_agent": {"agent": Agent("b")},
    "environment.add_executor": {"name": "x", "executor": "thread"},
    "environment.add_server": {"server": None},
    "environment.add_tool": {"tool": double},
    "environment.add_workflow": {"workflow": "workflow"},
    "environment.add_workspace": {"workspace": None},
    "environment.answer": {"question": "x", "response": 1},
    "environment.define": {"definitions": None},
    "environment.enqueue": {"workflow": "adding"},
    "environment.open": {"file": "x"},
    "environment.run_of": {"run": "done"},
    "environment.start": {"workflow": "adding"},
    "waiting.answer": {"question": "x", "response": "y"},
    "waiting.signal": {"name": "x"},
}
"""Functions and methods that need an environment. A string that names an attribute of `Objects` stands for it."""
MORE = {
    "divebook.frames": ("status", "workflow", "tag", "origin", "ids", "text", "since", "until"),
    "divebook.run": OPTIONS,
    "divebook.runs": ("tag", "origin", "parent"),
    "done.fork": OPTIONS,
    "done.try_step": tuple(TrialOptions.__annotations__),
    "done.what_if": tuple(WhatIfOptions.__annotations__),
    "environment.enqueue": OPTIONS,
    "environment.start": OPTIONS,
}
"""Further keywords of functions that take options."""
PROMISES = {"done.subscribe": ("listener",)}
"""Parameters whose value is used later, when an event arrives."""


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("wrong"))
        made = Objects()
        yield made
        made.session.close()


@pytest.fixture(autouse=True)
def _in_a_folder(objects, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a text may be the path of a store


def parameters_of(function, more=()):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in inspect.signature(function).parameters.values() if each.kind not in kinds]
    return [*names, *(name for name in more if name not in names)]


def faults(function, arguments, more=(), without=()):
    """Return the calls that raise an error of the insides of divebook, with the error."""
    found = []
    for name in parameters_of(function, more):
        for value in VALUES if name not in without else ():
            try:
                function(**{**arguments, name: value})
            except DivebookError as error:
                if INSIDES.search(str(error)):
                    found.append(f"{name}={value!r}: {error}")
            except TypeError as error:
                # The function that the caller passed does not fit, which Python says.
                if "<lambda>" not in str(error):
                    found.append(f"{name}={value!r}: TypeError: {error}")
            except TimeoutError:
                assert name == "timeout"
            except Exception as error:  # noqa: BLE001 - each other error is a fault
                found.append(f"{name}={value!r}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("function", OF_AN_OBJECT, ids=lambda function: function.__name__)
def test_a_class_or_function_refuses_wrong_values_in_its_own_words(function):
    assert faults(function, OF_AN_OBJECT[function]) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("decorator", DECORATORS, ids=lambda decorator: decorator.__name__)
def test_a_decorator_refuses_wrong_values_in_its_own_words(decorator):
    def decorate(**options):
        return decorator(**options)(DECORATORS[decorator])

    names = [name for name in parameters_of(decorator) if name not in ("name", "function")]
    assert faults(decorate, {}, more=names) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", OF_RUNS)
def test_a_method_or_function_over_runs_refuses_wrong_values_in_its_own_words(objects, path):
    owner, name = path.split(".")
    function = getattr(divebook if owner == "divebook" else getattr(objects, owner), name)
    arguments = {
        key: getattr(objects, value) if isinstance(value, str) and hasattr(objects, value) else value
        for key, value in OF_RUNS[path].items()
    }
    assert faults(function, arguments, MORE.get(path, ()), PROMISES.get(path, ())) == []


def test_an_environment_refuses_wrong_values_in_its_own_words():
    def make(**arguments):
        Environment(**{"store": "memory:", **arguments}).close()

    assert faults(make, {}, parameters_of(Environment)) == []


def test_a_worker_refuses_wrong_values_in_its_own_words(objects):
    assert faults(Worker, {"environment": objects.environment}) == []


def test_a_misspelt_option_of_a_worker_names_the_right_one(objects):
    with pytest.raises(divebook.errors.SetupError, match=r"a worker has no option 'paralel' \(did you mean 'parallel'"):
        objects.environment.worker(paralel=2)


def test_define_refuses_wrong_values_in_its_own_words(objects):
    def define(what):
        divebook.define(what)

    assert faults(define, {}) == []


@pytest.mark.parametrize("kind", ["agents", "workflows", "actions", "tools", "workspaces"])
def test_a_missing_name_is_an_error_that_says_what_exists_and_how_to_add_one(objects, kind):
    mapping = getattr(objects.environment.definitions, kind)
    with pytest.raises(
        divebook.errors.NameNotFoundError, match=rf"environment.add_{kind[:-1]}\(\.\.\.\) adds one"
    ) as one:
        mapping["addin"]
    assert isinstance(one.value, KeyError)
    assert mapping.get("addin") is None
    assert one.value.suggestion == ("adding" if kind == "workflows" else None)


def test_a_question_and_a_run_are_taken_where_their_ids_are(objects):
    run = objects.environment.start("asking").wait()
    (question,) = run.open_questions
    assert objects.environment.run_of(run) == divebook.show(run) == run
    objects.environment.answer(question, "this", run)
    assert run.wait().variables == {"n": "this"}
    again = objects.environment.start("asking").wait()
    assert divebook.answer(again.open_questions[0], "that").wait().status == "completed"
    third = objects.environment.start("asking").wait()
    assert third.answer(third.open_questions[0], "it").wait().status == "completed"


def test_frames_of_an_id_are_those_of_the_run(objects):
    assert [*divebook.frames(objects.done.id).executions["execution_id"]] == [objects.done.id]
    assert [*divebook.frames([objects.done.id]).executions["execution_id"]] == [objects.done.id]


def test_a_map_over_another_list_says_which_rows_it_was_begun_with(objects):
    divebook.map([{"x": 1}], double, store="lists").wait()
    with pytest.raises(DivebookError, match=r"was started with another frame \(1 row\)"):
        divebook.map([{"x": 1}, {"x": 2}], double, store="lists")


def test_define_takes_lists_and_paths(objects, tmp_path):
    (tmp_path / "flow.yaml").write_text("Workflows: [{Name: from-file, Steps: [{Name: s, Script: '1'}]}]")
    here = Workflow("here", [Step("s", script="1")])
    defined = divebook.define([here], tmp_path / "flow.yaml").defined
    assert defined == ("workflow 'here' (1 step)", "workflow 'from-file' (1 step)")
    assert divebook.define("flow.yaml").replaced == ("workflow 'from-file' (1 step)",)


def test_inputs_that_have_the_names_of_options_are_given_in_the_mapping(objects):
    @workflow
    async def filing(ctx, store: str, name: str = "a", inputs: int = 1):
        return [store, name, inputs]

    expected = re.escape(
        'input "store" is missing, and store=... is an option of divebook.run, not an input; write inputs={"store'
    )
    with pytest.raises(divebook.errors.InputError, match=expected):
        divebook.run(filing, name="b")
    assert divebook.run(filing, inputs={"store": "s", "name": "b", "inputs": 2}).result() == ["s", "b", 2]


def in_a_workflow(call):
    """Return the error of a run whose workflow function makes a call of its context."""

    @workflow(name=f"calling {id(call)}")
    async def calling(ctx):
        return await call(ctx)

    return divebook.run(calling).wait().error


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            lambda ctx: ctx.ask("Which?", ["a"]),
            'be convertible to JSON, or be a JSON schema, not a list; write Literal["yes", "no"] for a choice',
        ),
        (
            lambda ctx: ctx.ask("Which?", 5),
            "be convertible to JSON, or be a JSON schema, not 5; write answer=int",
        ),
        (lambda ctx: ctx.ask(5), "the question must be a string, not 5"),
        (lambda ctx: ctx.ask(" "), "the question must not be empty"),
        (lambda ctx: ctx.ask("Which?", expires_in="soon"), "expires_in of a question must be a number of seconds"),
        (lambda ctx: ctx.sleep("soon"), "the duration of ctx.sleep() must be a number of seconds, a timedelta, or"),
        (lambda ctx: ctx.wait_signal(5), "the name of a signal must be a string, not 5"),
        (lambda ctx: ctx.gather([ctx.now()]), "not a list; write ctx.gather(*calls), with a star before the list"),
        (lambda ctx: ctx.gather(5), "ctx.gather() takes calls to await, not 5"),
    ],
)
def test_a_context_refuses_wrong_values_in_its_own_words(objects, call, expected):
    assert expected in in_a_workflow(call)


def test_the_reason_of_a_cancellation_is_in_the_error(objects):
    run = objects.environment.start("asking").wait().cancel("the order was withdrawn").wait()
    with pytest.raises(divebook.errors.ExecutionCancelledError, match="was cancelled: the order was withdrawn") as one:
        run.result()
    assert one.value.reason == "the order was withdrawn"


def test_a_timeout_is_shown_as_it_was_given(objects):
    started = objects.environment.start(Workflow("sleeping", [Step("sleep", seconds=1000)]))
    for wait in (started.wait, started.result, partial(started.result, "10ms")):
        limit = 0.01 if isinstance(wait, partial) else 0.02
        with pytest.raises(TimeoutError, match=rf"after {limit} s, and continues: call wait\(\) again, or cancel\(\)"):
            wait() if isinstance(wait, partial) else wait(limit)
    started.cancel().wait()


@pytest.mark.parametrize("output", [5, True, b"a", "", [], [5], (int, "")], ids=repr)
def test_an_output_that_is_not_a_type_is_refused_where_the_agent_is_made(output):
    with pytest.raises(SetupError, match=r"^output must be a type, a list of types or a JSON schema, not"):
        Agent("a", output=output)


@pytest.mark.parametrize("name", ["", " "])
def test_an_agent_needs_a_name(name):
    with pytest.raises(SetupError, match="an agent needs a name"):
        Agent(name)


def _of_keywords():
    """Yield the public classes, functions and methods with keyword parameters of their own, by name."""
    yield from _of_methods()
    for name in [*divebook.__all__, "Worker"]:
        target = divebook.queues.Worker if name == "Worker" else getattr(divebook, name)
        is_error = isinstance(target, type) and issubclass(target, BaseException)
        # Code of users gets runs and contexts, and makes none.
        if not callable(target) or is_error or name in ("Run", "Context"):
            continue
        parameters = inspect.signature(target).parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            yield pytest.param(target, names, id=name)


def _of_methods():
    for owner in (Environment, divebook.Run, divebook.Context, divebook.testing.Context):
        for name, method in inspect.getmembers(owner, inspect.isfunction):
            parameters = [*inspect.signature(method).parameters.values()][1:]
            kinds = {parameter.kind for parameter in parameters}
            names = [each.name for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
            if names and not name.startswith("_") and inspect.Parameter.VAR_KEYWORD not in kinds:
                yield pytest.param(partial(method, None), names, id=f"{owner.__module__}.{owner.__name__}.{name}")


@pytest.mark.parametrize(("target", "names"), [*_of_keywords()])
def test_a_misspelt_keyword_argument_names_the_one_that_was_meant(target, names):
    called = (target.func if isinstance(target, partial) else target).__name__
    with pytest.raises(
        TypeError, match=r"unexpected keyword argument 'zzz'; (its arguments are|it takes no keyword arguments)"
    ):
        target(zzz=1)
    for name in names:
        with pytest.raises(TypeError) as raised:
            target(**{f"{name}x": 1})
        assert f"{called}() got an unexpected keyword argument '{name}x'" in str(raised.value)
        assert "did you mean" in str(raised.value) or f" {name}" in str(raised.value)


def test_the_look_at_arguments_adds_no_frame_to_an_error():
    with pytest.raises(SetupError) as raised:
        Agent("")
    first, *others = [entry.name for entry in raised.traceback]
    assert first == "test_the_look_at_arguments_adds_no_frame_to_an_error"
    assert "call" not in others


def test_a_misspelt_option_of_a_run_names_the_input_or_option_that_was_meant():
    @workflow("coloured")
    async def coloured(ctx, colour: str = "red"):
        return colour

    with Environment(store="memory:") as environment:
        run = environment.start(coloured).wait(20)
        for call, meant in (
            (lambda: divebook.run(coloured, color="blue"), "colour"),
            (lambda: divebook.run(coloured, keyy="blue"), "key"),
            (lambda: run.fork(att=1), "at"),
            (lambda: run.what_if(chang={}), "change"),
            (lambda: run.try_step("coloured", tims=2), "times"),
        ):
            with pytest.raises(SetupError, match=rf"did you mean '{meant}'\?"):
                call()


def priced(item: str) -> int:
    return 1


@workflow
async def part(ctx):
    return 1


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [("action", priced, "priced"), ("workflow", part, "part"), ("agent", Agent("clerk"), "clerk")],
)
def test_a_step_that_is_given_an_object_in_place_of_its_name_says_what_to_write(key, value, name):
    prompt = {"prompt": "Hello"} if key == "agent" else {}
    with pytest.raises(SetupError, match=f"^{key} of step 's' must be the name of an? {key}, .*; write {key}='{name}'"):
        Step("s", **{key: value}, **prompt)
