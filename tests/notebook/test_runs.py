"""The executions of a store in a notebook: a frame, text, HTML, and the run browser where widgets are shown."""

import pytest

import divebook
from divebook.errors import NotFoundError
from divebook.notebook import run_list as listed
from divebook.notebook import view_output
from divebook.projections.run_columns import columns_in
from divebook.widgets import views
from tests.notebook.test_inbox import Handle

FLOWS = """\
Workflows:
- {Name: good, Inputs: [{Name: topic, Default: <tides>}], Steps: [{Name: s, Script: 1 + 1}]}
- {Name: bad, Steps: [{Name: s, Script: "{}['label']"}]}
"""


@pytest.fixture
def two(session):
    """Return the newest run, which failed, and one that completed before it."""
    divebook.define(FLOWS)
    good = divebook.run("good").wait().tag("baseline")
    return divebook.run("bad").wait(), good


def test_runs_are_a_list_of_runs_and_a_frame(two):
    bad, good = two
    runs = divebook.runs()
    assert (len(runs), runs[0].id, [run.status for run in runs]) == (2, bad.id, ["failed", "completed"])
    assert list(runs.frame()["execution_id"]) == [bad.id, good.id]
    assert list(divebook.runs(tag="baseline").frame()["workflow"]) == ["good"]


def test_as_text_and_html_they_say_what_tells_them_apart(two):
    bad, _ = two
    text, html = repr(divebook.runs()), divebook.runs()._repr_html_()
    for shown in (text, html):
        assert bad.id in shown
        assert "failed" in shown
        assert "KeyError" in shown
        assert "#baseline" in shown
    assert "<tides>" in text
    assert "&lt;tides&gt;" in html
    assert text.splitlines()[0].split() == [column.title for column in columns_in("notebook")]


def test_a_long_list_is_cut_and_says_so(two, monkeypatch):
    monkeypatch.setattr(listed, "MAX_ROWS", 1)
    assert repr(divebook.runs()).splitlines()[-1] == "There are more runs. Call .frame() to list all."
    assert "There are more runs" in divebook.runs()._repr_html_()
    assert "more" not in repr(divebook.runs(limit=1))


def test_where_there_is_none_that_is_said(session):
    assert repr(divebook.runs()) == "no runs yet"
    assert ">no runs match these filters</div>" in divebook.runs(workflow="x")._repr_html_()


def test_what_no_run_can_be_is_refused_at_once(session):
    with pytest.raises(NotFoundError, match="status not found: lost"):
        divebook.runs("lost")


def test_without_widgets_the_text_is_what_is_shown(two):
    with pytest.raises(NotImplementedError):
        divebook.runs()._ipython_display_()


def test_a_run_is_opened_below_the_browser_and_closed(two, monkeypatch):
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr("divebook.widgets.publisher.Publisher._start", lambda _: None)
    places = []

    def display(bundle):
        places.append(Handle(bundle))
        return places[-1]

    for module in (listed, view_output):
        monkeypatch.setattr(module, "display_bundle", display)
    output = listed.RunsOutput(divebook.runs())
    browser, opened, below = places
    assert view_output.WIDGET_VIEW in browser.bundle
    assert "KeyError" in below.bundle["text/plain"]
    assert "KeyError" in below.bundle["text/html"]
    output.show_runs([two[0].id])
    assert view_output.WIDGET_VIEW in opened.bundle
    output.show_runs([two[0].id, two[0].id])
    assert "no difference" in opened.bundle["text/plain"]
    output.show_runs([])
    assert opened.bundle == listed.NOTHING
    output._view.close()


def test_the_browser_shows_as_many_runs_as_were_asked_for_and_more_on_request(session):
    runs = [divebook.run("Workflows: [{Name: w, Steps: [{Name: s, Script: 1, Store: n}]}]").wait() for _ in range(5)]
    page = divebook.runs(limit=3).feed().frame()
    assert [run["execution_id"] for run in page["runs"]] == [run.id for run in reversed(runs)][:3]
    assert (page["matching"], page["query"]["limit"]) == (5, 3)
    assert len(divebook.runs().feed().frame()["runs"]) == 5


def test_the_browser_begins_with_the_filters_that_were_named(two):
    feed = divebook.runs("failed", origin="run").feed()
    assert [run["workflow"] for run in feed.frame()["runs"]] == ["bad"]
    assert divebook.runs(origin="fork").feed().frame()["total"] == 0


def test_runs_are_compared_by_line_and_by_function(cell, session):
    divebook.define(
        "Workflows: [{Name: sum, Inputs: [{Name: n}], Steps: [{Name: add, Script: inputs.n + 1, Store: m}]}]"
    )
    one, other = (divebook.run("sum", {"n": n}).wait() for n in (1, 2))
    found, _ = cell(f"%dive compare {one.id} {other.id}")
    assert found.first.text == divebook.compare(one, other).first.text == "input n: [-1-]{+2+}"
    assert one.compare(other.id).frame()["difference"].tolist()[0] == "changed"
    with pytest.raises(Exception, match="name two or more runs; %dive runs lists all runs"):
        cell(f"%dive compare {one.id}")
