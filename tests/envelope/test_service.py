import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from divebook.errors import InterruptError
from divebook.pipeline.envelope import InterruptKind, InterruptPolicy, InterruptResponse, InterruptService, Origin
from tests.envelope.strategies import NOW, fresh

ANN = Origin("req", "ann", "sess")


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def service(clock):
    return InterruptService(clock=clock)


@pytest.fixture
def eager_switching():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager_switching")
@pytest.mark.parametrize("_round", range(10))
def test_of_many_answers_at_once_exactly_one_counts(service, _round):
    question = service.create("clarification", origin=ANN)
    start = Barrier(8)

    def answer(number):
        start.wait(10)
        return service.resolve(question.id, {"text": str(number)})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(answer, range(8)))
    (winner,) = [number for number, record in enumerate(answers) if record is not None]
    assert question.response.text == str(winner)
    assert service.stats()["resolved"] == 1


@pytest.mark.usefixtures("eager_switching")
def test_an_answer_and_a_cancellation_at_once_give_one_outcome(service):
    questions = [service.create("clarification", origin=ANN) for _ in range(50)]
    start = Barrier(2)

    def act(method, *arguments):
        start.wait(10)
        return [getattr(service, method)(question.id, *arguments) for question in questions]

    with ThreadPoolExecutor(2) as pool:
        answered = pool.submit(act, "resolve", {"text": "x"})
        cancelled = pool.submit(act, "cancel", "no")
        pairs = list(zip(answered.result(), cancelled.result(), strict=True))
    assert all((one is None) is not (other is None) for one, other in pairs)
    assert service.stats()["pending"] == 0


@pytest.mark.parametrize(
    ("kind", "ttl", "required"),
    [
        ("clarification", 86400, True),
        ("confirmation", 3600, True),
        ("agent_review", 1800, True),
        ("checkpoint", None, False),
        ("resource_exhausted", 300, False),
        ("timeout", 300, False),
        ("system_error", 3600, False),
        ("riddle", 3600, True),
    ],
)
def test_kinds_have_their_policy(service, kind, ttl, required):
    policy = service.config(kind)
    assert (policy.ttl_seconds, policy.auto_expire, policy.require_response) == (ttl, ttl is not None, required)
    expires_at = service.create(kind).expires_at
    assert expires_at == (None if ttl is None else NOW + timedelta(seconds=ttl))


def test_policies_are_settings(clock):
    service = InterruptService({InterruptKind.TIMEOUT: InterruptPolicy(5, auto_expire=False)}, clock=clock)
    question = service.create("timeout", origin=ANN)
    clock.advance(5)
    assert service.expire_pending() == 0
    assert service.pending_for_request("req") is None
    assert service.resolve(question.id, {"text": "late"}) is None
    assert question.status == "expired"


@pytest.mark.parametrize("answer", [{}, {"text": " "}, {"decision": "", "data": {}}, InterruptResponse()])
def test_an_empty_answer_where_one_is_required_leaves_it_pending(service, answer):
    question = service.create("confirmation", origin=ANN)
    assert service.resolve(question.id, answer) is None
    assert service.resolve(question.id, {"approved": False}) is question


def test_a_wrong_answer_leaves_it_pending(service):
    question = service.create("confirmation", origin=ANN)
    with pytest.raises(InterruptError, match="approved must be a bool"):
        service.resolve(question.id, {"approved": "yes"})
    assert question.status == "pending"


def test_only_the_asked_user_answers_and_no_user_means_no_check(service):
    question = service.create("confirmation", origin=ANN)
    assert service.resolve(question.id, {"approved": True}, "bob") is None
    assert service.resolve(question.id, {"approved": True}).status == "resolved"


def test_a_cancelled_question_keeps_its_data_and_says_why(service):
    question = service.create("confirmation", data={"k": 1}, origin=ANN)
    assert service.cancel(question.id, "moot") is question
    assert (question.status, question.data) == ("cancelled", {"k": 1, "cancel_reason": "moot"})
    assert service.cancel(question.id) is None
    assert service.cancel("int_unknown") is None


def test_what_is_over_is_forgotten_by_the_age_of_its_question(service, clock):
    old, still_open = service.create("clarification", origin=ANN), service.create("checkpoint", origin=ANN)
    clock.advance(100)
    young = service.create("clarification", origin=ANN)
    service.resolve(old.id, {"text": "x"})
    service.cancel(young.id)
    assert service.cleanup(50) == 1
    assert [service.get(question.id) for question in (old, still_open, young)] == [None, still_open, young]
    clock.advance(100)
    assert service.cleanup(timedelta(seconds=50)) == 1
    assert service.cleanup("50s") == 0
    assert service.pending_for_session("sess") == [still_open]
    assert service.stats() == {"total": 1, "pending": 1, "resolved": 0, "expired": 0, "cancelled": 0}


def test_a_question_is_written_with_its_standing_and_origin(service):
    question = service.create("timeout", origin=ANN)
    service.resolve(question.id, {})
    written = question.to_dict()
    assert (written["status"], written["resolved_at"]) == ("resolved", "2026-01-25T10:00:00.000000Z")
    assert (written["request_id"], written["user_id"], written["trace_id"]) == ("req", "ann", "")
    assert (written["id"], question.session_id) == (question.id, "sess")


def test_questions_of_a_session_come_oldest_first(service):
    questions = [service.create(kind, origin=ANN) for kind in ("clarification", "checkpoint", "clarification")]
    assert service.pending_for_session("sess") == questions
    assert service.pending_for_session("sess", {"checkpoint"}) == [questions[1]]
    assert service.pending_for_session("other") == []


def test_an_envelope_asks_through_the_service_and_keeps_the_answer(service):
    envelope = fresh()
    envelope.user_id = "ann"
    question = service.ask(envelope, "confirmation", message="ok?", data={"files": [1]})
    question.data["files"].append(2)
    assert (envelope.interrupt.id, envelope.interrupt.data) == (question.id, {"files": [1]})
    assert question.origin == Origin(envelope.request_id, "ann", envelope.session_id, envelope.envelope_id)
    assert service.answer(envelope, {}, "ann") is None
    assert envelope.has_pending_interrupt()
    assert service.answer(envelope, {"approved": True}, "ann") is question
    assert not envelope.has_pending_interrupt()
    assert envelope.interrupt.response.approved is True
    assert service.answer(envelope, {"approved": False}) is None
