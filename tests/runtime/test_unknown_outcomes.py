"""Calls that began and have no recorded outcome: made again if that does no harm, else a person is asked."""

import pytest

from divebook import Each, Environment, Retry, Step, Workflow
from divebook.errors import InterruptError, NotFoundError, OutcomeUnknownError, SetupError
from divebook.steps.actions import Action
from tests.runtime.test_resuming import cut
from tests.runtime.worlds import environment, event_types

PAY = Workflow("pay", [Step("pay", action="pay", parameters={"amount": 5}, store="receipt"), Step("end", script="1")])


class Bank:
    """A tool whose calls are counted outside of the engine."""

    def __init__(self, error=None):
        self.payments, self.keys, self.error = 0, set(), error

    def pay(self):
        async def pay(amount):
            self.payments += 1
            if self.error is not None:
                raise self.error
            return f"receipt {self.payments}"

        return Action("pay", pay)

    def pay_once(self):
        async def pay(amount, idempotency_key):
            if idempotency_key not in self.keys:
                self.keys.add(idempotency_key)
                self.payments += 1
                raise TimeoutError("no answer, though the money went")
            return "receipt"

        return Action("pay", pay)


def died_during_the_call(bank):
    """Return an environment and the id of an execution whose process died after the payment began."""
    execution = environment(PAY, actions=[bank.pay()]).start("pay").wait(20)
    length = next(e.sequence for e in execution.history() if e.event_type == "operation_started")
    return Environment(store=cut(execution.store, execution, length), actions=[bank.pay()]), execution.id


def test_a_call_that_may_have_taken_effect_is_not_made_again_but_asked_about():
    bank = Bank()
    world, execution_id = died_during_the_call(bank)
    resumed = world.run_of(execution_id).resume().wait(20)
    (question,) = resumed.open_questions
    assert (resumed.status, bank.payments, question.kind) == ("waiting", 1, "outcome_unknown")
    assert question.question == "Did the call to pay go through?"
    stopped = "The process stopped after it began, or the run was cancelled."
    assert question.message == f"{stopped} It was called with amount = 5."
    assert question.data["parameters"]["params"] == {"amount": 5}


@pytest.mark.parametrize(
    ("answer", "status", "variables", "payments"),
    [
        ("retry", "completed", {"receipt": "receipt 2"}, 2),
        ({"choice": "done", "result": "seen on the statement"}, "completed", {"receipt": "seen on the statement"}, 1),
        ("fail", "failed", {}, 1),
    ],
)
def test_the_answer_decides(answer, status, variables, payments):
    bank = Bank()
    world, execution_id = died_during_the_call(bank)
    (question,) = world.run_of(execution_id).resume().wait(20).open_questions
    answered = world.answer(question.id, answer).wait(20)
    assert (answered.status, bank.payments) == (status, payments)
    assert {key: value for key, value in answered.variables.items() if key == "receipt"} == variables


def test_the_answer_may_come_from_another_process_later():
    bank = Bank()
    world, execution_id = died_during_the_call(bank)
    world.run_of(execution_id).resume().wait(20)
    other = Environment(store=world.store, actions=[bank.pay()])
    ((asking, question),) = other.inbox()
    assert asking == execution_id
    assert other.answer(question.id, "retry").wait(20).status == "completed"


def test_the_store_knows_that_an_execution_waits_until_it_is_answered():
    world, execution_id = died_during_the_call(Bank())
    assert [record.execution_id for record in world.queues.recoverable()] == [execution_id]
    resumed = world.run_of(execution_id).resume().wait(20)
    assert world.store.records(status="waiting") == [world.store.record(execution_id)]
    assert (world.queues.recoverable(), world.store.records(status="running")) == ([], [])
    world.answer(resumed.open_questions[0].id, "retry").wait(20)
    assert world.store.record(execution_id).status == "completed"


def test_resuming_again_asks_no_second_time():
    world, execution_id = died_during_the_call(Bank())
    world.run_of(execution_id).resume().wait(20)
    again = world.run_of(execution_id).resume().wait(20)
    assert len(again.open_questions) == 1
    assert event_types(again).count("interrupt_raised") == 1


def test_a_second_answer_is_refused_and_shows_the_first():
    world, execution_id = died_during_the_call(Bank())
    (question,) = world.run_of(execution_id).resume().wait(20).open_questions
    world.answer(question.id, "retry").wait(20)
    with pytest.raises(InterruptError, match=r"already answered by .*, with {'choice': 'retry'}"):
        world.answer(question.id, "fail", execution_id)


@pytest.mark.parametrize("answer", ["maybe", {"choice": "perhaps"}, None, 3])
def test_an_answer_that_does_not_fit_leaves_the_question_open(answer):
    world, execution_id = died_during_the_call(Bank())
    (question,) = world.run_of(execution_id).resume().wait(20).open_questions
    with pytest.raises(InterruptError, match="answer with retry, done or fail"):
        world.answer(question.id, answer)
    assert world.run_of(execution_id).open_questions == [question]


def test_an_unknown_question_is_told():
    with pytest.raises(NotFoundError, match="question not found: ask_nothing"):
        environment().answer("ask_nothing", "retry")


def test_a_call_declared_idempotent_is_simply_made_again():
    calls = []

    async def note(value=None):
        calls.append(value)

    workflow = Workflow("w", [Step("a", action="note")])
    execution = environment(workflow, actions=[Action("note", note, idempotent=True)]).start("w").wait(20)
    store = cut(execution.store, execution, 4)
    resumed = (
        Environment(store=store, actions=[Action("note", note, idempotent=True)]).run_of(execution.id).resume().wait(20)
    )
    assert (resumed.status, len(calls)) == ("completed", 2)


