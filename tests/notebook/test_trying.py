"""`%dive try` and the cell `%%dive try`: what they show and keep, and what they say of one that cannot be."""

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

from divebook.errors import DefinitionError, NotFoundError, SetupError

DEFINED = """\
%%dive
Agents: [{Name: poet, Model: scripted}]
Workflows:
  - Name: roses
    Inputs: [{Name: colour, Default: red}]
    Steps:
      - {Name: count, Script: 3, Store: n}
      - {Name: draft, Agent: poet, Prompt: "${state.n} ${inputs.colour} roses", Store: line}
"""
SCRIPT = "%%dive script poet\n- three red roses\n"


@pytest.fixture
def run(cell):
    cell(DEFINED)
    cell(SCRIPT)
    return cell("r = %dive run roses\nr")[0]


def test_a_cell_tries_a_step_with_other_keys_and_keeps_it_in_a_new_cell(cell, shell, run, monkeypatch):
    cell("%%dive script poet\n- four white roses\n- three red roses\n")
    trial, shown = cell(f"%%dive try draft {run.id[:20]} --times 2 --set n=4\nPrompt: ${{state.n}} white roses\n")
    assert [tried.value for tried in trial.tries] == ["four white roses", "three red roses"]
    assert "[-3 red-]{+4 white+} roses" in shown
    assert "[-three red-]{+four white+} roses" in shown
    assert "= as recorded" in shown
    written = []

    def set_next_input(text, *, replace):
        written.append(text)
        assert not replace

    monkeypatch.setattr(shell, "set_next_input", set_next_input)
    shell.push({"trial": trial})
    assert "the cell below defines workflow 'roses'" in cell("trial.keep()")[1]
    (text,) = written
    assert text.startswith("%%dive workflow roses\n")
    assert "replaced workflow 'roses' (2 steps)" in cell(text)[1]
    kept, _ = cell("%dive run roses --new")
    assert kept.environment.internals.registry.workflow("roses").step("draft").prompt == "${state.n} white roses"


def test_a_line_tries_the_newest_run_and_leaves_trials_alone(cell, run):
    first, _ = cell("%dive try draft --input colour=white")
    assert first.source == run.id
    assert first.tries[0].asked == "3 white roses"
    second, _ = cell("%dive try count")
    assert second.source == run.id, "a trial is not the newest run"
    assert run.try_step("count").tries[0].value == 3


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("%dive try", UsageError, "%dive try needs STEP, for example: %dive try draft exec_01k8"),
        ("%dive try drft", NotFoundError, "workflow 'roses' has no step 'drft' (did you mean 'draft'?)"),
        ("%dive try draft --times many", UsageError, "--times must be an integer, not 'many'"),
        ("%dive try draft --times 0", SetupError, "a trial must run its step at least once, not 0 times"),
        ("%dive try draft exec_none", NotFoundError, "execution not found: exec_none"),
        ("%dive try draft --set m=1", NotFoundError, "variable 'm' cannot be set"),
        ("%dive try draft --tools all", UsageError, "--tools must be one of recorded, read-only, live, not 'all'"),
        ("%%dive try draft\n\nPromt: x\n", DefinitionError, "cell line 3, column 1: unknown key 'Promt'"),
        ("%%dive try draft --tims 2\nPrompt: x\n", UsageError, "did you mean --times?"),
    ],
    ids=["no-step", "step", "word", "times", "run", "variable", "tools", "key", "option"],
)
def test_a_trial_that_cannot_be_says_so_where_it_is_written(cell, run, line, error, message):
    with pytest.raises(error) as caught:
        cell(line)
    assert message in caught.value.shown
    assert "Traceback" not in caught.value.shown
    assert len(cell("%dive runs")[0]) == 1


def test_steps_runs_and_keys_are_completed(shell, cell, run):
    def completed(text):
        found = shell.Completer.completions(text, len(text))
        return {entry.text for entry in found if entry._origin == "divebook"}

    with provisionalcompleter():
        assert {"count", "draft"} <= completed("%dive try ")
        assert run.id in completed("%dive try draft ")
        assert {"recorded", "read-only", "live"} <= completed("%dive try draft --tools ")
        assert {"count", "draft"} <= completed("%%dive try ")
        assert "try" in completed("%%dive t")
        assert "Prompt: " in completed("%%dive try draft\nPr")


WRITTEN = """\
%%dive workflow noted
# what it is for
Steps:
  # the first
  - Name: count   # counts
    Script: |
      # three
      3
    Store: n

  # the second
  - {Name: draft, Script: state.n + 1, Store: line}  # in one line
Outputs: [{Name: line}]  # one
"""


@pytest.mark.parametrize(
    ("step", "keys", "lines"),
    [
        ("count", {"Script": "4"}, ["  - Name: count", "    Type: script", "    Script: '4'", "    Store: n"]),
        (
            "draft",
            {"Script": "state.n * 2"},
            ["  - Name: draft", "    Type: script", "    Script: state.n * 2", "    Store: line  # in one line"],
        ),
    ],
)
def test_a_trial_is_kept_in_the_text_that_was_written(cell, step, keys, lines):
    cell(WRITTEN)
    noted, _ = cell("%dive run noted")
    trial = noted.try_step(step, keys)
    kept, before = trial.definition.splitlines(), WRITTEN.splitlines()
    assert [line for line in kept if line not in before] == [line for line in lines if line not in before]
    assert {"# what it is for", "  # the first", "  # the second", before[-1]} <= {*kept}
    cell(trial.definition)
    assert (
        cell("%dive run noted --new")[0].environment.internals.registry.workflow("noted").fingerprint
        == trial.workflow.fingerprint
    )
