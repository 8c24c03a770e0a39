"""The dialects in which definitions are written, and what an execution does otherwise in each.

`divebook.workflow` reads a text with the help of `dive`; at run time nothing asks for a dialect, but for the `Manner`
of a workflow.
"""

from __future__ import annotations

from divebook.dialects.manner import MANNERS, OWN, Dialect, Manner

__all__ = ["MANNERS", "OWN", "Dialect", "Manner"]
