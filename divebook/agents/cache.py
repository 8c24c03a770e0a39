"""Response cache of agents with a `Cache`, shared by all runs, and the ``recorded:RUN`` source of responses.

The cache is not a source of truth. A response taken from it is recorded completely in the run, and a replay does not
read the cache. An entry that cannot be read is treated as missing.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from divebook.agents.models import RECORDED
from divebook.errors import DivebookError, SetupError, StepError
from divebook.events.codec import canonical_hash
from divebook.events.recorded import opened
from divebook.store.encryption import Sealing
from divebook.text.format import parse_duration
from divebook.text.redaction import logger, one_line

if TYPE_CHECKING:
    from divebook.agents.request_record import RequestToSend
    from divebook.projections.model_requests import RequestView
    from divebook.store import EventStore


ENDING = ".response"
MOST_BYTES = 256 * 1024 * 1024
"""Maximum size of all responses in one folder. The oldest are deleted first."""
PRUNED_EVERY = 64
"""Number of written responses between two scans of the whole folder. A scan takes longer the more the folder holds."""
WHOLE = ("stop", "tool_call")
"""Finish reasons of complete responses."""
_log = logger(__name__)


def lasting(written: str | float) -> float:
    """Parse a cache duration; return seconds.

    Raises
    ------
    SetupError
        The text is not a duration, or the duration is not positive.
    """
    try:
        seconds = parse_duration(written)
    except (ValueError, OverflowError) as error:
        raise SetupError(f"Cache is a time such as 7d or 12h, not {written!r}", ("Cache",)) from error
    if seconds <= 0:
        raise SetupError(f"Cache is a time of more than nothing, not {written!r}; leave it out for none", ("Cache",))
    return seconds


class ResponseCache:
    """Responses by the digest of their requests.

    Parameters
    ----------
    folder
        Folder of the files, readable by its owner only. None keeps responses in memory of this process.
    sealing
        Encryption that the store next to it uses.
    """

    def __init__(self, folder: Path | None, sealing: Sealing, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._sealing = sealing
        self._clock = clock
        self._held: dict[str, bytes] = {}
        self._written = 0

    def find(self, digest: str, seconds: float) -> dict[str, Any] | None:
        """Return a response that is at most this many seconds old; None if there is none."""
        try:
            written = self._read(digest)
            if written is None:
                return None
            entry = json.loads(self._sealing.open_packed(written))
            # The lower limit rejects entries from the future, which a changed clock leaves behind.
            return entry["response"] if 0 <= self._clock() - entry["at"] < seconds else None
        except (OSError, ValueError, KeyError, TypeError, DivebookError) as error:
            _log.warning("a cached response cannot be read, and the model is asked instead: %s", error)
            return None

    def keep(self, digest: str, response: Mapping[str, Any], seconds: float) -> None:
        """Store a response. `prune` deletes it after this many seconds."""
        at = self._clock()
        written = self._sealing.seal_packed(json.dumps({"at": at, "response": response}).encode())
        if self.folder is None:
            self._held[digest] = written
            return
        # The cache is an optimization: a full disk must not fail the turn whose response is paid for already.
        try:
            self._write(self.folder, digest, written, at + seconds)
            self._written += 1
            if self._written % PRUNED_EVERY == 0:
                self.prune()
        except OSError as error:
            _log.warning("a response cannot be kept in %s, and is asked for again next time: %s", self.folder, error)

    def _read(self, digest: str) -> bytes | None:
        if self.folder is None:
            return self._held.get(digest)
        with suppress(FileNotFoundError):
            return (self.folder / f"{digest}{ENDING}").read_bytes()
        return None

    @staticmethod
    def _write(folder: Path, digest: str, content: bytes, until: float) -> None:
        """Write a file atomically. Its modification time is the time at which it expires."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder)  # creates the file with mode 0600
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.utime(name, (until, until))
            Path(name).replace(folder / f"{digest}{ENDING}")
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise

    def prune(self) -> int:
        """Delete expired responses, then the oldest ones while the total is too large; return how many were deleted."""
        now = self._clock()
        total = 0
        deleted = 0
        # Sorted by expiry, latest first: what exceeds the limit is what would expire soonest.
        for until, size, path in sorted(self._files(), reverse=True):
            total += size
            if until <= now or total > MOST_BYTES:
                with suppress(OSError):
                    path.unlink()
                    deleted += 1
        return deleted

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.glob(f"*{ENDING}"):
            with suppress(OSError):
                status = path.stat()
                yield status.st_mtime, status.st_size, path


