"""An offer and what becomes of a choice, without a browser."""

import pytest

from divebook.widgets import views
from divebook.widgets.protocol import Choice, Offer
from divebook.widgets.views import OfferView

OFFER = Offer(
    type="offer", view="", id="edited", text="it changed", choices=[Choice(name="again", label="Again", description="")]
)


class AtOnce:
    """Carries out what is submitted, on the same thread."""

    def submit(self, function, *arguments):
        function(*arguments)


@pytest.fixture
def offered(monkeypatch):
    """Return a view without a thread, what it has sent, and what was chosen."""
    monkeypatch.setattr(views, "built", lambda name: f"/* {name} */")
    monkeypatch.setattr("divebook.widgets.publisher.Publisher._start", lambda _: None)
    monkeypatch.setattr("divebook.widgets.views.ThreadPoolExecutor", lambda *_: AtOnce())
    monkeypatch.setattr("divebook.widgets.publisher.Publisher.post", lambda _, reply, urgent: reply())
    sent, chosen = [], []
    monkeypatch.setattr(OfferView, "send", lambda _, content, buffers=None: sent.append(content))
    view = OfferView(OFFER, chosen.append)
    yield view, sent, chosen
    view.close()


def test_each_view_is_welcomed_with_the_offer(offered):
    view, sent, _ = offered
    view._receive(view, {"type": "hello", "view": "v1", "feed": "", "since": 0}, None)
    assert sent == [{**OFFER, "view": "v1"}]
    assert view.greeted.is_set()
    assert view._esm == "/* offer.js */"


@pytest.mark.parametrize("response", ["format the disk", ["again"], None])
def test_only_what_is_offered_can_be_chosen(offered, response):
    view, sent, chosen = offered
    answer = {"type": "answer", "id": "a1", "interrupt_id": "edited", "response": response}
    view._receive(view, answer, None)
    (refused,) = sent
    assert (refused["accepted"], chosen) == (False, [])
    assert refused["text"] == f"unknown choice {response!r}; choose one of: again"
    view._receive(view, {**answer, "id": "a2", "response": "again"}, None)
    view._receive(view, {**answer, "id": "a2", "response": "again"}, None)
    assert (sent[1]["accepted"], chosen) == (True, ["again"])
