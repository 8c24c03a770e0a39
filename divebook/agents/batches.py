"""Batches of model requests, sent through the batch API of a model provider.

A batch costs half as much as single requests and takes up to a day. Its handle is plain data, so any process can query
the batch. OpenAI lists its batches with their input files, so a batch whose submission was interrupted can be found
there again.
"""

from __future__ import annotations

import json
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
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.batch import Batch, BatchRequest, BatchResult, EncodedBatchRequest
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from divebook.agents.agent_loop import Request, resolved
from divebook.agents.models import estimate, tokens_of, tokens_of_definitions
from divebook.agents.request_record import (
    make_keepable,
    plain_json,
    plain_response,
    settings_of,
    usage_of,
)
from divebook.agents.signatures import output_type
from divebook.engine.operations import Reserved
from divebook.engine.retries import names_of
from divebook.errors import OutcomeUnknownError, StepError
from divebook.text.redaction import shared

if TYPE_CHECKING:
    from divebook.agents.agent import Agent


class AgentBatches:
    """Access to the batch API of an agent's model: it encodes requests, submits them as batches, and reads the results.

    Parameters
    ----------
    instructions
        System prompt of all requests.
    output
        Type of the answer: None for text, a type, or a JSON schema.
    """

    def __init__(self, agent: Agent, model: Model, instructions: str, output: Any) -> None:
        self._agent = agent
        self._model = model
        self._instructions = instructions
        self._settings = settings_of(agent.definition)
        self._settings.pop("timeout")  # a batch takes up to a day
        self._parameters = ModelRequestParameters()
        self._can_list: bool | None = None
        self._validating_agent = (
            # No retries: a batch cannot be asked to correct an answer, so an invalid one is the error of its row.
            None if output is None else pydantic_ai.Agent(output_type=output_type(output), retries=0)
        )
        """Agent that validates structured output; None for text."""

    @classmethod
    async def of(cls, agent: Agent, instructions: str, output: Any) -> AgentBatches:
        """Create the access to the batch API for an agent, with the given instructions and type of output.

        Raises
        ------
        StepError
            The agent's model has no batch API.
        """
        model = await resolved(agent)
        if model.batch_max_requests is None:
            raise StepError(
                f"the model of agent {agent.name}, {agent.model_name}, has no batch API: name another Model, such as "
                "openai:gpt-5-mini, or remove batch=True, so that each row is sent as a separate request"
            )
        batches = cls(agent, model, instructions, output)
        if batches._validating_agent is not None:
            # pydantic-ai creates the parameters of structured output (schema, output tool) only inside a run. A run
            # with a model that never answers reveals them without a request.
            capturing_model = CapturingModel(model)
            with suppress(ParametersCapturedError):
                await batches._validating_agent.run("", model=capturing_model)
            batches._parameters = capturing_model.parameters or batches._parameters
        return batches

    async def can_list(self) -> bool:
        """Return True if the provider can list its existing batches together with their input, so that a submitted
        batch can be found again. The result depends on the provider and on the key.

        The result is True while the provider is unreachable. It is asked before every submission anyway.
        """
        # Only OpenAI lists batches with the files of their requests, through its own client (`client`).
        if self._model.system != "openai" or not hasattr(_innermost(self._model), "client"):
            return False
        if self._can_list is None:
            # One listed batch is enough to see whether the key may list. An empty list means that it may.
            try:
                await self._list_batches(1).__anext__()
            except StopAsyncIteration:
                pass
            except ModelAPIError as error:
                # An outage says nothing about the key, so this answer is not kept.
                if not is_hidden(error):
                    return True
                self._can_list = False
                return False
            self._can_list = True
        return self._can_list

    async def encode(self, prompts: Mapping[str, str], most: int) -> list[EncodedBatchRequest]:
        """Encode prompts as requests of one batch. `prompts` maps request ids to prompts. Stop at the number of
        requests or the size that the provider accepts, and leave out the rest.

        Raises
        ------
        StepError
            The agent has a setting that batches do not support, or one prompt is larger than a batch.
        """
        # `batch_max_bytes` is None if the provider limits only the number of requests.
        most = min(most, self._model.batch_max_requests or most)
        remaining_bytes = self._model.batch_max_bytes
        encoded_requests: list[EncodedBatchRequest] = []
        for custom_id, prompt in prompts.items():
            try:
                encoded = await self._model.batch_encode(self._request(custom_id, prompt))
            except UserError as error:
                raise StepError(f"agent {self._agent.name} cannot be asked in a batch: {error}") from error
            # A batch has the first prompts only, so the first one that does not fit ends it, even if a later one would
            # fit.
            size = self._model.batch_request_size(encoded)
            if len(encoded_requests) == most or (remaining_bytes is not None and size > remaining_bytes):
                break
            encoded_requests.append(encoded)
            remaining_bytes = None if remaining_bytes is None else remaining_bytes - size
        return encoded_requests

    def reserved(self, prompts: Sequence[str]) -> Reserved:
        """Return the maximum consumption of a batch with these prompts, for the budget. The normal price is used,
        although batches cost less.
        """
        total = Reserved()
        for prompt in prompts:
            input_tokens = sum(map(tokens_of, self._messages(prompt))) + tokens_of_definitions(self._parameters)
            total = total.plus(estimate(self._model, input_tokens, self._settings))
        return total

    async def submit(
        self,
        requests: Sequence[EncodedBatchRequest],
        since: datetime,
        other_ids: Collection[str],
        *,
        may_exist: bool,
        leaves_unknown: Callable[[BaseException], bool],
    ) -> dict[str, Any] | SubmitLater:
        """Send requests to the provider as one batch, unless the provider already has that batch. Return the batch's
        handle (its recorded description), or `SubmitLater` after a temporary failure.

        Parameters
        ----------
        since, other_ids
            Earliest creation time of the batch, and ids of other batches to skip.
        may_exist
            True if an earlier submission may have created the batch.
        leaves_unknown
            Returns True for an error after which the request may have arrived.

        Raises
        ------
        OutcomeUnknownError
            The batch may have been created, and the provider has no list to check.
        """
        # A batch that an earlier submission created is used again, because a second one would be billed as well.
        can_list = await self.can_list()
        has_asked = False
        try:
            if can_list and (existing := await self._find_existing(requests, since, other_ids)) is not None:
                return existing
            # Without a list, a second submission might pay for the same batch twice.
            if may_exist and not can_list:
                raise OutcomeUnknownError(
                    "it is unknown whether the provider received the batch: the provider did not confirm the batch, "
                    "and it cannot list its batches"
                )
            # From here on, an error may mean that the provider has created the batch.
            has_asked = True
            return _plain(await self._model.batch_create(requests))
        except ModelAPIError as error:
            make_keepable(error)
            # The key turned out not to allow listing. The next try decides by `may_exist` instead.
            if can_list and not has_asked and is_hidden(error):
                self._can_list = False
                return SubmitLater(0, error_line(error), may_exist=may_exist)
            if not is_temporary(error) or isinstance(error, ModelQuotaExceededError):
                raise
            # A 429 means that nothing was created. After another error the batch may exist.
            if has_asked:
                is_refused = isinstance(error, ModelHTTPError) and error.status_code == TOO_MANY
                may_exist = not is_refused and (isinstance(error, ModelHTTPError) or leaves_unknown(error))
            if has_asked and may_exist and not can_list:
                raise OutcomeUnknownError(f"it is unknown whether the provider received the batch: {error}") from error
            return SubmitLater(error.retry_after or 0, error_line(error), may_exist=may_exist)
        # The answer to the submission cannot be parsed, so the batch may exist.
        except UNREADABLE as error:
            if not can_list:
                raise OutcomeUnknownError(
                    "it is unknown whether the provider received the batch, because its reply cannot be read: "
                    f"{error_line(error)}"
                ) from error
            return SubmitLater(0, error_line(error), may_exist=has_asked or may_exist)

    async def _find_existing(
        self, requests: Sequence[EncodedBatchRequest], since: datetime, other_ids: Collection[str]
    ) -> dict[str, Any] | None:
        """Search the provider's list of batches for one that contains these requests. Return its handle, or None if the
        list has none. Batches whose ids are in `other_ids` are known to have other requests and are skipped.
        """
        # The list has the latest batch first, so the first one that is too old ends the search.
        async for batch in self._list_batches(100):
            if batch.created_at < (since - _BEFORE).timestamp():
                break
            if batch.id in other_ids:
                continue
            # The first line of the input file is the first request, {"custom_id": "...", ...}. Its id identifies the
            # batch.
            with self._converted_errors():
                text = (await _innermost(self._model).client.files.content(batch.input_file_id)).text
            if f'"custom_id":"{requests[0].custom_id}"' in text.partition("\n")[0]:
                return self.handle(batch.id, requests, since, input_file_id=batch.input_file_id)
        return None

    async def _list_batches(self, at_once: int) -> AsyncIterator[Any]:
        """Yield the batches that the provider lists, latest first. They are fetched page by page, `at_once` batches
        with each request.
        """
        with self._converted_errors():
            async for batch in _innermost(self._model).client.batches.list(limit=at_once):
                yield batch

    @contextmanager
    def _converted_errors(self) -> Iterator[None]:
        """Convert errors that the provider's client raises inside the ``with`` block to pydantic-ai's error classes.
        Needed because batch calls use the client directly. Other errors stay unchanged.
        """
        # Errors of the client are recognized by status and class name, because its library may not be installed.
        try:
            yield
        except Exception as error:
            name = self._model.model_name
            status = getattr(error, "status_code", None)
            if isinstance(status, int):
                headers = dict(getattr(getattr(error, "response", None), "headers", None) or {})
                raise ModelHTTPError(status, name, getattr(error, "body", None), headers=headers) from error
            if "APIError" in names_of(error):  # the connection failed
                raise ModelAPIError(name, str(error)) from error
            raise

    def handle(self, name: str, requests: Sequence[EncodedBatchRequest], at: datetime, **fields: str) -> dict[str, Any]:
        """Build the handle (the recorded description) of a batch whose id is known, for example from the provider's
        list or from a person.
        """
        details = {"status": "in_progress", **fields}
        model = self._model
        group = requests[0].group
        # The provider is asked by the id. `refresh` then replaces the assumed status by the true one.
        batch = Batch(
            id=name,
            model_name=model.model_name,
            provider_name=model.system,
            group=group,
            status="in_progress",
            created_at=at,
            request_count=len(requests),
            provider_details=details,
        )
        return _plain(batch)

    async def refresh(self, handle: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the provider for the status of a batch; return its handle with the new status. While the provider is
        unreachable, return the handle unchanged.

        If the provider no longer has the batch, the handle has the status ``ended`` and a reason under ``lost``.
        """
        try:
            return _plain(await self._model.batch_status(_HANDLE.validate_python(handle)))
        except ModelAPIError as error:
            make_keepable(error)
            if is_temporary(error):
                return dict(handle)
            if not is_lost(error):
                raise
            return {**handle, "status": "ended", "lost": error_line(error)}
        except UNREADABLE:  # for example an HTML page of a proxy
            return dict(handle)

    async def cancel_batch(self, handle: Mapping[str, Any] | None) -> None:
        """Ask the provider to cancel a batch. Requests that were answered before the cancellation are billed."""
        if handle is not None and handle["status"] == "in_progress":
            with suppress(ModelAPIError, NotImplementedError, *UNREADABLE):  # it may have ended, or cannot be cancelled
                await self._model.batch_cancel(_HANDLE.validate_python(handle))

    async def answers(
        self, handle: Mapping[str, Any], names: Sequence[str], *, is_last: bool
    ) -> dict[str, BatchAnswer] | None:
        """Fetch the results of a batch that has ended. Return them by request id, or None if the provider cannot
        deliver the results at the moment.

        Parameters
        ----------
        is_last
            True if there will be no later attempt. Unreadable results are then errors of their requests.
        """
        name = handle["id"]
        if "lost" in handle:
            return self._without(names, f"batch {name} cannot be fetched from its provider ({handle['lost']})")
        try:
            results = await self._model.batch_results(_HANDLE.validate_python(handle))
        except ModelAPIError as error:
            make_keepable(error)
            # An error of the batch itself is final, whatever its class says about a repetition.
            is_of_batch = type(error).__name__ == JOB_ERROR
            if is_temporary(error) and not is_of_batch:
                return None
            if not is_of_batch and not is_lost(error):
                raise
            return self._without(names, f"batch {name} has no results ({error_line(error)})")
        except UNREADABLE as error:
            # One malformed line makes the client fail for the whole file, so parse the lines one by one.
            results = await self._readable_results(handle)
            if not results and not is_last:
                return None
            if not results:
                return self._without(names, f"the results of batch {name} cannot be read ({error_line(error)})")
        by_id = {result.custom_id: result for result in results}
        missing = self._without(names, f"batch {name} has no readable result for this row")
        return {each: await self._answer(by_id[each], name) if each in by_id else missing[each] for each in names}

    def _without(self, names: Sequence[str], why: str) -> dict[str, BatchAnswer]:
        answer = BatchAnswer(None, f"StepError: {why}; look for the batch at {self._model.system}; {AGAIN}", {})
        return dict.fromkeys(names, answer)

    async def _readable_results(self, handle: Mapping[str, Any]) -> list[BatchResult]:
        """Return the results of a batch from OpenAI's result files, without lines that cannot be parsed. Return an
        empty list for other providers.
        """
        details = handle.get("provider_details") or {}
        files = getattr(getattr(_innermost(self._model), "client", None), "files", None)
        results: list[BatchResult] = []
        for file_id in filter(None, (details.get("output_file_id"), details.get("error_file_id"))):
            try:
                with self._converted_errors():
                    text = (await files.content(file_id)).text if files is not None else ""
            except (ModelAPIError, *UNREADABLE):
                continue
            results += filter(None, map(result_in, text.splitlines()))
        return results

    async def _answer(self, result: BatchResult, batch: str) -> BatchAnswer:
        usage: Mapping[str, int] = {}
        try:
            # Usage is counted before the answer is validated, because an invalid answer is paid for too.
            # Decoding depends on settings and parameters only, so the prompt may be empty.
            response = self._model.batch_decode(result, self._request(result.custom_id, ""))
            usage = usage_of(plain_response(response, self._model))
            if self._validating_agent is not None:
                # The agent accepts the decoded response as the answer of its model, and so validates it.
                answer = await self._validating_agent.run("", model=FixedAnswerModel(self._model, response))
                return BatchAnswer(plain_json(answer.output), None, usage)
        except (ModelAPIError, UnexpectedModelBehavior) as error:
            return BatchAnswer(None, shared().text(f"{type(error).__name__}: {error}"), usage)
        except Exception as error:  # noqa: BLE001 - one bad line must not lose the other results
            problem = (
                f"StepError: the result of this row in batch {batch} cannot be read ({error_line(error)}); {AGAIN}"
            )
            return BatchAnswer(None, problem, usage)
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


# --- answers of providers about batches -----------------------------------------------------------------------------
# Which errors are temporary, which mean that a batch is lost, and which results can still be read.


_REFUSED = range(400, 500)
"""HTTP statuses of a request that the provider rejected without side effect."""


TOO_MANY = 429


_HIDDEN = (403, 404, 405)
"""HTTP statuses if the key may not list batches, or the server has no list."""


_LOST = (404, 410)
"""HTTP statuses if the batch no longer exists. 401 and 403 concern the key, which can be corrected."""


UNREADABLE = (ValueError, TypeError, KeyError, AttributeError)
"""Errors that clients raise for a malformed answer."""


JOB_ERROR = "BatchJobError"
"""Class name of the private pydantic-ai error for a batch that ended without results."""


AGAIN = "to send the row again, call retry_failed(): you pay for the request again"


class BatchAnswer(NamedTuple):
    """Result of one request of a batch: a value or an error, and the tokens and cost that the request consumed."""

    value: Any
    error: str | None
    usage: Mapping[str, int]


class SubmitLater(NamedTuple):
    """Result of `AgentBatches.submit` after a temporary failure: the batch may be submitted again after a delay."""

    seconds: float
    """Delay that the provider asks for, in seconds."""
    reason: str
    may_exist: bool
    """True if the batch may have been created nevertheless."""


def result_in(line: str) -> BatchResult | None:
    """Parse one line of an OpenAI batch result file and return the result. Return None if the line is malformed."""
    try:
        entry = json.loads(line)
        request_id = entry["custom_id"]
        # {"custom_id": "r-1", "response": {"status_code": 200, "body": {...}}, "error": null}. A request that the
        # provider did not process has no response.
        response = entry.get("response") or {"status_code": 500, "body": entry.get("error")}
        is_success = 200 <= response["status_code"] < 300
    except UNREADABLE:
        return None
    body = json.dumps(response["body"] if is_success else response)
    return BatchResult(custom_id=str(request_id), status="succeeded" if is_success else "errored", body=body)


def is_hidden(error: ModelAPIError) -> bool:
    """Return True if an error means that the provider does not let this key list batches, or does not list batches at
    all.
    """
    return isinstance(error, ModelHTTPError) and error.status_code in _HIDDEN


def is_lost(error: ModelAPIError) -> bool:
    """Return True if an error of the provider means that a batch no longer exists there."""
    return isinstance(error, ModelHTTPError) and error.status_code in _LOST


def error_line(error: Exception) -> str:
    """Return an error as one line of at most 200 characters, with secrets hidden."""
    return shared().text(f"{type(error).__name__}: {' '.join(str(error).split())}")[:200]


def is_temporary(error: ModelAPIError) -> bool:
    """Return True if an error of the provider is temporary, so that the same request may succeed later."""
    # An error without a status is a lost connection. 408 is a request timeout, 429 a rate limit.
    return not isinstance(error, ModelHTTPError) or error.status_code in (408, 429) or error.status_code not in _REFUSED


# --- models for a single purpose ------------------------------------------------------------------------------------
# They make pydantic-ai reveal how it requests structured output, and let it validate the result of a batch.


class ParametersCapturedError(Exception):
    """Exception that ends a run of pydantic-ai as soon as `CapturingModel` has stored the parameters of its request. It
    does not mean that something failed.
    """


class CapturingModel(WrapperModel):
    """Model that never responds. It stores the parameters with which pydantic-ai would request structured output, so
    that batch requests can use them.
    """

    parameters: ModelRequestParameters | None = None

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - signature of the base class
        model_settings: ModelSettings | None,  # noqa: ARG002 - signature of the base class
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Store the parameters of the request, and raise `ParametersCapturedError` instead of sending it."""
        self.parameters = model_request_parameters
        raise ParametersCapturedError


class FixedAnswerModel(WrapperModel):
    """Model that returns one response, taken from a batch, for each request. pydantic-ai then validates the batch
    response like any other response.
    """

    def __init__(self, wrapped: Model, response: ModelResponse) -> None:
        super().__init__(wrapped)
        self._response = response

    async def request(
        self,
        messages: list[ModelMessage],  # noqa: ARG002 - signature of the base class
        model_settings: ModelSettings | None,  # noqa: ARG002 - signature of the base class
        model_request_parameters: ModelRequestParameters,  # noqa: ARG002 - signature of the base class
    ) -> ModelResponse:
        """Return the response from the batch, whatever the request is."""
        return self._response


_HANDLE = TypeAdapter(Batch)


_BEFORE = timedelta(hours=1)
"""Assumed maximum by which the provider's clock is behind."""


def _innermost(model: Model) -> Any:
    while isinstance(model, WrapperModel):
        model = model.wrapped
    return model


def _plain(handle: Batch) -> dict[str, Any]:
    data: dict[str, Any] = _HANDLE.dump_python(handle, mode="json")
    return data
