"""Calls that need a person's yes: what the card takes, the rules that its answers make, and who may revoke them."""

from __future__ import annotations

import pytest

from divebook import Environment, Step, Workflow
from divebook.definitions.json_schemas import complaint
from divebook.engine.approvals import schema_of_answer
from divebook.errors import DefinitionError, InterruptError, NotFoundError
from divebook.events import catalog
from divebook.runtime.clock import SystemClock
from divebook.steps.actions import Action
from divebook.stores import MemoryStore
from tests.runtime.worlds import question_of

PAY_TWICE = Workflow(
    "pay",
    [
        Step("first", action="pay", parameters={"amount": 5, "to": "$(inputs.to)"}),
        Step("second", action="pay", parameters={"amount": "$(inputs.second)", "to": "$(inputs.to)"}),
    ],
    inputs=["to", "second"],
)
SAME = {"to": "ann", "second": 5}


class ManualClock(SystemClock):
    """A clock that goes on by itself, and can be set on."""

    def __init__(self):
        self.ahead = 0

    def now(self):
        return super().now() + self.ahead


class Till:
    """An action that asks first, and what it has paid."""

    def __init__(self, store=None, clock=None, **settings):
        self.paid: list[tuple[int, str]] = []
        self.store = store if store is not None else MemoryStore()
        self.world = Environment(
            store=self.store, actions=[self.action()], workflows=[PAY_TWICE], clock=clock, **settings
        )

    def action(self):
        def pay(amount, to):
            self.paid.append((amount, to))

        return Action("pay", pay, approval=True)

    def asked(self, inputs=SAME):
        """Return a run that asks about its first payment."""
        run = self.world.start("pay", inputs).wait(20)
        assert run.status == "waiting"
        return run

    def approved(self, run, **rule):
        """Say yes to what a run asks, perhaps with a rule."""
        answer = {"approved": True, "data": {"rule": rule}} if rule else True
        return run.answer(question_of(run).id, answer).wait(20)


def test_a_rule_for_this_run_answers_for_calls_like_the_one_that_was_approved():
    till = Till()
    run = till.approved(till.asked(), scope="run")
    assert (run.status, till.paid) == ("completed", [(5, "ann")] * 2)
    assert len(run.state.interrupts) == 1
    assert till.asked() is not run, "the next run asks again"


@pytest.mark.parametrize(("to", "second"), [("ann", 6), ("Ann", 5), ("ann", "5")])
def test_a_rule_is_about_equal_arguments_only(to, second):
    till = Till()
    workflow = Workflow(
        "pay",
        [
            Step("first", action="pay", parameters={"amount": 5, "to": "ann"}),
            Step("second", action="pay", parameters={"amount": "$(inputs.second)", "to": "$(inputs.to)"}),
        ],
        inputs=["to", "second"],
    )
    till.world.add_workflow(workflow, replace=True)
    run = till.approved(till.asked({"to": to, "second": second}), scope="run")
    assert (run.status, till.paid) == ("waiting", [(5, "ann")])


def test_a_person_may_widen_a_rule_by_writing_patterns():
    till = Till()
    run = till.asked({"to": "team/ann", "second": 5})
    run = till.approved(run, scope="always", arguments={"amount": 5, "to": "team/*"})
    assert run.status == "completed"
    assert till.world.start("pay", {"to": "team/bob", "second": 5}).wait(20).status == "completed"
    assert till.world.start("pay", {"to": "team/x/bob", "second": 5}).wait(20).status == "waiting"


def test_a_rule_for_always_holds_in_other_runs_and_environments_until_it_expires():
    clock = ManualClock()
    till = Till(clock=clock)
    till.approved(till.asked(), scope="always")
    ((run, rule),) = till.world.rules
    assert (run, rule.tool, rule.kind, rule.arguments) == (None, "pay", "action", {"amount": 5, "to": "ann"})
    other = Till(till.store, clock)
    assert other.world.start("pay", SAME).wait(20).status == "completed"
    clock.ahead = 24 * 3600 * 1_000_000
    assert ([*other.world.rules], other.world.start("pay", SAME).wait(20).status) == ([], "waiting")


def test_edited_arguments_are_what_a_rule_allows():
    till = Till()
    run = till.asked({"to": "ann", "second": 2})
    edited = {"parameters": {"amount": 2, "to": "ann"}, "rule": {"scope": "run"}}
    run = run.answer(question_of(run).id, {"approved": True, "data": edited}).wait(20)
    assert (run.status, till.paid) == ("completed", [(2, "ann")] * 2)


