"""One thing done with many executions: what fails for one of them is said in its row, and the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from divebook.config.changed_words import pairs
from divebook.environment import Environment
from divebook.errors import DivebookError
from divebook.execution.annotating import annotation
from divebook.execution.execution import Execution

Verb: TypeAlias = Callable[[Environment, str], object]
"""Does it with one execution, by its id; an execution that it returns goes on, or came of it, and may be another."""


@dataclass(frozen=True, slots=True)
class Handled:
    """What became of one of them."""

    execution_id: str
    before: str = ""
    """Its status before; empty where the store has no such execution."""
    status: str = ""
    """The status of what came of it."""
    made: str = ""
    """The execution that came of it, where that is another one."""
    error: DivebookError | None = None
    """Why nothing was done."""


def annotating(
    *, note: str | None = None, labels: Iterable[str] = (), tags: Iterable[str] = (), untag: Iterable[str] = ()
) -> Verb:
    """Return what says something of each; raises where that can be said of none. Labels are written NAME=VALUE."""
    told = pairs("--label", labels, "--label quality=good")
    annotation(tags=tags, untagged=untag, note=note, labels=told)
    return lambda environment, name: environment.annotate(name, note=note, labels=told, tags=tags, untag=untag)


def handle_each(
    environment: Environment, execution_ids: Iterable[str], verb: Verb, *, wait: bool = True, dry_run: bool = False
) -> list[Handled]:
    """Do one thing with each of them, and return a row for each.

    Parameters
    ----------
    wait
        Whether what goes on is waited for, once it was done with all.
    dry_run
        Only find out which they are.
    """
    begun = [_begun(environment, name, verb, dry_run=dry_run) for name in dict.fromkeys(execution_ids)]
    return [_ended(row, found, wait=wait) for row, found in begun]


def _begun(environment: Environment, name: str, verb: Verb, *, dry_run: bool) -> tuple[Handled, Execution | None]:
    whole_id, before = name, ""
    try:
        whole_id = environment.store.resolve(name)
        before = environment.store.record(whole_id).status
        result = None if dry_run else verb(environment, whole_id)
    except DivebookError as error:
        return Handled(whole_id, before, before, error=error), None
    found = result if isinstance(result, Execution) else None
    made = found.id if found is not None and found.id != whole_id else ""
    return Handled(whole_id, before, before, made), found


def _ended(row: Handled, found: Execution | None, *, wait: bool) -> Handled:
    if found is None:
        return row
    try:
        status = (found.wait() if wait and found.is_live else found).status
    except DivebookError as error:
        return Handled(row.execution_id, row.before, found.status, row.made, error)
    return Handled(row.execution_id, row.before, status, row.made)
