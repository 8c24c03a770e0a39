"""The magics in a real IPython shell."""

import copy

import pytest
from IPython.core.error import UsageError

import divebook
from divebook.definitions.schema import TABLES
from divebook.errors import (
    DefinitionError,
    ExecutionFailedError,
    ExecutionWaitingError,
    InputError,
    NotFoundError,
    SetupError,
)
from divebook.notebook.magics import COMMANDS

SUM = """\
%%dive workflow sum
Inputs: [{Name: a, Type: int, Default: 1}, {Name: text, Type: string, Default: ''}, {Name: any, Required: false}]
Steps:
  - Name: add
    Script: inputs.a + 1
    Store: n
"""


def card(error):
    return error._render_traceback_()


# --- defining ------------------------------------------------------------------------------------------------------


def test_a_cell_defines_and_says_so(cell):
    assert cell(SUM) == (None, "defined workflow 'sum' (1 step)\n")
    assert cell("%%dive agent writer\nGoal: write\n") == (None, "defined agent 'writer' (scripted)\n")


def test_a_whole_file_can_stand_in_a_cell(cell, session):
    text = "%%dive\nAgents: [{Name: a}]\nWorkflows: [{Name: w, Steps: [{Name: s, Script: '1'}]}]\n"
    assert cell(text)[1] == "defined agent 'a' (scripted), workflow 'w' (1 step)\n"
    assert list(session.environment.definitions.workflows) == ["w"]


def test_running_a_defining_cell_again_replaces(cell):
    cell(SUM)
    before, _ = cell("%dive run sum")
    assert cell(SUM.replace("+ 1", "+ 10"))[1] == "replaced workflow 'sum' (1 step)\n"
    assert cell("%dive run sum")[0].variables == {"n": 11}
    assert before.workflow.step("add").script == "inputs.a + 1"


def test_a_problem_points_at_the_line_of_the_cell(cell):
    with pytest.raises(DefinitionError) as caught:
        cell("%%dive workflow w\nSteps:\n  - Name: s\n    Scrip: 1\n")
    assert card(caught.value) == [
        "DefinitionError: cell line 4, column 5: unknown key 'Scrip' (did you mean 'Script'?)",
        "        Scrip: 1",
        "        ^",
    ]
    assert "Traceback" not in caught.value.shown


def test_blank_lines_above_the_magic_count(cell):
    with pytest.raises(DefinitionError) as caught:
        cell("\n\n%%dive workflow w\nSteps:\n  - Name: s\n    Scrip: 1\n")
    assert "cell line 6, column 5" in card(caught.value)[0]


def test_all_problems_of_a_cell_are_told(cell, session):
    with pytest.raises(DefinitionError) as caught:
        cell("%%dive workflow w\nSteps:\n  - {Name: s, Scrip: 1}\n  - {Name: t, Promt: x}\n")
    lines = card(caught.value)
    assert lines[0] == "DefinitionError: 2 problems in this cell; nothing was defined"
    assert [line for line in lines if "cell line" in line][1].startswith("  cell line 4")
    assert session.environment.definitions.workflows == {}


def test_malformed_yaml_points_at_its_line(cell):
    with pytest.raises(DefinitionError) as caught:
        cell("%%dive workflow w\nSteps:\n  - Name: [s\n")
    assert "cell line" in card(caught.value)[0]


def test_warnings_are_shown_with_their_line(cell):
    text = "%%dive workflow w --dialect dive\nSteps:\n  - {Name: s, Script: '1', Parameters: {a: 1}}\n"
    assert "warning: cell line 3" in cell(text)[1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("workflo w", r"unknown word 'workflo' after %%dive \(did you mean 'workflow'\?\)"),
        ("zebra", "write %%dive, %%dive workflow NAME"),
        ("workflow a b", "%%dive takes one name here, not 'a b'"),
        ("workflow a --dialect klingon", "unknown dialect 'klingon'; choose one of: divebook, dive"),
        ("workflow a --dialekt dive", "did you mean --dialect"),
    ],
)
def test_a_wrong_first_line_is_refused(cell, line, message):
    with pytest.raises(UsageError, match=message):
        cell(f"%%dive {line}\nSteps: []\n")