def test_a_revoked_rule_holds_no_more():
    till = Till()
    till.approved(till.asked(), scope="always")
    ((_, rule),) = till.world.rules
    till.world.rules.revoke(rule.rule_id)
    assert ([*till.world.rules], till.world.start("pay", SAME).wait(20).status) == ([], "waiting")
    with pytest.raises(NotFoundError, match=rule.rule_id):
        till.world.rules.revoke(rule.rule_id)


def test_a_rule_of_a_run_that_waits_can_be_revoked_from_elsewhere():
    till = Till()
    three = Workflow("three", [Step(name, action="pay", parameters={"amount": n, "to": "ann"}) for name, n in STEPS])
    till.world.add_workflow(three)
    run = till.approved(till.world.start("three").wait(20), scope="run")
    ((name, rule),) = till.world.rules
    assert (name, run.status) == (run.id, "waiting")
    Till(till.store).world.rules.revoke(rule.rule_id, by="bob")
    run = till.approved(till.world.run_of(run.id))
    assert (run.status, till.paid, [*till.world.rules]) == ("waiting", [(1, "ann"), (2, "ann")], [])
    revoked = [event.data for event in till.store.read(run.id) if isinstance(event.data, catalog.ApprovalRuleRevoked)]
    assert [(data.rule_id, data.by) for data in revoked] == [(rule.rule_id, "bob")]


STEPS = (("a", 1), ("b", 2), ("c", 1))


def test_the_rules_of_a_run_are_not_those_of_its_copy():
    till = Till()
    three = Workflow("three", [Step(name, action="pay", parameters={"amount": n, "to": "ann"}) for name, n in STEPS])
    till.world.add_workflow(three)
    run = till.approved(till.world.start("three").wait(20), scope="run")
    copy = till.world.run_of(run.id).fork(run.state.last_sequence).wait(20)
    assert till.approved(copy).status == "waiting", "it asks about the third call"
    assert till.approved(run).status == "completed", "the original does not"


def test_an_answer_whose_rule_is_none_is_refused_and_the_question_stays():
    till = Till()
    run = till.asked()
    for rule in (
        {},
        {"scope": "for ever"},
        {"scope": "always", "expires_in": 91 * 86_400},
        {"scope": "run", "tool": "*"},
    ):
        with pytest.raises(InterruptError, match="data does not fit"):
            run.answer(question_of(run).id, {"approved": True, "data": {"rule": rule}})
    assert (run.status, till.paid) == ("waiting", [])


def test_a_denial_makes_no_rule():
    till = Till()
    run = till.asked()
    run.answer(question_of(run).id, {"approved": False, "data": {"rule": {"scope": "always"}}}).wait(20)
    assert not till.world.rules


def test_a_rule_of_the_environment_denies_an_action_for_good():
    till = Till(approvals=[{"tool": "pay", "outcome": "deny", "reason": "closed on sundays"}])
    run = till.world.start("pay", SAME).wait(20)
    assert (run.status, till.paid) == ("failed", [])
    assert "closed on sundays" in run.error


def test_a_book_is_in_no_list_unless_it_is_asked_for():
    till = Till()
    run = till.approved(till.asked(), scope="always")
    assert [record.execution_id for record in till.world.store.records()] == [run.id]
    assert (till.world.queues.recoverable(), till.world.inbox(), till.store.unended()) == ([], [], [])
    (book,) = till.world.store.records(origin="book")
    assert book.status == "waiting"


def test_a_schema_is_that_of_the_tools_arguments_wherever_it_refers_to():
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#"}}}
    wanted = schema_of_answer(schema)
    assert complaint(wanted, {"parameters": {"a": 1, "b": {"a": 2}}}) is None
    assert complaint(wanted, {"parameters": {"a": "x"}})
    assert complaint(wanted, {"parameters": {"b": {"a": "x"}}})
    assert complaint(wanted, {})
    assert complaint(wanted, {"other": 1})


def test_a_schema_that_refers_to_an_address_is_not_looked_up(monkeypatch):
    monkeypatch.setattr("urllib.request.urlopen", lambda *_: pytest.fail("something was looked up"))
    for reference in ("http://127.0.0.1:1/schema.json", "other.json#/a", "#anchor"):
        wanted = schema_of_answer({"$id": "http://127.0.0.1:1/", "properties": {"a": {"$ref": reference}}})
        assert complaint(wanted, {"parameters": {"a": 1}}) is None


def test_rules_are_read_from_a_file_and_wrong_ones_refused(tmp_path):
    from divebook.definitions.reader import read_definitions

    text = "Name: e\nConfig: {Approvals: [{Tool: pay, Arguments: {to: ann}, Outcome: deny}]}\n"
    assert read_definitions(text).config.approvals[0].arguments == {"to": "ann"}
    with pytest.raises(DefinitionError, match="invalid outcome of an approval rule: allowed"):
        read_definitions(text.replace("deny", "allowed"))
