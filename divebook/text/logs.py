"""The project's loggers: each record is cleaned of secrets before any handler gets it."""

from __future__ import annotations

import logging

from divebook.text.redaction import shared


def logger(name: str) -> logging.Logger:
    """Return the logger of a module."""
    found = logging.getLogger(name)
    found.addFilter(_without_secrets)
    return found


def clean_libraries(*names: str) -> None:
    """Have the loggers of libraries leave secrets out, once these are loaded, and print nothing where nobody listens.

    A filter holds for what its own logger is told and not for those below it, so that each gets one.
    """
    known = tuple(logging.root.manager.loggerDict)
    for name in names:
        logger(name).addHandler(logging.NullHandler())
        for below in known:
            if below.startswith(f"{name}."):
                logger(below)


def silence(library: str) -> None:
    """Have a library log nothing that anybody hears: what it names is secret as a whole."""
    found = logging.getLogger(library)
    found.propagate = False
    if not found.handlers:
        found.addHandler(logging.NullHandler())


def hand_on(record: logging.LogRecord) -> None:
    """Log here what a logger of another process was told; it was cleaned there if it is one of ours."""
    found = logging.getLogger(record.name)
    if found.isEnabledFor(record.levelno):
        found.handle(record)


def _without_secrets(record: logging.LogRecord) -> bool:
    """Clean a record in place: its message, and the text of its traceback, which formatters take as it is."""
    record.msg, record.args = shared().text(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = shared().text(logging.Formatter().formatException(record.exc_info))
    return True