def test_braces_and_dollars_reach_the_definition_as_they_are(cell):
    cell("a, x = 'WRONG', 'WRONG'")
    cell("%%dive workflow w\nInputs: [{Name: x}]\nSteps:\n  - {Name: s, Script: '\"{a}\" + inputs.x', Store: n}\n")
    assert cell("%dive run w x='{a} $a'")[0].variables == {"n": "{a}{a} $a"}


# --- running -------------------------------------------------------------------------------------------------------


def test_a_run_is_the_value_of_its_cell(cell):
    cell(SUM)
    run, printed = cell("%dive run sum a=41")
    assert isinstance(run, divebook.Run)
    assert run.variables == {"n": 42}
    assert printed.count("✓ completed") == 2  # shown once: the run and its only step


def test_a_run_can_be_kept(cell):
    cell(SUM)
    assert cell("r = %dive run sum a=2\nr.status, r.variables['n']")[0] == ("completed", 3)


def test_without_a_name_the_last_workflow_runs(cell):
    with pytest.raises(divebook.DivebookError, match="no workflow is defined yet"):
        cell("%dive run")
    with pytest.raises(
        divebook.DivebookError, match=r"not found: sum. Run the cell that defines it first \(no workflow exists\)"
    ):
        cell("%dive run sum")
    cell(SUM)
    assert cell("%dive run a=5")[0].variables == {"n": 6}
    # Functions count as well, in the order in which the cells ran.
    cell(FUNCTION_CELL)
    assert cell("%dive run a=5")[0].outputs == {"result": 10}
    cell(SUM)
    assert cell("%dive run a=5")[0].variables == {"n": 6}
    cell(FUNCTION_CELL.replace("2 *", "3 *"))
    assert cell("%dive run a=5")[0].outputs == {"result": 15}


FUNCTION_CELL = """
from divebook import workflow
@workflow
async def times(ctx, a: int):
    return 2 * a
"""


def test_inputs_are_yaml_or_variables(cell):
    cell(SUM)
    cell("rows = [{'x': 1}]")
    run, _ = cell("%dive run sum a=3 text=1.10 any=$rows")
    assert run.inputs == {"a": 3, "text": "1.10", "any": [{"x": 1}]}
    assert cell("%dive run sum any={k: [true, 'a b']}")[0].inputs["any"] == {"k": [True, "a b"]}


def test_it_runs_in_loops_and_under_other_magics(cell):
    cell(SUM)
    assert cell(
        "found = []\nfor i in range(3):\n    r = %dive run sum a=$i\n    found.append(r.variables['n'])\nfound"
    )[0] == [1, 2, 3]
    assert cell("%%time\nr = %dive run sum a=7\n") is not None
    assert cell("r.variables")[0] == {"n": 8}


def test_it_blocks_where_nothing_can_be_awaited(cell, shell):
    cell(SUM)
    assert shell.run_line_magic("dive", "run sum a=1").status == "completed"
    shell.autoawait = False
    try:
        assert cell("%dive run sum a=1")[0].status == "completed"
    finally:
        shell.autoawait = True


def test_in_the_background_it_returns_at_once(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Type: wait, Seconds: 60}\n")
    run, _ = cell("%dive run w --background")
    assert run.is_live
    assert cell(f"%dive cancel {run.id}")[0].status == "cancelled"


def test_a_failed_run_is_shown_and_fails_its_cell(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1 / 0}\n")
    with pytest.raises(ExecutionFailedError) as caught:
        cell("%dive run w")
    assert card(caught.value)[0].startswith("ExecutionFailedError: execution exec_")
    assert card(caught.value)[1] == "To let the cell succeed although the run failed or was cancelled: --no-check"
    assert "✕ failed" in caught.value.shown
    execution_id = caught.value.run_id
    assert f"%dive resume {execution_id}" in caught.value.shown
    assert cell(f"r = %dive show {execution_id}\nr.status")[0] == "failed"
    with pytest.raises(ExecutionFailedError):
        cell(f"%dive resume {execution_id}")


FAILING = "%%dive workflow w\nSteps:\n  - {Name: s, Script: 1 / 0}\n"


