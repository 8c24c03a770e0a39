"""Sources of model responses that are asked before the model: the response cache, and the recorded responses of an
earlier run.

Agents with a `Cache` share the cache across all runs of a store. Agents with the model ``recorded:RUN`` get the
responses of that run. The cache is not a source of truth: a response from the cache is recorded completely in the run,
and a replay does not read the cache. An entry that cannot be read counts as missing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from divebook.agents.models import RECORDED
from divebook.documents.private_files import replacement
from divebook.errors import DivebookError, SetupError, StepError
from divebook.events.codec import canonical_hash
from divebook.events.recorded import opened
from divebook.stores.codec import Sealing
from divebook.text.arguments import DurationLike, describe, plain_seconds
from divebook.text.ranges import SECONDS
from divebook.text.redaction import logger, one_line

if TYPE_CHECKING:
    from divebook.agents.request_record import RequestToSend
    from divebook.projections.model_requests import RequestView
    from divebook.stores import EventStore


ENDING = ".response"
MOST_BYTES = 256 * 1024 * 1024
"""Maximum size of all responses in one folder. The oldest are deleted first."""
PRUNED_EVERY = 64
"""Number of written responses between two scans of the whole folder. A scan takes longer the more the folder holds."""
WHOLE = ("stop", "tool_call")
"""Finish reasons of complete responses."""
_log = logger(__name__)


def lasting(text: DurationLike) -> float:
    """Parse the lifetime of cached responses, the key ``Cache`` of an agent's definition, such as ``7d``. Return
    seconds.

    Raises
    ------
    SetupError
        The text is not a duration, or the duration is not positive.
    """
    seconds: float = plain_seconds(text)
    if not SECONDS.fits(seconds):
        raise SetupError(f"Cache must be a duration such as 7d or 12h, not {describe(text)}", ("Cache",))
    if seconds <= 0:
        raise SetupError(
            f"Cache must be a duration above 0, not {text!r}; to disable caching, remove Cache", ("Cache",)
        )
    return seconds


class ResponseCache:
    """Response cache of a store. It stores model responses by the hash of their request, in files or in memory.

    Parameters
    ----------
    folder
        Folder of the files, which only its owner can read. With None, responses are stored in the memory of this
        process.
    sealing
        Encryption of the store. The files are encrypted in the same way.
    """

    def __init__(self, folder: Path | None, sealing: Sealing, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self._sealing = sealing
        self._clock = clock
        self._in_memory: dict[str, bytes] = {}
        self._write_count = 0

    def find(self, digest: str, seconds: float) -> dict[str, Any] | None:
        """Return the cached response to the model request with this hash. Return None if the cache has no such
        response, or if the response is older than `seconds` or cannot be read.
        """
        try:
            content = self._read(digest)
            if content is None:
                return None
            # {"at": seconds since 1970, "response": recorded response}, packed, and encrypted if the store is.
            entry = json.loads(self._sealing.open_packed(content))
            # The lower limit rejects entries from the future, which a changed clock leaves behind.
            return entry["response"] if 0 <= self._clock() - entry["at"] < seconds else None
        except (OSError, ValueError, KeyError, TypeError, DivebookError) as error:
            _log.warning("a cached response cannot be read, so the request is sent to the model: %s", error)
            return None

    def keep(self, digest: str, response: Mapping[str, Any], seconds: float) -> None:
        """Store the response to the model request with this hash. After `seconds`, `prune` deletes the response."""
        now = self._clock()
        content = self._sealing.seal_packed(json.dumps({"at": now, "response": response}).encode())
        if self.folder is None:
            self._in_memory[digest] = content
            return
        # The cache is an optimization: a full disk must not fail the turn whose response is paid for already.
        try:
            self._write(self.folder, digest, content, now + seconds)
            self._write_count += 1
            if self._write_count % PRUNED_EVERY == 0:
                self.prune()
        except OSError as error:
            _log.warning(
                "a response cannot be stored in the cache folder %s, so the next run sends the request again: %s",
                self.folder,
                error,
            )

    def _read(self, digest: str) -> bytes | None:
        if self.folder is None:
            return self._in_memory.get(digest)
        with suppress(FileNotFoundError):
            return (self.folder / f"{digest}{ENDING}").read_bytes()
        return None

    @staticmethod
    def _write(folder: Path, digest: str, content: bytes, until: float) -> None:
        """Write the file of a response atomically. The modification time of the file is set to the time at which the
        response expires.
        """
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacement(folder / f"{digest}{ENDING}") as file:
            file.write(content)
            # A later write would set the time again.
            file.flush()
            # `prune` sorts by this time, so it need not open and decrypt the files.
            os.utime(file.fileno(), (until, until))

    def prune(self) -> int:
        """Delete the files of expired responses. If the remaining files exceed the size limit of the cache, also delete
        the responses that expire first. Return the number of deleted files.
        """
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
    """Create the response cache of a store: in a folder next to the store's file, or in memory if the store is not a
    file.
    """
    path = getattr(store, "path", None)
    folder = path.with_name(f"{path.name}.cache") if isinstance(path, Path) else None
    return ResponseCache(folder, store.sealing, clock)


class Cached:
    """Response source of one agent that reads and writes the response cache of the store. Files are accessed in a
    thread.
    """

    def __init__(self, cache: ResponseCache, seconds: float) -> None:
        self._cache = cache
        self._seconds = seconds

    async def find(self, sent: RequestToSend) -> Mapping[str, Any] | None:
        """Return the cached response to a request. Return None if the cache has none that is recent enough for the
        agent.
        """
        return await anyio.to_thread.run_sync(self._cache.find, sent.digest, self._seconds)

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Store the response to a request in the cache. A response that was cut off, or filtered by the provider, is
        not stored.
        """
        # None: some providers send no finish reason.
        if response.get("finish_reason") in (None, *WHOLE):
            await anyio.to_thread.run_sync(self._cache.keep, sent.digest, response, self._seconds)


