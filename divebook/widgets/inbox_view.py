"""The inbox's widget: the questions of all executions over one store as cards."""

from __future__ import annotations

from divebook.widgets.following import FollowingView
from divebook.widgets.inbox_line import InboxFollower


class InboxView(InboxFollower, FollowingView):
    """Shows what waits for an answer in a cell, and takes answers."""

    bundle = "inbox"
