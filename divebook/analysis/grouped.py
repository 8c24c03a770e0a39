"""For every row of a table: the latest one before it of its group that has some mark, and how many there are."""

from __future__ import annotations

import numpy as np

from divebook.store.pages import Numbers

NONE = -1
"""Stands for no row."""
ROW = np.int32
"""What rows are numbered with: a log of a million events has a dozen such columns while its frame is made."""


def none(length: int) -> Numbers:
    """Return no row for so many, which takes no room."""
    return np.broadcast_to(ROW(NONE), length)


def latest(groups: Numbers, flags: Numbers) -> Numbers:
    """Return, for each row, the latest row up to it that is flagged and in the same group; NONE without one."""
    if not flags.any():
        return none(len(groups))
    order = np.argsort(groups, kind="stable")
    place = np.arange(len(order), dtype=ROW)
    start = np.maximum.accumulate(np.where(_begins(groups[order]), place, ROW(0)))
    flagged = np.maximum.accumulate(np.where(flags[order], place, ROW(NONE)))
    found = np.empty(len(order), dtype=ROW)
    found[order] = np.where(flagged >= start, order[flagged], NONE)
    return found


def counted(groups: Numbers, flags: Numbers) -> Numbers:
    """Return, for each row, how many of its group are flagged up to it."""
    order = np.argsort(groups, kind="stable")
    counts = np.empty(len(order), dtype=np.int64)
    sums = np.cumsum(flags[order])
    begins = _begins(groups[order])
    before = np.where(begins, sums - flags[order], 0)
    counts[order] = sums - np.maximum.accumulate(before) if len(order) else sums
    return counts


def since(groups: Numbers, flags: Numbers, begun: Numbers) -> Numbers:
    """Return how many of the group of each row are flagged after the row in which something began."""
    if not flags.any():
        return np.zeros(len(groups), dtype=np.int64)
    counts = counted(groups, flags)
    return np.where(begun == NONE, 0, counts - counts[begun])


def _begins(groups: Numbers) -> Numbers:
    """Return where another group begins, of rows in the order of their groups."""
    return np.concatenate([np.ones(min(len(groups), 1), dtype=bool), groups[1:] != groups[:-1]])