# --- recorded runs -------------------------------------------------------------------------------------------------
# With the model ``recorded:RUN``, models answer as they did in that run. All other calls are made again.


MOST_SHOWN = 300
"""Maximum number of characters of a message in an error."""


class Cassette:
    """Response source for the model ``recorded:RUN``: returns the responses that the run RUN recorded at the same place
    of the workflow.

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
        """Return the response that the earlier run recorded for an equal request at the same place.

        Raises
        ------
        StepError
            The earlier run made a different request at this place, or none.
        """
        # Requests are matched by their number in the turn, then by their messages. A retried request has the same
        # number. Settings and tools are not compared.
        requests = [request for request in self._requests if request.n == sent.number]
        for request in requests:
            if canonical_hash(_request_messages(request.messages)) == canonical_hash(_request_messages(sent.messages)):
                response: Mapping[str, Any] = opened(request.span.result)
                return response
        place = f"request {sent.number} of agent {self._agent}"
        if not requests:
            raise StepError(
                f"the recorded run {self._run} has no response to {place} at this point, because that run took another "
                "path. Give the agent a model for new requests, or use the responses of a run of the same workflow"
            )
        recorded_messages = _request_messages(requests[0].messages)
        old, new = _first_difference(recorded_messages, _request_messages(sent.messages))
        raise StepError(
            f"the recorded run {self._run} has a different {place}. That run sent {old}, and this run sends {new}. "
            "Undo the change, or give the agent a model for the new request"
        )

    async def keep(self, sent: RequestToSend, response: Mapping[str, Any]) -> None:
        """Return without storing the response: all responses come from the earlier run, which is not changed."""


def _request_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return only the messages that were sent to the model, without its responses. Responses come from the earlier run
    itself and need no comparison.
    """
    return [message for message in messages if message["kind"] == "request"]


def _first_difference(old_messages: Sequence[Any], new_messages: Sequence[Any]) -> tuple[str, str]:
    """Find the first message that differs between a recorded and a current request. Return its recorded and its current
    version as texts for people.
    """
    # If one list begins with the other, the difference is the first additional message.
    differing = (place for place, (old, new) in enumerate(zip(old_messages, new_messages, strict=False)) if old != new)
    place = next(differing, min(len(old_messages), len(new_messages)))
    return _shown(old_messages, place), _shown(new_messages, place)


def _shown(messages: Sequence[Any], place: int) -> str:
    return one_line(str(messages[place]), MOST_SHOWN) if place < len(messages) else "nothing more"
