"""An example of each kind of object that shows itself."""

import pytest

from divebook import Agent, Environment, ScriptedModel, Step, Workflow
from divebook.analysis.run_report import report_of
from divebook.commands.control import Rules, RunTags
from divebook.commands.definitions import Diagnosis, Keys
from divebook.commands.files import WrittenFiles
from divebook.commands.inspection import RunCount, Stats, Unverified, Verifications
from divebook.commands.store import Backup, Collection, StoreCopy
from divebook.commands.tutorial import Tutorial
from divebook.definitions.resources import WorkspaceDefinition
from divebook.definitions.schema import reference
from divebook.engine.approvals import ApprovalRule, StandingRule
from divebook.notebook.report import contents, questions
from divebook.notebook.run_list import OpenQuestions, Runs
from divebook.notebook.saved_notebook import SavedRun
from divebook.widgets.recording import MIME, read_saved

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
        examples += [
            OpenQuestions(environment, None),
            Runs(environment),
            questions(environment),
            contents(environment),
        ]
        numbers = {"by_status": {"completed": 2}, "median_seconds": 0.5, "longest_seconds": None, "cost": 0.5}
        unverified = Unverified("exec_1", HOSTILE, f"no code\n{HOSTILE}")
        examples += [RunCount({"completed": 2, "failed": 1}), unverified, Verifications([one.verify(), unverified])]
        examples += [WrittenFiles(project, ["a"], f"a is in {HOSTILE}\nb was left out"), RunTags(one.id, (HOSTILE,))]
        examples += [Rules([]), Rules([(None, StandingRule("rule_1", "allow", "pay", arguments={"to": HOSTILE}))])]
        examples += [Backup(project, 5), StoreCopy(HOSTILE, 1, 2, 3, 4, 5), Collection(True, 1, 2, 3, 4, 5, 6, 7)]
        row = {"model": HOSTILE, "agents": "poet", "library": "installed", "key": "", "price": "known"}
        examples += [Keys(dict([reference("step")])), Keys(dict([reference("step")]), is_folded=True)]
        examples += [Diagnosis([{**row, "hint": "", "problems": [], "usable": True}], [])]
        examples += [Stats([{"workflow": HOSTILE, "runs": 2, **numbers}]), Stats([])]
        examples += [failed.failure, Tutorial(project, [])]
        examples += [report_of(one, one.history()), SavedRun(*read_saved(one._repr_mimebundle_()[MIME]))]
        yield examples
