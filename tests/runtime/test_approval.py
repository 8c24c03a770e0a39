"""Actions and step functions that a person approves before they are called."""

import pytest

from divebook import Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.errors import InterruptError
from divebook.steps.actions import Action
from tests.runtime.worlds import environment, question_of

OFFERS = {"scopes": ["run", "always"], "expires_in": 86_400}


class Till:
    def __init__(self):
        self.paid = []

    def action(self):
        async def pay(amount, to="ann"):
            self.paid.append((amount, to))
            return f"paid {amount}"

        return Action("pay", pay, "Pays for good.", approval=True)


PAY = Workflow(
    "pay",
    [
        Step("pay", action="pay", parameters={"amount": "$(inputs.n + 1)"}, store="receipt", catch="no", next=["end"]),
        Step("no", script="'denied'", store="receipt", next=["end"]),
        Step("end", script="1"),
    ],
    inputs=["n"],
)


def test_an_action_with_approval_shows_what_it_would_do():
    till = Till()
    question = question_of(environment(PAY, actions=[till.action()]).start("pay", {"n": 4}).wait(20))
    assert (question.kind, question.question, question.message) == ("confirmation", "Run pay?", "Pays for good.")
    assert question.data == {"action": "pay", "parameters": {"amount": 5}, "offers": OFFERS}
    assert till.paid == []


@pytest.mark.parametrize(
    ("answer", "receipt", "paid"),
    [
        (True, "paid 5", [(5, "ann")]),
        ({"approved": True, "data": {"parameters": {"amount": 2, "to": "bob"}}}, "paid 2", [(2, "bob")]),
        (False, "denied", []),
        ({"approved": False, "data": {"parameters": {"amount": 2}}}, "denied", []),
    ],
)
def test_only_an_approval_releases_the_call(answer, receipt, paid):
    till = Till()
    execution = environment(PAY, actions=[till.action()]).start("pay", {"n": 4}).wait(20)
    done = execution.answer(question_of(execution).id, answer).wait(20)
    assert (done.status, done.variables["receipt"], till.paid) == ("completed", receipt, paid)


@pytest.mark.parametrize("data", [[1], {"parameters": 3}, {"amount": 2}])
def test_parameters_that_are_none_are_refused_and_the_question_stays(data):
    till = Till()
    world = environment(PAY, actions=[till.action()])
    execution = world.start("pay", {"n": 4}).wait(20)
    with pytest.raises(InterruptError, match="data does not fit"):
        world.answer(question_of(execution).id, {"approved": True, "data": data})
    assert (execution.status, till.paid) == ("waiting", [])


def test_a_denial_says_why():
    till = Till()
    workflow = Workflow("w", [Step("pay", action="pay", parameters={"amount": 1}, retry=3)])
    execution = environment(workflow, actions=[till.action()]).start("w").wait(20)
    done = execution.answer(question_of(execution).id, {"approved": False, "text": "too much"}).wait(20)
    assert (done.status, till.paid) == ("failed", [])
    assert "too much" in done.error


def test_a_step_function_with_approval_asks_first():
    paid = []

    @step(approval=True)
    async def pay(amount: int, to: str = "ann") -> str:
        """Pay for good."""
        paid.append((amount, to))
        return f"paid {amount}"

    @workflow("pays")
    async def pays(ctx):
        return await pay(5)

    execution = environment().start(pays).wait(20)
    question = question_of(execution)
    assert (question.question, question.message) == ("Run pay?", "Pay for good.")
    assert question.data == {"step": "pay", "parameters": {"amount": 5, "to": "ann"}, "offers": OFFERS}
    edited = {"approved": True, "data": {"parameters": {"amount": 3, "to": "bob"}}}
    assert execution.answer(question.id, edited).wait(20).outputs == {"result": "paid 3"}
    assert paid == [(3, "bob")]


def test_a_denied_step_function_raises_what_code_can_catch():
    from divebook.errors import ApprovalDeniedError

    @step(approval=True, retry=3)
    def pay(amount: int) -> str:
        raise AssertionError("nobody approved")

    @workflow("tries")
    async def tries(ctx):
        try:
            return await pay(5)
        except ApprovalDeniedError as error:
            return f"not paid: {error}"

    execution = environment().start(tries).wait(20)
    done = execution.answer(question_of(execution).id, {"approved": False, "text": "no money"}).wait(20)
    assert "no money" in done.outputs["result"]


def test_a_confirmation_that_nobody_looks_at_stops_the_path():
    workflow = Workflow("w", [Step("sure", type="interrupt", ask={"question": "Sure?", "kind": "confirmation"})])
    execution = environment(workflow).start("w").wait(20)
    denied = execution.answer(question_of(execution).id, "no").wait(20)
    assert denied.status == "failed"
