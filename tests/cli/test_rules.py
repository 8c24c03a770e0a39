"""Rules that people made, listed and revoked in the shell and in a session."""

import json

import pytest

from divebook.commands.command import NOTEBOOK, Invocation
from divebook.commands.control import rules
from divebook.stores import open_store
from tests.runtime.worlds import question_of
from tests.steps.test_approval import Till

PLACE = ".divebook/executions.db"


@pytest.fixture
def rule():
    """Leave one rule for every run, and one for a run that waits, in the folder's store."""
    till = Till(open_store(PLACE))
    till.approved(till.asked(), scope="always", expires_in=3600)
    run = till.approved(till.asked({"to": "bob", "second": 6}), scope="run")
    assert question_of(run)
    rules = dict(till.world.rules)
    till.world.close()
    return rules[None], rules[run.id], run.id


def test_rules_are_listed_and_revoked_in_the_shell(divebook, rule):
    always, once, run = rule
    shown = divebook("rules").stdout
    assert f"{always.rule_id}  allow action pay with {{'amount': 5, 'to': 'ann'}} in every run, until 2" in shown
    assert f"{once.rule_id}  allow action pay with {{'amount': 5, 'to': 'bob'}} in {run}" in shown
    facts = json.loads(divebook("rules", "--json").stdout)["rules"]
    assert {(fact["run_id"], fact["rule_id"]) for fact in facts} == {(None, always.rule_id), (run, once.rule_id)}
    assert divebook("rules", "--revoke", always.rule_id, "--by", "carol").exit_code == 0
    assert always.rule_id not in divebook("rules").stdout
    wrong = divebook("rules", "--revoke", "rule_none")
    assert (wrong.exit_code, "rule_none" in wrong.stderr) == (2, True)


def test_rules_are_listed_and_revoked_in_a_session(rule):
    always, once, _ = rule
    environment = Till(open_store(PLACE)).world
    call = Invocation(NOTEBOOK, lambda: environment, lambda _text, _style: None)
    assert [name in str(rules(call)) for name in (always.rule_id, once.rule_id)] == [True, True]
    assert always.rule_id not in str(rules(call, revoke=always.rule_id))
    other = Invocation(NOTEBOOK, lambda: Till().world, lambda _text, _style: None)
    assert str(rules(other)) == "no rules: each call that needs approval asks a person"
