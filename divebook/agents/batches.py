"""An agent's requests as a batch of its provider: submitted, looked at, collected, each without a loop of calls.

A batch is half the price and takes up to a day. Its handle is plain data, with which any process asks for it. OpenAI
lists the batches that it has, with the requests that went in: one whose submission broke off is found again there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pydantic_ai
from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.durable import Request, resolved
from divebook.agents.failures import make_keepable
from divebook.agents.output import output_type
from divebook.agents.prices import estimate, tokens_of, tokens_of_definitions
from divebook.agents.wire import plain_response, plainly, settings_of, usage_of
from divebook.engine.operations import Reserved
from divebook.errors import OutcomeUnknownError, StepError
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from divebook.agents.agent import Agent

_HANDLE = TypeAdapter(Batch)
_REFUSED = range(400, 500)
"""What a provider answers that has made nothing of a request."""
MOST_REFUSALS, FIRST_REFUSAL, LONGEST_REFUSAL = 8, 0.5, 60.0
"""How often a batch is submitted again that a provider takes later (429), and the seconds in between: they double."""
LOST = "lost"
"""What a batch is called of which the provider says that there is none."""
_BEFORE = timedelta(hours=1)
"""How far the clock of a provider may be behind ours."""


class BatchAnswer(NamedTuple):
    """What became of one request of a batch."""

    value: Any
    error: str | None
    usage: Mapping[str, int]


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
            asking = _Asking(model)
            with suppress(_AskedError):
                await made._answering.run("", model=asking)
            made._parameters = asking.parameters or made._parameters
        return made

    @property
    def can_find(self) -> bool:
        """Whether the provider tells which batches it has, and of what."""
        return self._model.system == "openai" and hasattr(_innermost(self._model), "client")

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

    async def submit(self, requests: Sequence[EncodedBatchRequest]) -> dict[str, Any]:
        """Submit requests as one batch, and return its handle.

        Raises
        ------
        OutcomeUnknownError
            The provider failed, and may have made the batch nevertheless.
        """
        refusals = 0
        while True:
            try:
                return _plain(await self._model.batch_create(requests))
            except ModelAPIError as error:
                make_keepable(error)
                is_refused = isinstance(error, ModelHTTPError) and error.status_code in _REFUSED
                if is_refused and _passes(error) and refusals < MOST_REFUSALS:
                    refusals += 1  # nothing was made of it
                    await asyncio.sleep(min(LONGEST_REFUSAL, FIRST_REFUSAL * 2**refusals))
                    continue
                if is_refused or not isinstance(error, ModelHTTPError):
                    raise  # a connection that broke says so itself
                raise OutcomeUnknownError(f"the provider did not say whether it has the batch: {error}") from error

    async def found(
        self, requests: Sequence[EncodedBatchRequest], since: datetime, others: Collection[str]
    ) -> dict[str, Any] | None:
        """Return the handle of the batch of these requests, if the provider has one that is none of the others."""
        try:
            return await self._found(requests, since, others)
        except Exception as error:
            if not isinstance(getattr(error, "status_code", None), int):  # what the provider's client raises of its own
                raise
            raise OutcomeUnknownError(
                f"the provider does not say which batches it has, so that it is not known whether this one was made: "
                f"{type(error).__name__}: {error}"
            ) from error

    async def _found(
        self, requests: Sequence[EncodedBatchRequest], since: datetime, others: Collection[str]
    ) -> dict[str, Any] | None:
        client = _innermost(self._model).client
        async for known in client.batches.list(limit=100):
            if known.created_at < (since - _BEFORE).timestamp():
                break
            if known.id in others:
                continue
            text = (await client.files.content(known.input_file_id)).text
            if f'"custom_id":"{requests[0].custom_id}"' in text.partition("\n")[0]:
                return self.handle(known.id, requests, since, input_file_id=known.input_file_id)
        return None

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
        """Return the handle of a batch as it is now; while the provider cannot be reached, as it was."""
        try:
            return _plain(await self._model.batch_status(_HANDLE.validate_python(handle)))
        except ModelAPIError as error:
            make_keepable(error)
            if _passes(error):
                return dict(handle)
            details = {
                **(handle.get("provider_details") or {}),
                LOST: shared().text(f"{type(error).__name__}: {error}"),
            }
            return {**handle, "status": "ended", "provider_details": details}

    async def answers(self, handle: Mapping[str, Any], names: Sequence[str]) -> dict[str, BatchAnswer] | None:
        """Return what became of the requests of a batch that has ended, by their ids; None if it cannot be had now."""
        if lost := (handle.get("provider_details") or {}).get(LOST):
            return dict.fromkeys(names, _unreadable(handle, lost))
        try:
            given = await self._model.batch_results(_HANDLE.validate_python(handle))
        except ModelAPIError as error:
            make_keepable(error)
            if _passes(error):
                return None
            return dict.fromkeys(names, _unreadable(handle, f"{type(error).__name__}: {error}"))
        except (ValueError, TypeError, LookupError) as error:  # what the provider has sent is none of its own form
            return dict.fromkeys(names, _unreadable(handle, f"{type(error).__name__}: {error}"))
        found = {result.custom_id: result for result in given}
        missing = BatchResult(custom_id="", status="expired")
        return {name: await self._answer(found.get(name, missing)) for name in names}

    async def _answer(self, result: BatchResult) -> BatchAnswer:
        usage: Mapping[str, int] = {}
        try:
            response = self._model.batch_decode(result, self._request(result.custom_id, ""))
            usage = usage_of(plain_response(response))
            if self._answering is not None:
                answer = await self._answering.run("", model=_Answering(self._model, response))
                return BatchAnswer(plainly(answer.output), None, usage)
        except Exception as error:  # noqa: BLE001 - whatever one line does: the others were paid for as well
            return BatchAnswer(None, shared().text(f"{type(error).__name__}: {error}"), usage)
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


class _AskedError(Exception):
    """A request was asked for that is not to be made here."""


class _Asking(WrapperModel):
    """Notes how an answer of a type is asked for, and gives none."""

    parameters: ModelRequestParameters | None = None

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self.parameters = model_request_parameters
        raise _AskedError


class _Answering(WrapperModel):
    """Gives the answer that a batch has, so that it is checked as any other."""

    def __init__(self, wrapped: Model, response: ModelResponse) -> None:
        super().__init__(wrapped)
        self._response = response

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - as what it overrides
        model_settings: ModelSettings | None,  # noqa: ARG002 - as what it overrides
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 - as what it overrides
    ) -> ModelResponse:
        return self._response


def _innermost(model: Model) -> Any:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _plain(handle: Batch) -> dict[str, Any]:
    told: dict[str, Any] = _HANDLE.dump_python(handle, mode="json")
    return told


def _unreadable(handle: Mapping[str, Any], why: str) -> BatchAnswer:
    """Return what becomes of the rows of a batch whose results nobody can read."""
    told = shared().text(f"the results of batch {handle['id']} cannot be read: {why}")
    return BatchAnswer(None, f"{told}; look at it where the provider lists batches, before its rows are paid again", {})


def _passes(error: ModelAPIError) -> bool:
    """Whether a later request may succeed where this one failed."""
    return not isinstance(error, ModelHTTPError) or error.status_code in (408, 429) or error.status_code not in _REFUSED