@pytest.mark.parametrize(
    "line",
    [
        "r = %dive run w",
        "r = %dive run w --new",
        "if True:\n    r = %dive run w",
        "before = 1\nr = %dive run w\nafter = 1",
    ],
)
def test_a_failed_run_is_bound_to_its_variable_and_is_the_last_one(cell, line):
    cell(FAILING)
    with pytest.raises(ExecutionFailedError) as caught:
        cell(line)
    run, _ = cell("r")
    assert (run.id, run.status) == (caught.value.run_id, "failed")
    assert cell("import divebook\ndivebook.last is r")[0]
    # It replaces the run of before.
    with pytest.raises(ExecutionFailedError):
        cell("r = %dive run w --new")
    assert cell("r.id")[0] != run.id


@pytest.mark.parametrize("line", ["a, b = 1, %dive run w", "%dive run w", "r = [1, 2]\n%dive run w"])
def test_only_a_statement_that_assigns_the_run_binds_a_variable(cell, line):
    cell(FAILING)
    cell("r = b = 1")
    with pytest.raises((ExecutionFailedError, SyntaxError)):
        cell(line)
    assert cell("r, b")[0] in ((1, 1), ([1, 2], 1))


def test_a_run_that_waits_is_in_its_variable_although_its_cell_fails(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Ask: ok?}\n")
    with pytest.raises(ExecutionWaitingError):
        cell("r = %dive run w --strict")
    assert cell("r.status")[0] == "waiting"


def test_a_command_without_a_run_means_the_last_of_the_session_that_is_there(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1, Store: n}\n")
    elsewhere, _ = cell(
        "from divebook.notebook.session import current_session\ncurrent_session().environment.start('w').wait()"
    )
    assert cell("%dive why n")[1].startswith(f"the newest run of the store, {elsewhere.id} (w, started ")
    cell("last = %dive run w")
    cell("newer = current_session().environment.start('w').wait()")
    assert "newest" not in cell("%dive inspect")[1]
    cell("current_session().environment.store.delete(last.id)")
    assert cell("%dive why n")[1].startswith("the newest run of the store, ")


def test_the_last_run_is_also_one_that_an_answer_continues(cell):
    cell("%%dive workflow asks\nSteps:\n  - {Name: s, Ask: ok?}\n")
    asking, _ = cell("import divebook\n%dive run asks")
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1, Store: n}\n")
    later, _ = cell("%dive run w")
    assert cell("divebook.last")[0] == later
    cell(f"divebook.answer({asking.open_questions[0].id!r}, 'yes').wait()")
    assert cell("divebook.last")[0] == asking


def test_handles_of_a_run_have_options_of_their_own(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1, Store: n}\n")
    run, _ = cell("%dive run w")
    other = copy.copy(run)
    other.internals.options.remark = "a remark"
    assert (run == other, run.internals.options.remark) == (True, "")


def test_a_session_without_a_run_has_no_last_one(cell):
    with pytest.raises(AttributeError, match=r"divebook\.last: this session has not started or continued a run yet"):
        cell("import divebook\ndivebook.last")
    assert cell("hasattr(divebook, 'last')")[0] is False
    run, _ = cell("divebook.run('Workflows: [{Name: w, Steps: [{Name: s, Script: 1, Store: n}]}]')")
    assert cell("divebook.last")[0] is run


def test_a_failed_run_is_a_value_where_that_is_asked_for(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1 / 0}\n")
    run, printed = cell("%dive run w --no-check")
    assert run.status == "failed"
    assert f"%dive resume {run.id}" in printed


