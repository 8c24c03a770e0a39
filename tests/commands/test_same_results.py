"""A shell, a ``%dive`` line and Python give the same result for the same words and values.

Each way has a copy of one store, so that a command that changes it is tried in each of them.
"""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import divebook
from divebook.cli.main import app
from divebook.commands import reference
from divebook.commands.command import NOTEBOOK, SHELL, Invocation
from divebook.commands.control import Rules
from divebook.commands.driving import Drive
from divebook.commands.files import WrittenFiles
from divebook.commands.inspection import ShownRun, Verifications
from divebook.commands.table import COMMANDS
from divebook.notebook.commands import Names, line_command, objects_of, split, values_of
from divebook.notebook.session import open_session, reset_session
from divebook.runtime.run import Run
from tests.commands.conftest import FLOWS


def ids(data):
    """Return the ids of the runs in the data of a command."""
    return [run["id"] for run in data["runs"]]


def whole(data):
    return data


def queued_ids(data):
    return [run["run_id"] for run in data["queued"]]


def statuses(data):
    return [(run["id"], run["status"]) for run in data["runs"]]


def applied(result, folder):
    return WrittenFiles(Path(folder), result.written, "", result.there, result.left_out)


def restored(tree, folder):
    return WrittenFiles(Path(folder), sorted(tree.entries), "", left_out=[path for path, _ in tree.problems])


CASES = (
    # The words after the program, and the same call in Python, in which `py` has the runs and questions of the store.
    # The last function selects, from the data of the command, the part that the Python function returns.
    ("run hello who=Eve n=3 --key again", lambda _: divebook.run("hello", {"who": "Eve", "n": 3}, key="again"), whole),
    ("run hello -v who=Eve --input n=3", lambda _: divebook.run("hello", who="Eve", n=3), whole),
    (
        "enqueue hello who=Eve --key later --queue slow",
        lambda py: py.environment.enqueue("hello", {"who": "Eve"}, key="later", queue="slow"),
        whole,
    ),
    ("resume STOPPED", lambda py: divebook.resume(py.STOPPED.id), whole),
    ("fork ONE --input n=1", lambda py: py.ONE.fork(change={"inputs": {"n": 1}}), whole),
    ("answer QUESTION yes", lambda py: divebook.answer(py.QUESTION, response=True), whole),
    ("signal WAITS go '{by: ann}'", lambda py: py.WAITS.signal("go", {"by": "ann"}), whole),
    ("what-if ONE -v n=4", lambda py: py.ONE.what_if({"inputs": {"n": 4}}), whole),
    ("what-if ONE --input n=4 --plan", lambda py: py.ONE.what_if({"inputs": {"n": 4}}, plan=True), whole),
    ("try greet ONE --times 2", lambda py: py.ONE.try_step("greet", times=2), whole),
    ("recover", lambda py: [record.execution_id for record in py.environment.queues.recoverable()], ids),
    (
        "runs --status completed --workflow hello --origin run",
        lambda _: [run.id for run in divebook.runs(status="completed", workflow="hello", origin="run")],
        ids,
    ),
    ("runs --limit 1 -w release", lambda _: [run.id for run in divebook.runs(limit=1, workflow="release")], ids),
    (
        "count -w hello",
        lambda _: divebook.runs(workflow="hello").frame()["status"].value_counts().to_dict(),
        lambda data: data["runs"],
    ),
    ("stats --workflow hello", None, whole),
    ("show ONE", lambda py: ShownRun(divebook.show(py.ONE.id)), whole),
    ("open one.jsonl", lambda py: ShownRun(py.environment.open("one.jsonl")), whole),
    ("compare ONE TWO", lambda py: divebook.compare(py.ONE, py.TWO), whole),
    ("why greeting ONE", lambda py: py.ONE.why("greeting"), whole),
    ("why inputs.n ONE --at 1", lambda py: py.ONE.why("inputs.n", 1), whole),
    ("inspect ONE", lambda py: py.ONE.inspect(), whole),
    ("verify ONE", lambda py: py.ONE.verify(), whole),
    ("verify --all", lambda _: Verifications([run.verify() for run in divebook.runs()]), whole),
    ("to-test ONE --to test_it.py --force", lambda py: py.ONE.to_test("test_it.py", overwrite=True), whole),
    ("files EDITED", lambda py: py.EDITED.files().changed(), whole),
    ("diff EDITED a.txt", lambda py: py.EDITED.files().changed(paths=["a.txt"]), whole),
    ("apply EDITED --to elsewhere", lambda py: applied(py.EDITED.files().apply("elsewhere"), "elsewhere"), whole),
    (
        "restore EDITED --to then --at 4",
        lambda py: restored(py.EDITED.files().restore("then", 4), "then"),
        whole,
    ),
    ("cancel ASKS", lambda py: [(py.ASKS.id, py.ASKS.cancel().wait().status)], statuses),
    ("tag ONE kept good", lambda py: list(py.ONE.tag("kept", "good").tags), lambda data: data["tags"]),
    (
        "annotate ONE TWO --label n=2",
        lambda py: [(run.id, run.label(n=2).status) for run in (py.ONE, py.TWO)],
        statuses,
    ),
    (
        "inbox",
        lambda _: list(divebook.inbox().frame()["question_id"]),
        lambda data: [question["question_id"] for question in data["questions"]],
    ),
    ("rules", lambda py: Rules(py.environment.rules), whole),
    ("queue", lambda py: [entry.execution_id for entry in py.environment.queues.queued()], queued_ids),
    ("keys Catch", None, whole),
)
UNSTEADY = re.compile(r"(_at|seconds|seconds_by_kind|text|bytes|cost|order|took_us|started_us|ended_us|us|time)$")
NEW_ID = re.compile(r"(exec|event|op|ask|path)_[0-9a-z]{16,26}")


