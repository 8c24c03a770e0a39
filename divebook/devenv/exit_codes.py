"""With what ``dev_env`` ends after an error: what its shell gets and its log says."""

from divebook.errors import (
    CommandFailedError,
    DevEnvError,
    EngineUnavailableError,
    ShellExecutionError,
    ShellTimeoutError,
)

GENERAL = DevEnvError.exit_code
NO_ENGINE = 5
FAILED = CommandFailedError.exit_code
"""A command ran and failed, or could not be started."""


def exit_code_of(error: BaseException) -> int:
    """Return the code of an error."""
    if isinstance(error, DevEnvError):
        return error.exit_code
    if isinstance(error, EngineUnavailableError):
        return NO_ENGINE
    return FAILED if isinstance(error, ShellTimeoutError | ShellExecutionError) else GENERAL