def test_a_run_that_waits_fails_its_cell_only_if_that_is_asked_for(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Ask: ok?}\n")
    assert cell("%dive run w")[0].status == "waiting"
    with pytest.raises(ExecutionWaitingError) as caught:
        cell("%dive run w --strict --new")
    assert card(caught.value)[0].startswith("ExecutionWaitingError: execution exec_")


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("run summ", NotFoundError, "did you mean 'sum'"),
        ("run sum b=1", InputError, 'unknown input "b"'),
        ("run sum a=x", InputError, 'input "a" must be of type int'),
        ("run sum a=$nothing", UsageError, "there is no variable 'nothing'"),
        ("run sum a=[1", UsageError, "the closing ] of '"),
        ("run sum 3 4", UsageError, "unexpected '3 4'; write inputs as key=value"),
        ("run sum --backgroud", UsageError, "did you mean --background"),
        ("runn", UsageError, r"unknown sub-command %dive runn \(did you mean %dive run\?\)"),
        ("zebra", UsageError, "available sub-commands: run, ask, "),
        ("show", UsageError, "%dive show needs RUN, for example: %dive show exec_01k8"),
        ("show exec_none", NotFoundError, "execution not found: exec_none"),
        ("resume exec_none", NotFoundError, "execution not found: exec_none"),
        ("runs --limit many", UsageError, "--limit must be an integer, not 'many'"),
        ("runs --status lost", UsageError, "--status must be one of pending, enqueued, "),
        ("runs sum", UsageError, "unexpected 'sum'; %dive runs takes only options"),
        ("list sum", UsageError, "unexpected 'sum'; %dive list takes only options"),
        ("inbox ask_1", UsageError, "unexpected 'ask_1'; %dive inbox takes only options"),
        ("show exec_1 exec_2", UsageError, "unexpected 'exec_2' after %dive show"),
        ("recover exec_1 --all", SetupError, "accepts a run or --all, not both"),
        ("answer ask_1 two words", UsageError, "unexpected 'words' after %dive answer; put strings with spaces"),
        ("help run runs", UsageError, "unexpected 'runs' after %dive help"),
    ],
)
def test_mistakes_are_told_in_a_line(cell, line, error, message):
    cell(SUM)
    with pytest.raises(error, match=message) as caught:
        cell(f"%dive {line}")
    assert "Traceback" not in caught.value.shown
    assert message.split("\\")[0].split("(")[0] in caught.value.shown


def test_a_mistake_in_a_cell_of_several_lines_is_told_with_its_line(cell):
    cell(SUM)
    with pytest.raises(NotFoundError) as caught:
        cell("x = 1\n\nr = %dive run summ\ny = 2\n")
    assert card(caught.value) == [
        "NotFoundError: cell line 3: workflow not found: summ (did you mean 'sum'?)",
        "    r = %dive run summ",
    ]
    with pytest.raises(UsageError, match=r"^cell line 2: input 'a'"):
        cell("x = 1\n%dive run sum a=$nothing\n")


def test_only_the_users_own_variables_are_suggested(cell):
    cell(SUM)
    cell("outcome = 1")
    with pytest.raises(UsageError, match=r"did you mean \$outcome\?"):
        cell("%dive run sum a=$Outcom")
    with pytest.raises(UsageError, match="define the variable in a cell"):
        cell("%dive run sum a=$Ou")
    with pytest.raises(UsageError, match="define the variable in a cell"):
        cell("%dive run sum a=$exi")


@pytest.mark.parametrize("text", ["Provider: acme\nModel: x", "Model: gpt-5", "Provider: ollama"])
def test_a_mistake_in_an_agent_points_at_its_line(cell, text, session):
    with pytest.raises(SetupError) as caught:
        cell(f"%%dive agent a\nGoal: write\n{text}\n")
    first, line, mark = card(caught.value)
    assert first.startswith("SetupError: cell line 3, column ")
    assert line.strip() == text.splitlines()[0]
    assert mark.strip() == "^"
    assert session.environment.definitions.agents == {}


def test_an_unknown_agent_is_told_with_those_that_exist(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Prompt: x, Agent: nobody}\n")
    with pytest.raises(DefinitionError, match=r"agent nobody not found \(no agent is defined\)"):
        cell("%dive run w")
    cell("%%dive agent writer\nGoal: write\n")
    with pytest.raises(DefinitionError, match=r"agent nobody not found \(defined agents: writer\)"):
        cell("%dive run w")


def test_a_value_that_cannot_be_stored_is_told_with_its_path(cell):
    cell(SUM)
    cell("bad = {'rows': [object()]}")
    with pytest.raises(divebook.DivebookError, match=r"inputs\.any\.rows\[0\]"):
        cell("%dive run sum any=$bad")


# --- looking back --------------------------------------------------------------------------------------------------


def test_runs_are_listed_shown_and_resumed(cell):
    cell("%%dive workflow w\nSteps:\n  - {Name: s, Script: 1 / 0}\n")
    failed, _ = cell("%dive run w --no-check")
    runs, _ = cell("%dive runs --status failed --workflow w --limit 5")
    assert list(runs.frame().execution_id) == [failed.id]
    shown, _ = cell(f"%dive show {failed.id[:20]}")
    assert (shown.id, shown.status) == (failed.id, "failed")
    resumed, _ = cell(f"%dive resume {failed.id} --no-check")
    assert (resumed.id, resumed.status) == (failed.id, "failed")
    assert (resumed.events.type == "execution_resumed").sum() == 1