@pytest.fixture
def way(template, tmp_path, monkeypatch):
    """Return ``way(name)``, which changes to a new copy of the folder."""
    folder, _ = template

    def change_to(name):
        copy = tmp_path / name
        shutil.copytree(folder, copy)
        monkeypatch.chdir(copy)
        monkeypatch.setenv("DIVEBOOK_STORE", str(copy / "runs.db"))
        reset_session()

    yield change_to
    reset_session()


def steady(value):
    """Return the data of a result without what differs from call to call: ids of new runs, times and durations."""
    if isinstance(value, dict):
        return {key: steady(part) for key, part in value.items() if not UNSTEADY.search(key)}
    if isinstance(value, list | tuple):
        return [steady(part) for part in value]
    return NEW_ID.sub(r"\1", value) if isinstance(value, str) else value


def data_of(command, result):
    """Return the data of a result as ``--json`` prints it."""
    from divebook.cli.output import as_json

    if isinstance(result, Drive):
        result = result.begin()
    if isinstance(result, Run) and command.drives:
        result = result.wait()
    data = command.output(result)
    return json.loads(as_json(data) if command.redacts else json.dumps(data))


def in_shell(command, words):
    # In a shell, the first word of a command that takes definitions is their file.
    if command.file_help:
        words = ["flows.yaml", "--workflow", words[0], *words[1:]]
    # A shell has removed the quotes.
    words = [word[1:-1] if word.startswith("'") else word for word in words]
    quiet = ["--quiet"] if command.drives else []
    result = CliRunner().invoke(app, [command.name, *words, *quiet, "--json"])
    assert result.exit_code in (0, 1, 3), result.output
    return json.loads(result.stdout)


def in_line(command, words):
    session = open_session("runs.db")
    session.define(FLOWS)
    arguments = line_command(command).parse(words, Names())
    call = Invocation(
        NOTEBOOK,
        lambda: session.environment,
        lambda _text, _style: None,
        choose_workflow=lambda environment, name: environment.definitions.workflows[name],
        objects=objects_of(arguments),
    )
    return data_of(command, command.function(call, **values_of(command, arguments)))


def in_python(command, function, names):
    session = open_session("runs.db")
    session.define(FLOWS)
    runs = {name: divebook.show(each) for name, each in names.items() if each.startswith("exec")}
    result = function(SimpleNamespace(environment=session.environment, QUESTION=names["QUESTION"], **runs))
    return result if isinstance(result, list | dict) else data_of(command, result)


