"""Everything that shows itself: the same words as text, as HTML and in a terminal, which no page takes away."""

import re

import pytest
from IPython.core.formatters import DisplayFormatter

import divebook
from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis.run_report import report_of
from divebook.definitions.resources import WorkspaceDefinition
from divebook.engine.approvals import ApprovalRule
from divebook.notebook.report import contents, questions, rules
from divebook.notebook.run_list import Runs
from divebook.notebook.saved_notebook import SavedRun
from divebook.report.html import html_of
from divebook.report.model import Report
from divebook.report.shown import Shown
from divebook.report.text import text_of
from divebook.widgets.recording import MIME, read_saved
from tests.report.test_rendering import ATTRIBUTES, KEPT, Page

HOSTILE = "<script>alert(1)</script><b>bold</b> \x1b[31mred\x1b[0m \u202ereversed"


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return an example of each kind of object that shows itself, by its class."""
    project = tmp_path_factory.mktemp("project")
    (project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    poet = Agent("poet", model=ScriptedModel([HOSTILE, "two roses", "three roses", *["roses"] * 9], price=0.5))
    edit = {"call": {"replace": {"file_path": "calc.py", "content": "def add(a, b):\n    return a + b  # <b>\n"}}}
    coder = Agent("coder", model=ScriptedModel(turns=[[edit, "done"]]), workspace="app")
    steps = [Step("n", script="inputs.n * 2", store="n"), Step("say", agent="poet", prompt="${state.n}", store="said")]
    flow = Workflow("roses", steps, inputs=["n"])
    settings = {"workspaces": [WorkspaceDefinition("app", folder=str(project))], "approvals": [ApprovalRule("shell")]}
    with Environment(store="memory:", agents=[poet, coder], **settings) as environment:
        one, other = (environment.start(flow, {"n": n}).wait(20) for n in (1, 2))
        failed = environment.start(Workflow("broken", [Step("divide", script="1 // 0")])).wait(20)
        asking = environment.start(Workflow("asks", [Step("ask", ask=f"Go on? {HOSTILE}")])).wait(20)
        edited = environment.start(Workflow("fix", [Step("go", prompt="repair it", agent="coder")])).wait(20)
        change = {"inputs": {"n": 3}}
        examples = [one, failed, asking, edited, one.compare(other), one.inspect(), one.why("n"), one.verify()]
        examples += [one.what_if(change), one.what_if(change, repeat=2), one.what_if(change, plan=True)]
        examples += [one.try_step("say", {"Prompt": "again"}, times=2), edited.files(), edited.files().changed()]
        examples += [Runs(environment), questions(environment), rules(environment), contents(environment)]
        examples += [report_of(one, one.history()), SavedRun(*read_saved(one._repr_mimebundle_()[MIME]))]
        yield examples


def test_each_kind_has_the_same_words_everywhere_and_nothing_that_a_page_takes_away(shown):
    for each in shown:
        report = each.report()
        markup, text = html_of(report), text_of(report)
        page = Page(markup)
        assert page.elements <= KEPT, each
        assert page.attributes <= ATTRIBUTES, each
        assert "<script" not in markup
        assert not {"\x1b", "\u202e"} & {*markup, *text}
        # A page also has details that its readers can unfold.
        only_in_text = {"only", "in", "and", "more", "difference", "differences", "table", "frame", "all", "has", "the"}
        assert words_of(text) - only_in_text <= words_of(page.text), each


def words_of(text):
    return {*re.findall(r"\w+", text.lower())}


def test_what_is_printed_is_what_a_notebook_saves_as_text_and_a_terminal_prints(shown):
    formatter = DisplayFormatter()
    # Widgets are for the pages of a kernel, and are not asked for here.
    formatter.ipython_display_formatter.enabled = False
    for each in shown:
        bundle = each._repr_mimebundle_()
        assert bundle["text/plain"] == str(each) == text_of(each.report())
        assert each.__rich__().plain == str(each)
        assert formatter.format(each)[0]["text/plain"] == str(each)
        assert bundle["text/html"] == each._repr_html_()


def test_each_class_that_shows_itself_has_an_example(shown):
    def below(kind):
        return {kind}.union(*map(below, kind.__subclasses__()))

    # Names: a dataclass with slots replaces its class, and both are subclasses.
    examples = {type(each).__name__ for each in shown}
    kinds = {kind.__name__ for kind in below(Shown) if kind.__module__.startswith("divebook.")}
    assert kinds - examples == {"Shown", "ResumePlan"}, "add an example to the fixture of this file"


def test_a_report_that_is_empty_is_shown_as_nothing():
    assert text_of(Report()) == ""
    assert divebook.__name__ not in html_of(Report())
