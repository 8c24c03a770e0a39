"""The data of a run in its output: ``application/vnd.divebook.run+json``, beside the text and HTML that everybody sees.

It holds what stepping through the run needs (definition, events, states, questions and answers, the header's numbers),
so that the notebook alone replays it: in JupyterLab by the extension that comes with divebook, in Python by
`divebook.open_notebook`. It is at most 256 kB; of larger runs long texts are cut first, then a sample of the events is
kept, with all failures and questions, and it always says where the whole log is. Secrets are left out as
`divebook.text.redaction` says. It is
switched off by ``DIVEBOOK_NOTEBOOK_DATA=off``, by ``NotebookData: off`` in a definition's ``Config``, or for one run by
``%dive run --no-data``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from divebook.errors import NotFoundError
from divebook.events import Event
from divebook.execution.execution import Execution
from divebook.text.secret_names import looks_secret
from divebook.widgets.saved import MIME, saved_run
from divebook.workflow.definition import Config
from divebook.workflow.resources import NOTEBOOK_DATA

VARIABLE = "DIVEBOOK_NOTEBOOK_DATA"
ON, OFF = NOTEBOOK_DATA


def data_of(
    execution: Execution, log: Sequence[Event], config: Config, *, next_step: str = "", wanted: bool | None = None
) -> dict[str, Any]:
    """Return the data of a run by its type, or nothing if that is switched off; `wanted` overrides the settings."""
    if wanted is False or (wanted is None and _said(config) == OFF):
        return {}
    if execution.damage is not None or not execution.state.last_sequence:
        return {}
    return {MIME: saved_run(execution, log, sent_secrets(config), next_step=next_step)}


def _said(config: Config) -> str:
    said = os.environ.get(VARIABLE) or config.notebook_data or ON
    if said not in NOTEBOOK_DATA:
        raise NotFoundError("setting for notebook data", said, NOTEBOOK_DATA, f"{VARIABLE} cannot be {said!r}")
    return said


def sent_secrets(config: Config) -> Iterator[str]:
    """Return what providers are sent under names that look secret."""
    for provider in config.providers:
        for name, values in provider.request_headers.items():
            if looks_secret(name):
                yield from values