@pytest.mark.parametrize(("line", "function", "part"), CASES, ids=[line for line, *_ in CASES])
def test_the_shell_a_line_and_python_give_the_same_result(template, way, line, function, part):
    _, names = template
    name, *words = split(line)
    words = [names.get(word, word) for word in words]
    command = COMMANDS[name]
    way("shell")
    shell = in_shell(command, words)
    jsonschema.validate(shell, reference.schema(command))
    assert shell["divebook"] == 1
    way("line")
    assert steady(in_line(command, words)) == steady(shell)
    if function is not None:
        way("python")
        assert steady(in_python(command, function, names)) == steady(part(shell))


def test_each_command_of_all_interfaces_has_a_case():
    compared = {line.split()[0] for line, function, _ in CASES if function is not None}
    everywhere = {
        name
        for name, command in COMMANDS.items()
        if command.data is not None and {SHELL, NOTEBOOK} <= command.interfaces and command.python
    }
    assert everywhere <= compared, "a command of all interfaces has a case for each of them"
    assert len(compared) >= 20


# --- values ----------------------------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12) | st.sampled_from(
    ("a=b", "two words", "-1", "2026-05-01", "null", "yes", "1.10", "it's", '"', "{a: b}", "$name", "1e3", "0x1f", "#1")
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(TEXTS, parts, max_size=3), max_leaves=6
)
PLAIN = """\
5  -5  2.50  1e3  1_000  0x1f  .5  1:30  1.2.3  2026-05-01  2026-05-01T08:00
null  ~  yes  No  true  word  O'Brien  a=b  a:b  https://a.b/c?d=e  *.py  #1  -  --  @x  !x  %x  &x
[1, -2]  {a: 1, b: [x, null]}  []  {}  '5'  "a b"  ''  ""
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return functions that start a run with an input in a shell, in a line and in Python, and return its inputs."""
    folder = tmp_path_factory.mktemp("values")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("flows.yaml").write_text(FLOWS, encoding="utf-8")
        patch.setenv("DIVEBOOK_STORE", "memory:")
        session = open_session("memory:")
        session.define(FLOWS)

        def in_python(value):
            return session.environment.start("echo", {"value": value}).wait().state.inputs

        def in_line(words):
            arguments = line_command(COMMANDS["run"]).parse(split(f"echo {words}"), Names())
            call = Invocation(
                NOTEBOOK,
                lambda: session.environment,
                lambda _text, _style: None,
                choose_workflow=lambda environment, name: environment.definitions.workflows[name],
                objects=objects_of(arguments),
            )
            drive = COMMANDS["run"].function(call, **values_of(COMMANDS["run"], arguments))
            return drive.begin().wait().state.inputs

        def in_shell(*words):
            words = ["run", "flows.yaml", *words, "-w", "echo", "-q", "--json", "--show-secrets"]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.output
            return json.loads(result.stdout)["inputs"]

        yield SimpleNamespace(python=in_python, line=in_line, shell=in_shell)
        reset_session()


def texts_in(value):
    """Yield all texts in a value, also the keys of mappings."""
    if isinstance(value, str):
        yield value
    for part in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts_in(part)


AT_MOST = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@AT_MOST
@given(value=VALUES)
def test_the_three_ways_record_the_same_values(recorded, value):
    text = json.dumps(value, ensure_ascii=False)
    expected = recorded.python(value)
    assert recorded.shell("-v", f"value:={text}") == expected
    assert recorded.shell(f"value:={text}") == expected
    assert recorded.shell(f"value={text}") == expected
    # A line refuses texts in double quotes that look as if IPython replaced a variable in them.
    if not any({"$", "{"} & set(each) for each in texts_in(value)):
        assert recorded.line(f"value={text}") == expected
        assert recorded.line(f"value:={text}") == expected
        assert recorded.line(f"-v value={text}") == expected


@AT_MOST
@given(text=st.sampled_from([word for line in PLAIN.splitlines() for word in line.split("  ")]))
def test_a_shell_and_a_line_read_the_same_words_alike(recorded, text):
    in_shell = recorded.shell(f"value={text}")
    assert recorded.line(f"value={text}") == in_shell
    assert recorded.line(f"-v value={text}") == in_shell
    assert recorded.line(f"--input value={text}") == recorded.shell("--input", f"value={text}") == in_shell
