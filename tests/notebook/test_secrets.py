"""Nothing that a notebook shows, prints, raises or sends to a page has a secret in it."""

import json

import pytest
from IPython.core.error import UsageError

from divebook import Environment, Step, Workflow
from divebook.errors import DivebookError
from divebook.notebook.run_list import static_bundle
from divebook.notebook.run_view import follow_run, view_of
from divebook.text.redaction import shared
from divebook.widgets.publisher import Publisher
from divebook.widgets.views import LiveView

MARKED = "sk" + "-proj-" + "Ab3" * 16
PLAIN = "tulips in the window box"
"""No form tells that this is one: only its name does, which an input has."""

LEAKY = f"""
%%dive
Workflows:
- Name: leaky
  Inputs: [{{Name: api_key}}, {{Name: password}}]
  Outputs: [{{Name: found}}]
  Steps:
  - {{Name: tell, Action: Print, Parameters: {{Message: "using ${{inputs.api_key}} and ${{inputs.password}}"}}}}
  - {{Name: keep, Script: '"it was " + inputs.password + " with {MARKED}"', Store: found}}
  - Name: question
    Ask: {{Question: "Use ${{inputs.api_key}}?", Message: "or ${{inputs.password}}"}}
  - {{Name: fail, Script: '{{}}[inputs.password + inputs.api_key]'}}
"""
RUN = f"%dive run leaky api_key={MARKED} password='{PLAIN}'"


def assert_clean(shown):
    text = shown if isinstance(shown, str) else json.dumps(shown, default=str)
    assert MARKED not in text
    assert PLAIN not in text


@pytest.fixture
def waiting(cell):
    cell(LEAKY.strip())
    run, printed = cell(RUN)
    assert "using [redacted] and [redacted]" in printed
    assert_clean(printed)
    return run


def test_a_run_shows_no_secret_while_it_waits_and_once_it_has_failed(waiting, cell):
    for look in (repr, str, lambda run: run._repr_mimebundle_(), lambda run: run.internals.static_bundle()):
        assert_clean(look(waiting))
    (asked,) = waiting.open_questions
    with pytest.raises(DivebookError) as raised:
        cell(f"%dive answer {asked.id} yes")
    assert_clean(raised.value.shown)
    assert_clean("\n".join(raised.value._render_traceback_()))
    for look in (repr, str, lambda run: run._repr_mimebundle_()):
        assert_clean(look(waiting.refresh()))


@pytest.mark.parametrize("line", ["inbox", "list", "recover", "help"])
def test_no_magic_prints_a_secret(waiting, cell, line):
    assert_clean(cell(f"%dive {line}")[1])


ERRORS = [f"run {MARKED}", f"show {MARKED}", f"answer {MARKED} x", f"run leaky {MARKED} y z", f"open {MARKED}"]


@pytest.mark.parametrize("line", ERRORS)
def test_no_error_of_a_magic_repeats_a_secret(waiting, cell, line):
    with pytest.raises((DivebookError, UsageError)) as raised:
        cell(f"%dive {line}")
    error = raised.value
    assert_clean("\n".join(error._render_traceback_()) if hasattr(error, "_render_traceback_") else str(error))
    assert_clean(error.shown)


def test_the_inbox_shows_no_secret(waiting, session):
    assert_clean(static_bundle(session.environment))


@pytest.fixture
def in_turns(monkeypatch):
    """Send to views in the turns that a test takes, and on no thread."""
    monkeypatch.setattr(Publisher, "_start", lambda publisher: publisher.feed.request_refresh())


@pytest.mark.usefixtures("in_turns")
def test_nothing_is_sent_to_a_page_with_a_secret_in_it(waiting, monkeypatch):
    sent = []
    monkeypatch.setattr("anywidget.AnyWidget.send", lambda self, content, buffers=None: sent.append(content))
    view = view_of(waiting)
    view.send({"type": "x", "inputs": dict(waiting.inputs), "text": f"{MARKED} and {PLAIN}", "start": [1, 2]})
    view.close()
    assert sent[0]["start"] == [1, 2]
    assert_clean(sent)


@pytest.mark.usefixtures("in_turns")
def test_neither_a_replay_nor_the_state_of_a_view_has_a_secret(waiting, monkeypatch):
    sent = []
    monkeypatch.setattr("anywidget.AnyWidget.send", lambda self, content, buffers=None: sent.append(content))
    replayed = waiting.replay()
    last = waiting.state.last_sequence
    asked = [{"type": "events", "view": "v", "after": 0, "stop": 99}, {"type": "state", "view": "v", "sequence": last}]
    for message in [*asked, *({"type": "event", "view": "v", "sequence": at + 1} for at in range(last))]:
        replayed._receive(replayed, message, [])
    assert len(sent) == 2 + last
    publisher, view = follow_run(waiting), view_of(waiting)
    publisher.turn()
    looked = LiveView._take_snapshot(view, {"status": "waiting", "workflow": f"of {MARKED}"})
    assert (looked, view.snapshot["pending"][0]["question"]) == (1, "Use [redacted]?")
    assert_clean([*sent, view.get_state()["snapshot"]])
    view.close()
    replayed.close()


def test_a_process_that_takes_a_run_up_knows_its_secrets_before_anything_is_shown_or_printed(tmp_path):
    """The name alone tells that it is one, and the name is in the log of another process."""
    steps = [
        Step("ask", ask="Is it ${inputs.password}?", store="said"),
        Step("tell", action="Print", parameters={"Message": "it was ${inputs.password}"}),
    ]
    with Environment(store=str(tmp_path / "log.db")) as first:
        first.start(Workflow("told", steps, inputs=["password"]), {"password": PLAIN}).wait(20)
    shared.cache_clear()
    printed = []
    other = Environment(store=str(tmp_path / "log.db"), printer=lambda text: printed.append(shared().text(text)))
    ((execution_id, asked),) = other.inbox()
    assert_clean(static_bundle(other))
    other.answer(asked.id, "yes", run=execution_id).wait(20, check=True)
    assert printed == ["it was [redacted]"]