def test_a_tool_that_takes_the_key_acts_once_though_its_calls_break_off():
    bank = Bank()
    workflow = Workflow(
        "w",
        [
            Step(
                "a",
                action="pay",
                parameters={"amount": 1},
                retry=Retry(3, seconds=0),
                each=Each(list(range(209)), as_="i"),
            )
        ],
    )
    execution = environment(actions=[bank.pay_once()]).start(workflow).wait(60)
    assert (execution.status, bank.payments) == ("completed", 209)


@pytest.mark.parametrize("retry", [None, Retry(3, seconds=0)])
def test_without_the_key_every_broken_call_is_asked_about_and_none_is_repeated(retry):
    bank = Bank(error=TimeoutError("no answer, though the money went"))
    each = Each(list(range(209)), as_="i", parallel=8)
    workflow = Workflow("w", [Step("a", action="pay", parameters={"amount": 1}, retry=retry, each=each)])
    world = environment(actions=[bank.pay()])
    execution = world.start(workflow).wait(60)
    assert (execution.status, bank.payments, len(execution.open_questions)) == ("waiting", 209, 209)
    resumed = world.run_of(execution.id).resume().wait(60)
    assert (resumed.status, bank.payments, len(resumed.open_questions)) == ("waiting", 209, 209)


def test_a_call_that_breaks_off_in_a_step_that_is_not_tried_again_is_asked_about():
    bank = Bank(error=TimeoutError("no answer, though the money went"))
    world = environment(PAY, actions=[bank.pay()])
    execution = world.start("pay").wait(20)
    assert (execution.status, world.run_of(execution.id).resume().wait(20).status, bank.payments) == (
        "waiting",
        "waiting",
        1,
    )
    (question,) = execution.open_questions
    bank.error = None
    answered = world.answer(question.id, {"choice": "done", "result": "seen"}).wait(20)
    assert (answered.status, answered.variables["receipt"], bank.payments) == ("completed", "seen", 1)


def test_a_call_that_breaks_off_is_asked_about_before_its_failure_is_caught():
    bank = Bank(error=ConnectionResetError("gone"))
    steps = [
        Step("pay", action="pay", parameters={"amount": 1}, catch="rescue", end=True),
        Step("rescue", script="1", store="rescued"),
    ]
    world = environment(actions=[bank.pay()])
    execution = world.start(Workflow("w", steps)).wait(20)
    assert (execution.status, bank.payments) == ("waiting", 1)
    answered = world.answer(execution.open_questions[0].id, "fail").wait(20)
    assert (answered.status, answered.variables, bank.payments) == ("completed", {"rescued": 1}, 1)


def test_a_call_that_was_never_sent_has_failed_and_is_made_again_on_resume():
    bank = Bank(error=ConnectionRefusedError("nobody there"))
    world = environment(PAY, actions=[bank.pay()])
    execution = world.start("pay").wait(20)
    assert (execution.status, execution.open_questions) == ("failed", [])
    bank.error = None
    assert (world.run_of(execution.id).resume().wait(20).status, bank.payments) == ("completed", 2)


def test_a_call_that_may_be_repeated_fails_when_it_breaks_off():
    async def slow():
        raise TimeoutError("too slow")

    slowly = Workflow("w", [Step("a", action="slow")])
    execution = environment(actions=[Action("slow", slow, idempotent=True)]).start(slowly).wait(20)
    assert (execution.status, execution.open_questions) == ("failed", [])


def test_an_action_may_say_itself_that_it_does_not_know():
    bank = Bank(error=OutcomeUnknownError("the connection broke"))
    workflow = Workflow("w", [Step("a", action="pay", parameters={"amount": 1}, retry=2)])
    assert environment(actions=[bank.pay()]).start(workflow).wait(20).status == "waiting"


def test_other_items_go_on_while_one_waits_and_answers_release_it():
    bank = Bank()

    async def sometimes(value):
        bank.payments += 1
        if value == "1" and bank.payments < 4:
            raise TimeoutError("broken off")
        return value

    each = Each([0, 1, 2], as_="i", parallel=3)
    step = Step("a", action="act", parameters={"value": "${i}"}, retry=2, each=each, store="r")
    world = environment(actions=[Action("act", sometimes)])
    execution = world.start(Workflow("w", [step])).wait(20)
    assert (execution.status, bank.payments) == ("waiting", 3)
    (question,) = execution.open_questions
    answered = world.answer(question.id, "retry").wait(20)
    assert (answered.variables["r"], bank.payments) == (["0", "1", "2"], 4)


def test_a_path_that_waits_does_not_stop_the_others():
    bank = Bank(error=TimeoutError("broken off"))
    steps = [
        Step("a", script="1", next=["pay", "go"]),
        Step("pay", action="pay", parameters={"amount": 1}, retry=2, end=True),
        Step("go", script="2", store="went", end=True),
    ]
    execution = environment(actions=[bank.pay()]).start(Workflow("w", steps)).wait(20)
    assert (execution.status, execution.variables) == ("waiting", {"went": 2})


def test_who_asks_may_be_named_by_the_execution_itself():
    world, execution_id = died_during_the_call(Bank())
    asking = world.run_of(execution_id).resume().wait(20)
    (question,) = asking.open_questions
    with pytest.raises(SetupError, match="run must be an id or a Run, not 3"):
        world.answer(question.id, "retry", 3)
    assert world.answer(question.id, "retry", asking).wait(20).status == "completed"
