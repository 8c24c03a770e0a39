"""What our loggers are told has no secret in it, whichever handler hears of it."""

import logging
from pathlib import Path

import divebook
from divebook.text.redaction import clean_libraries, logger

MARKED = "sk" + "-proj-" + "Ab3" * 16


def test_no_secret_is_logged_in_a_message_its_arguments_or_a_traceback(caplog):
    log = logger("divebook.test_logs")
    try:
        int(f"the key is {MARKED}")
    except ValueError:
        log.exception("it failed with %s", MARKED)
    assert "it failed with [redacted]" in caplog.text
    assert "Traceback" in caplog.text
    assert MARKED not in caplog.text


def test_loggers_of_a_library_leave_secrets_out_at_each_level(caplog):
    below = logging.getLogger("some_library.part.of_it")
    clean_libraries("some_library")
    below.warning("it sends %s", MARKED)
    assert "it sends [redacted]" in caplog.text
    assert MARKED not in caplog.text


def test_every_logger_of_ours_leaves_secrets_out():
    package = Path(divebook.__file__).parent
    naming = [file.relative_to(package).as_posix() for file in package.rglob("*.py") if "getLogger" in file.read_text()]
    assert naming == ["text/redaction.py"]
