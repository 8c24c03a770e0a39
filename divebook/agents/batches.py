"""An agent's requests as a batch of its provider: submitted, looked at, collected, each without a loop of calls.

A batch is half the price and takes up to a day. Its handle is plain data, with which any process asks for it. OpenAI
lists the batches that it has, with the requests that went in: one whose submission broke off is found again there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pydantic_ai
from pydantic import TypeAdapter
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelHTTPError,
    ModelQuotaExceededError,
    UnexpectedModelBehavior,
    UserError,
)
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest
from pydantic_ai.models.wrapper import WrapperModel

from divebook.agents.batch_answers import (
    AGAIN,
    JOB_ERROR,
    TOO_MANY,
    UNREADABLE,
    is_hidden,
    is_lost,
    passes,
    result_in,
    told_of,
)
from divebook.agents.batch_models import AnsweringModel, AskedForError, AskingModel
from divebook.agents.durable import Request, resolved
from divebook.agents.failures import make_keepable
from divebook.agents.output import output_type
from divebook.agents.prices import estimate, tokens_of, tokens_of_definitions
from divebook.agents.wire import plain_response, plainly, settings_of, usage_of
from divebook.engine.operations import Reserved
from divebook.engine.retries import names_of
from divebook.errors import OutcomeUnknownError, StepError
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from divebook.agents.agent import Agent

_HANDLE = TypeAdapter(Batch)
_BEFORE = timedelta(hours=1)
"""How far the clock of a provider may be behind ours."""


class BatchAnswer(NamedTuple):
    """What became of one request of a batch."""

    value: Any
    error: str | None
    usage: Mapping[str, int]


class NotNow(NamedTuple):
    """A batch was not submitted, and a later time may succeed."""

    seconds: float
    """How long the provider wants nobody to ask."""
    why: str
    may_exist: bool
    """Whether it may have been made all the same."""


class AgentBatches:
    """The batches of one agent: what all of its requests have alike, and its provider.

    Parameters
    ----------
    instructions
        The system prompt of all requests.
    output
        What it answers with: None for text, a type, or a JSON schema.
    """

    def __init__(self, agent: Agent, model: Model, instructions: str, output: Any) -> None:
        self._agent, self._model, self._instructions = agent, model, instructions
        self._settings = settings_of(agent.definition)
        self._settings.pop("timeout")  # a batch takes up to a day
        self._parameters = ModelRequestParameters()
        self._finds: bool | None = None
        self._answering = None if output is None else pydantic_ai.Agent(output_type=output_type(output), retries=0)

    @classmethod
    async def of(cls, agent: Agent, instructions: str, output: Any) -> AgentBatches:
        """Return the batches of an agent.

        Raises
        ------
        StepError
            Its model has no batch API.
        """
        model = await resolved(agent)
        if model.batch_max_requests is None:
            raise StepError(
                f"the model of agent {agent.name}, {agent.model_name}, has no batch API: name another Model, such as "
                "openai:gpt-5-mini, or leave out batch=True, so that each row is a request of its own"
            )
        made = cls(agent, model, instructions, output)
        if made._answering is not None:
            asking = AskingModel(model)
            with suppress(AskedForError):
                await made._answering.run("", model=asking)
            made._parameters = asking.parameters or made._parameters
        return made

    async def finds(self) -> bool:
        """Return whether the provider tells which batches it has, and of what: not to keys that may not list them.

        While it cannot be reached that is not known, and it is taken for one that does: it is asked before anything
        is submitted.
        """
        if self._model.system != "openai" or not hasattr(_innermost(self._model), "client"):
            return False
        if self._finds is None:
            try:
                await self._listed(1).__anext__()
            except StopAsyncIteration:
                pass
            except ModelAPIError as error:
                if not is_hidden(error):
                    return True
                self._finds = False
                return False
            self._finds = True
        return self._finds

    async def fitting(self, prompts: Mapping[str, str], most: int) -> list[EncodedBatchRequest]:
        """Return the first prompts, by the id of each, as requests of one batch: as many as the provider takes.

        Raises
        ------
        StepError
            The agent has a setting that no batch can have, or one prompt is larger than a batch.
        """
        most, left = min(most, self._model.batch_max_requests or most), self._model.batch_max_bytes
        found: list[EncodedBatchRequest] = []
        for custom_id, prompt in prompts.items():
            try:
                encoded = await self._model.batch_encode(self._request(custom_id, prompt))
            except UserError as error:
                raise StepError(f"agent {self._agent.name} cannot be asked in a batch: {error}") from error
            size = self._model.batch_request_size(encoded)
            if len(found) == most or (left is not None and size > left):
                break
            found.append(encoded)
            left = None if left is None else left - size
        return found

    def reserved(self, prompts: Sequence[str]) -> Reserved:
        """Return what requests may consume at most; half of it is the price of a batch, and is not counted on."""
        total = Reserved()
        for prompt in prompts:
            written = sum(map(tokens_of, self._messages(prompt))) + tokens_of_definitions(self._parameters)
            total = total.plus(estimate(self._model, written, self._settings))
        return total

    async def submit(
        self,
        requests: Sequence[EncodedBatchRequest],
        since: datetime,
        others: Collection[str],
        *,
        may_exist: bool,
        leaves_unknown: Callable[[BaseException], bool],
    ) -> dict[str, Any] | NotNow:
        """Submit requests as one batch, unless the provider has it; return its handle, or when to do so again.

        Parameters
        ----------
        since, others
            Since when the provider may have it, and the ids of batches that it is not.
        may_exist
            An earlier submission may have made it.
        leaves_unknown
            Tells of an error whether what was sent may have come through.

        Raises
        ------
        OutcomeUnknownError
            The batch may have been made, and the provider does not tell.
        """
        finds, has_asked = await self.finds(), False
        try:
            if finds and (known := await self._found(requests, since, others)) is not None:
                return known
            if may_exist and not finds:
                raise OutcomeUnknownError(
                    "the provider did not say whether it has the batch, and does not list those it has"
                )
            has_asked = True
            return _plain(await self._model.batch_create(requests))
        except ModelAPIError as error:
            make_keepable(error)
            if finds and not has_asked and is_hidden(error):
                self._finds = False
                return NotNow(0, told_of(error), may_exist=may_exist)
            if not passes(error) or isinstance(error, ModelQuotaExceededError):
                raise
            if has_asked:
                is_refused = isinstance(error, ModelHTTPError) and error.status_code == TOO_MANY
                may_exist = not is_refused and (isinstance(error, ModelHTTPError) or leaves_unknown(error))
            if has_asked and may_exist and not finds:
                raise OutcomeUnknownError(f"the provider did not say whether it has the batch: {error}") from error
            return NotNow(error.retry_after or 0, told_of(error), may_exist=may_exist)
        except UNREADABLE as error:
            if not finds:
                raise OutcomeUnknownError(f"what came in place of a batch cannot be read: {told_of(error)}") from error
            return NotNow(0, told_of(error), may_exist=has_asked or may_exist)

    async def _found(
        self, requests: Sequence[EncodedBatchRequest], since: datetime, others: Collection[str]
    ) -> dict[str, Any] | None:
        """Return the handle of the batch of these requests, if the provider has one that is none of the others."""
        async for known in self._listed(100):
            if known.created_at < (since - _BEFORE).timestamp():
                break
            if known.id in others:
                continue
            with self._told_alike():
                text = (await _innermost(self._model).client.files.content(known.input_file_id)).text
            if f'"custom_id":"{requests[0].custom_id}"' in text.partition("\n")[0]:
                return self.handle(known.id, requests, since, input_file_id=known.input_file_id)
        return None

    async def _listed(self, at_once: int) -> AsyncIterator[Any]:
        """Give the batches that the provider has, the latest first."""
        with self._told_alike():
            async for known in _innermost(self._model).client.batches.list(limit=at_once):
                yield known

    @contextmanager
    def _told_alike(self) -> Iterator[None]:
        """Raise errors of the client, which is asked itself here, as its model raises them."""
        try:
            yield
        except Exception as error:
            name, status = self._model.model_name, getattr(error, "status_code", None)
            if isinstance(status, int):
                headers = dict(getattr(getattr(error, "response", None), "headers", None) or {})
                raise ModelHTTPError(status, name, getattr(error, "body", None), headers=headers) from error
            if "APIError" in names_of(error):  # the connection failed
                raise ModelAPIError(name, str(error)) from error
            raise

    def handle(self, name: str, requests: Sequence[EncodedBatchRequest], at: datetime, **told: str) -> dict[str, Any]:
        """Return the handle of a batch of which only the provider's id is known."""
        details = {"status": "in_progress", **told}
        model, group = self._model, requests[0].group
        made = Batch(
            id=name,
            model_name=model.model_name,
            provider_name=model.system,
            group=group,
            status="in_progress",
            created_at=at,
            request_count=len(requests),
            provider_details=details,
        )
        return _plain(made)

    async def looked_at(self, handle: Mapping[str, Any]) -> dict[str, Any]:
        """Return the handle of a batch as it is now; while the provider cannot be reached, as it was.

        Of one that it does not know any more the handle is ended, and says so under ``lost``.
        """
        try:
            return _plain(await self._model.batch_status(_HANDLE.validate_python(handle)))
        except ModelAPIError as error:
            make_keepable(error)
            if passes(error):
                return dict(handle)
            if not is_lost(error):
                raise
            return {**handle, "status": "ended", "lost": told_of(error)}
        except UNREADABLE:  # a page of what stands between, say
            return dict(handle)

    async def cancel(self, handle: Mapping[str, Any] | None) -> None:
        """Have the provider end a batch, as far as it does; what it has answered by then is paid for."""
        if handle is not None and handle["status"] == "in_progress":
            with suppress(ModelAPIError, NotImplementedError, *UNREADABLE):  # it may have ended, or there is no way
                await self._model.batch_cancel(_HANDLE.validate_python(handle))

    async def answers(
        self, handle: Mapping[str, Any], names: Sequence[str], *, is_last: bool
    ) -> dict[str, BatchAnswer] | None:
        """Return what became of the requests of a batch that has ended, by their ids; None if it cannot be had now.

        Parameters
        ----------
        is_last
            It will not be asked for again: what cannot be read is then an error of each request.
        """
        name = handle["id"]
        if "lost" in handle:
            return self._without(names, f"batch {name} cannot be had from its provider ({handle['lost']})")
        try:
            given = await self._model.batch_results(_HANDLE.validate_python(handle))
        except ModelAPIError as error:
            make_keepable(error)
            is_of_batch = type(error).__name__ == JOB_ERROR
            if passes(error) and not is_of_batch:
                return None
            if not is_of_batch and not is_lost(error):
                raise
            return self._without(names, f"batch {name} has no results ({told_of(error)})")
        except UNREADABLE as error:
            given = await self._readable(handle)
            if not given and not is_last:
                return None
            if not given:
                return self._without(names, f"the results of batch {name} cannot be read ({told_of(error)})")
        found = {result.custom_id: result for result in given}
        missing = self._without(names, f"batch {name} has no result of this row that can be read")
        return {each: await self._answer(found[each], name) if each in found else missing[each] for each in names}

    def _without(self, names: Sequence[str], why: str) -> dict[str, BatchAnswer]:
        told = BatchAnswer(None, f"StepError: {why}: look for it at {self._model.system}; {AGAIN}", {})
        return dict.fromkeys(names, told)

    async def _readable(self, handle: Mapping[str, Any]) -> list[BatchResult]:
        """Return the results of OpenAI's that can be read, one line at a time; of others none."""
        details = handle.get("provider_details") or {}
        files = getattr(getattr(_innermost(self._model), "client", None), "files", None)
        found: list[BatchResult] = []
        for file_id in filter(None, (details.get("output_file_id"), details.get("error_file_id"))):
            try:
                with self._told_alike():
                    text = (await files.content(file_id)).text if files is not None else ""
            except (ModelAPIError, *UNREADABLE):
                continue
            found += filter(None, map(result_in, text.splitlines()))
        return found

    async def _answer(self, result: BatchResult, batch: str) -> BatchAnswer:
        usage: Mapping[str, int] = {}
        try:
            response = self._model.batch_decode(result, self._request(result.custom_id, ""))
            usage = usage_of(plain_response(response, self._model))
            if self._answering is not None:
                answer = await self._answering.run("", model=AnsweringModel(self._model, response))
                return BatchAnswer(plainly(answer.output), None, usage)
        except (ModelAPIError, UnexpectedModelBehavior) as error:
            return BatchAnswer(None, shared().text(f"{type(error).__name__}: {error}"), usage)
        except Exception as error:  # noqa: BLE001 - one line is not to cost what the others gave
            told = f"StepError: what batch {batch} gave for it cannot be read ({told_of(error)}); {AGAIN}"
            return BatchAnswer(None, told, usage)
        if not response.text:
            return BatchAnswer(None, f"StepError: the model answered without text ({response.finish_reason})", usage)
        return BatchAnswer(response.text, None, usage)

    def _request(self, custom_id: str, prompt: str) -> BatchRequest:
        return BatchRequest(
            custom_id=custom_id,
            messages=self._messages(prompt),
            model_settings=self._settings,
            model_request_parameters=self._parameters,
        )

    def _messages(self, prompt: str) -> list[ModelMessage]:
        return Request(prompt, (), (), self._instructions).messages()


def _innermost(model: Model) -> Any:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _plain(handle: Batch) -> dict[str, Any]:
    told: dict[str, Any] = _HANDLE.dump_python(handle, mode="json")
    return told