def test_another_store_can_be_named(cell, tmp_path):
    cell(SUM)
    place = tmp_path / "my runs.db"
    run, _ = cell(f"%dive run sum --store '{place}'")
    assert place.exists()
    assert list(cell(f"%dive runs --store '{place}'")[0].frame().execution_id) == [run.id]
    assert len(cell("%dive runs")[0]) == 0


def test_what_is_defined_is_listed(cell):
    cell(SUM)
    cell("%%dive agent writer\nGoal: write\n")
    _, printed = cell("%dive list")
    for text in ("sum(a=1, text='', any=None)  1 step", "writer  scripted", "Document.Write"):
        assert text in printed


def test_every_command_has_help(cell):
    overview = cell("%dive help")[1]
    assert cell("%dive")[1] == overview
    assert cell("%%dive?")[1] == overview
    assert cell("%dive?")[1] == overview
    for name, command in COMMANDS.items():
        assert f"%dive {command.usage}" in overview
        assert cell(f"%dive help {name}")[1].startswith(f"%dive {command.usage}\n\n{command.help[:20]}")
        assert cell(f"%dive {name}?")[1] == cell(f"%dive help {name}")[1]
        assert cell(f"%dive {name} --help")[1] == cell(f"%dive help {name}")[1]
        for option in (*command.flags, *command.valued):
            assert option in command.help or len(option) == 2


# --- loading -------------------------------------------------------------------------------------------------------


def test_loading_and_unloading_leave_no_trace(bare_shell):
    def state():
        shell = bare_shell
        magics = shell.magics_manager
        formatters = [formatter for _, formatter in sorted(shell.display_formatter.formatters.items())]
        return [
            list(shell.input_transformers_cleanup),
            list(shell.input_transformers_post),
            sorted(magics.magics["line"]),
            sorted(magics.magics["cell"]),
            set(magics.registry),
            list(shell.Completer.custom_matchers),
            list(shell.configurables),
            {event: list(callbacks) for event, callbacks in shell.events.callbacks.items()},
            {name: list(hook) if hasattr(hook, "__iter__") else hook for name, hook in shell.hooks.items()},
            list(shell.custom_exceptions),
            list(shell.ast_transformers),
            list(shell.meta.items()) if isinstance(shell.meta, dict) else [],
            [[*formatter.type_printers, *formatter.deferred_printers] for formatter in formatters],
            sorted(name for name in shell.user_ns if not name.startswith("_")),
            sorted(shell.user_ns_hidden),
        ]

    before = state()
    bare_shell.run_line_magic("load_ext", "divebook")
    loaded = state()
    assert loaded != before
    bare_shell.run_line_magic("reload_ext", "divebook")
    assert [len(part) for part in state()] == [len(part) for part in loaded]
    bare_shell.run_line_magic("unload_ext", "divebook")
    assert state() == before


def test_a_run_may_be_less_durable_and_says_so(cell):
    cell(SUM)
    run, _ = cell("%dive run sum --durability relaxed")
    cell("%dive run sum")
    frame = cell("%dive runs")[0].frame()
    assert dict(zip(frame["execution_id"], frame["durability"], strict=True))[run.id] == "relaxed"
    assert sorted(frame["durability"]) == ["full", "relaxed"]
    assert (frame["bytes"] > 100).all()
    with pytest.raises(UsageError, match="--durability must be one of full, relaxed, not 'fast'"):
        cell("%dive run sum --durability fast")


def test_the_keys_of_every_part_are_listed(cell):
    all_keys, _ = cell("%dive keys")
    assert str(all_keys) == f"parts of a definition: {', '.join(TABLES)}; %dive keys PART lists the keys of one"
    assert all_keys._repr_html_().count("<table") == len(TABLES)
    for label, table in TABLES.items():
        head, _, *lines = str(cell(f"%dive keys '{label}'")[0]).splitlines()
        assert head == f"{label}:"
        assert [line.split()[0] for line in lines] == [key.name for key in table.keys]
        assert all(key.means in line for key, line in zip(table.keys, lines, strict=True))


def test_keys_of_an_unknown_part_name_the_nearest(cell):
    with pytest.raises(NotFoundError, match="did you mean 'step'"):
        cell("%dive keys Stpe")
