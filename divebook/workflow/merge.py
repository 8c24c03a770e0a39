"""Two sets of definitions become one.

The later one wins: texts if they are given, named items whole (never field by field). The order of first appearance
stays, because it decides which agent is the default one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from typing import Any, Protocol, TypeVar

from divebook.workflow.approvals import ApprovalRule
from divebook.workflow.definition import Config, Definitions


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item", bound=_Named)
LISTS = ("tools", "documents", "agents", "workflows", "pipelines", "triggers", "schedules", "mcp_servers", "workspaces")
TEXTS = ("name", "description", "version")


def merge_all(parts: Iterable[Definitions]) -> Definitions:
    """Return all parts merged from left to right."""
    return reduce(merge, parts, Definitions())


def merge(left: Definitions, right: Definitions) -> Definitions:
    """Return both in one; what `right` says wins. Positions are dropped: they would belong to several texts."""
    lists: Mapping[str, Any] = {name: merge_named(getattr(left, name), getattr(right, name)) for name in LISTS}
    texts: Mapping[str, Any] = {name: getattr(right, name) or getattr(left, name) for name in TEXTS}
    warnings = (*left.warnings, *right.warnings)
    config, is_text = merge_config(left.config, right.config), left.is_text or right.is_text
    return Definitions(**texts, **lists, config=config, warnings=warnings, is_text=is_text)


def merge_config(left: Config, right: Config) -> Config:
    """Return the settings of both; every setting that `right` gives wins, the confirmation mode too.

    Of rules for approvals all hold, so that none which asks or denies is lost.
    """
    given = {entry.name: getattr(right, entry.name) for entry in fields(right) if getattr(right, entry.name)}
    approvals = (*left.approvals, *unknown(right.approvals, left.approvals))
    both = {"providers": merge_named(left.providers, right.providers), "approvals": approvals}
    return replace(left, **{**given, **both})


def unknown(rules: Iterable[ApprovalRule], known: Sequence[ApprovalRule]) -> list[ApprovalRule]:
    """Return the rules that are not among others; equal ones may differ in what they mean (``1`` and ``True``)."""
    return [rule for rule in rules if all(rule is not other for other in known)]


def merge_named(left: Iterable[Item], right: Iterable[Item]) -> tuple[Item, ...]:
    """Return the items of both; one of the same name takes the place of the earlier one."""
    items = {item.name: item for item in left}
    items.update({item.name: item for item in right})
    return tuple(items.values())
