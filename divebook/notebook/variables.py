"""Which of a shell's names are the user's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NOTHING = object()


def own_variables(shell: Any) -> Iterator[str]:
    """Yield the names a user has given, newest last: without IPython's own, such as ``In`` and ``exit``."""
    hidden = shell.user_ns_hidden
    for name, value in shell.user_ns.items():
        if not name.startswith("_") and value is not hidden.get(name, _NOTHING):
            yield name