def cache_of(store: EventStore, clock: Callable[[], float] = time.time) -> ResponseCache:
    """Return the cache of a store: a folder next to its file, or memory of this process if the store has no file."""
    path = getattr(store, "path", None)
    folder = path.with_name(f"{path.name}.cache") if isinstance(path, Path) else None
    return ResponseCache(folder, store.sealing, clock)


class Cached:
    """View of the cache for one agent with its maximum age. Files are read and written in a thread."""

    def __init__(self, cache: ResponseCache, seconds: float) -> None:
        self._cache = cache
        self._seconds = seconds

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the cached response to a request; None if there is none."""
        return await anyio.to_thread.run_sync(self._cache.find, sent.digest, self._seconds)

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Store a response unless it was cut off or refused."""
        if response.get("finish_reason") in (None, *WHOLE):
            await anyio.to_thread.run_sync(self._cache.keep, sent.digest, response, self._seconds)


# --- recorded runs -------------------------------------------------------------------------------------------------
# With the model ``recorded:RUN``, models answer as they did in that run. All other calls are made again.


MOST_SHOWN = 300
"""Maximum number of characters of a message in an error."""


class Cassette:
    """Recorded responses of a run, for the place of the current turn.

    Parameters
    ----------
    model
        ``recorded:RUN``.
    agent
        Agent of the turn.
    requests
        Requests that the run made at the same place.
    """

    def __init__(self, model: str, agent: str, requests: Sequence[RequestView]) -> None:
        self._run = model.removeprefix(RECORDED)
        self._agent = agent
        self._requests = [request for request in requests if request.agent == agent and request.response is not None]

    async def find(self, sent: RequestToSend) -> Mapping[str, Any]:
        """Return the response that the run recorded for the same request.

        Raises
        ------
        StepError
            The run made another request at this place, or none.
        """
        requests = [request for request in self._requests if request.n == sent.number]
        for request in requests:
            if canonical_hash(_request_messages(request.messages)) == canonical_hash(_request_messages(sent.messages)):
                response: Mapping[str, Any] = opened(request.span.result)
                return response
        at = f"request {sent.number} of agent {self._agent}"
        if not requests:
            raise StepError(
                f"the run {self._run} has no answer to {at} here: it took another way. Give the agent a model for what "
                "is new, or play a run of the same workflow"
            )
        was, now = _first_difference(_request_messages(requests[0].messages), _request_messages(sent.messages))
        raise StepError(
            f"the run {self._run} was asked something else in {at}. It was sent {was}, and now {now}. Put back what "
            "was changed, or give the agent a model for what is new"
        )

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Skip the response: all responses come from the run."""


def _request_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the request messages. The model's own responses between them come from the run itself."""
    return [message for message in messages if message["kind"] == "request"]


def _first_difference(was: Sequence[Any], now: Sequence[Any]) -> tuple[str, str]:
    """Return the first differing message of two requests, old and new, as text for people."""
    unlike = (place for place, (one, other) in enumerate(zip(was, now, strict=False)) if one != other)
    place = next(unlike, min(len(was), len(now)))
    return _shown(was, place), _shown(now, place)


def _shown(messages: Sequence[Any], place: int) -> str:
    return one_line(str(messages[place]), MOST_SHOWN) if place < len(messages) else "nothing more"
