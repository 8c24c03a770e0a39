"""Which messages a view of each kind may be sent, and which a kernel may be sent."""

from __future__ import annotations

from typing import TypeAlias

from divebook.widgets.protocol.conversations import Conversation, ConversationQuery, Sent, SentQuery
from divebook.widgets.protocol.files import Files, FilesQuery, TakingOver
from divebook.widgets.protocol.questions import AnswerGiven, Inbox, InboxDelta, Offer
from divebook.widgets.protocol.replay import (
    EventAnswer,
    EventRange,
    EventRequest,
    EventsAnswer,
    GoTo,
    PictureQuery,
    SaidAnswer,
    SaidQuery,
    StateAnswer,
    StateRequest,
    StoodAt,
)
from divebook.widgets.protocol.run import Delta, Welcome
from divebook.widgets.protocol.runs import RunsPage, RunsQuery, RunsWish
from divebook.widgets.protocol.spans import Detail, DetailRequest, Range, RangeAnswer
from divebook.widgets.protocol.variables import VariableQuery, Variables
from divebook.widgets.protocol.views import Ack, Alive, Bundle, BundleQuery, Bye, Hello, Hosted, Steering

ToBrowser: TypeAlias = Welcome | Delta | RangeAnswer | Detail | Conversation | Sent | Variables | Files | Bundle | Ack
InboxToBrowser: TypeAlias = Inbox | InboxDelta | Ack
OfferToBrowser: TypeAlias = Offer | Ack
RunsToBrowser: TypeAlias = RunsPage | Ack
PictureToBrowser: TypeAlias = Welcome | Bundle
ReplayToBrowser: TypeAlias = StateAnswer | EventAnswer | EventsAnswer | SaidAnswer | GoTo | PictureToBrowser
Present: TypeAlias = VariableQuery | FilesQuery
Lookup: TypeAlias = Range | DetailRequest | ConversationQuery | SentQuery | Present | BundleQuery | RunsQuery
ReplayToKernel: TypeAlias = StateRequest | EventRequest | EventRange | SaidQuery | StoodAt | PictureQuery | BundleQuery
ToKernel: TypeAlias = (
    Hello | Alive | Hosted | Bye | Lookup | AnswerGiven | Steering | RunsWish | TakingOver | ReplayToKernel
)
