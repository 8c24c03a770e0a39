"""A widget that offers a few things to do, of which a person chooses one."""

from __future__ import annotations

from collections.abc import Callable

from divebook.errors import SetupError
from divebook.widgets.following import FollowingView
from divebook.widgets.intents import Handlers
from divebook.widgets.protocol.questions import Offer
from divebook.widgets.publisher import Publisher


class OfferFeed:
    """An offer as a publisher tells it: it never changes."""

    has_news = False

    def __init__(self, offer: Offer) -> None:
        self.offer = offer

    def frame(self) -> None:
        """Return None: nothing changes."""

    def look_again(self) -> None:
        """Do nothing."""

    def subscribe(self, _wake: Callable[[], None]) -> Callable[[], None]:
        """Return what ends a subscription to nothing."""
        return self.look_again

    def welcome(self, view: str, _since: int) -> Offer:
        """Return the offer for one view."""
        return Offer(**{**self.offer, "view": view})


class OfferView(FollowingView):
    """Shows an offer as buttons.

    Parameters
    ----------
    offer
        What is offered.
    choose
        Called with the name of what somebody has chosen, on a thread of its own.
    """

    bundle = "offer"

    def __init__(self, offer: Offer, choose: Callable[[str], None]) -> None:
        def take(_offer_id: str, name: object) -> None:
            known = [choice["name"] for choice in offer["choices"]]
            if name not in known:
                raise SetupError(f"{name!r} is not offered; one of {', '.join(known)}")
            choose(str(name))

        super().__init__(Publisher(OfferFeed(offer)), Handlers(take))
