"""pydantic-ai model that answers from a script; see `divebook.agents.scripted`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from pydantic_ai import exceptions
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from divebook.agents.scripted import SCRIPTED, ScriptedModel, ScriptedReply, made_for, words
from divebook.agents.signatures import ITEM
from divebook.definitions.json_schemas import complaint
from divebook.engine.operations import TEXT, THINKING, Reserved, Write, arguments_part
from divebook.projections.spans import COST
from divebook.questions.bounds import nanodollars

_Category: TypeAlias = (
    exceptions.ModelRequestRejectedError
    | exceptions.ModelQuotaExceededError
    | exceptions.ModelRateLimitError
    | exceptions.ModelUnavailableError
    | exceptions.ModelServerError
)


_CATEGORIES: Mapping[int, type[_Category]] = {
    400: exceptions.ModelRequestRejectedError,
    401: exceptions.ModelAuthenticationError,
    402: exceptions.ModelQuotaExceededError,
    403: exceptions.ModelAuthenticationError,
    404: exceptions.ModelNotFoundError,
    429: exceptions.ModelRateLimitError,
    503: exceptions.ModelUnavailableError,
    529: exceptions.ModelOverloadedError,
}
"""pydantic-ai's error categories by HTTP status."""


class ScriptedFunction(FunctionModel):
    """pydantic-ai model that answers from a `ScriptedModel`. Each response consumes the tokens and cost that the script
    states.
    """

    def __init__(self, script: ScriptedModel) -> None:
        async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            prompt = _last_prompt(messages)
            # A script of texts has no turns: each request of the process takes the next text.
            if script.is_texts:
                return ModelResponse(parts=[TextPart(script.reply(prompt))])
            reply = await made_for(script.reply_to(prompt, *_position(messages)), prompt, messages)
            if reply.error is not None:
                raise _failure(reply)
            # Counted over all messages, so that ids stay unique in a conversation of several turns.
            return ModelResponse(parts=list(_parts(reply, info, len(_responses(messages)) + 1)))

        super().__init__(respond, model_name=SCRIPTED)
        self.script = script

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Return the script's reply to a request."""
        response = await super().request(messages, model_settings, model_request_parameters)
        response.usage = _stated_usage(self.script)
        response.provider_details = {COST: nanodollars(self.script.price)}
        return response

    async def stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        write: Write,
    ) -> ModelResponse:
        """Return the script's reply to a request. Before that, pass its words to `write` one at a time, like a streamed
        response.
        """
        # The whole reply exists first. Only its display is delayed, by `pace`.
        response = await self.request(messages, model_settings, model_request_parameters)
        for index, (word, part) in enumerate(_pieces(response)):
            if index and self.script.pace is not None:
                await self.script.pace()
            write(word, part)
        return response

    @property
    def reserved(self) -> Reserved:
        """Maximum tokens and cost of the next request, as stated in the script."""
        tokens = sum(self.script.usage.get(name, 0) for name in ("input_tokens", "output_tokens"))
        return Reserved(tokens, nanodollars(self.script.price))


def _pieces(response: ModelResponse) -> Iterator[tuple[str, str]]:
    """Yield the words of a response, as in a streamed response. Each word comes with the kind of response part that it
    belongs to: text, thinking, or the arguments of a tool call.
    """
    for part in response.parts:
        match part:
            case TextPart(content=text):
                yield from ((word, TEXT) for word in words(text))
            case ThinkingPart(content=text):
                yield from ((word, THINKING) for word in words(text))
            case ToolCallPart():
                name = arguments_part(part.tool_name, part.tool_call_id)
                yield from ((word, name) for word in words(written_arguments(part)))


def written_arguments(call: ToolCallPart) -> str:
    """Return the arguments of a tool call as JSON text. Text that the model itself has written stays unchanged."""
    if isinstance(call.args, str):
        return call.args
    return call.args_as_json_str() if call.args else ""


def _position(messages: Sequence[ModelMessage]) -> tuple[str | None, int]:
    """Return the run id of the turn that a request belongs to, and the number of responses in the turn so far. Outside
    of a turn, return None and 0.
    """
    # The messages of earlier turns of a conversation have other run ids.
    run_id = messages[-1].run_id
    return run_id, 0 if run_id is None else sum(message.run_id == run_id for message in _responses(messages))


def _responses(messages: Sequence[ModelMessage]) -> list[ModelResponse]:
    return [message for message in messages if isinstance(message, ModelResponse)]


def _parts(reply: ScriptedReply, info: AgentInfo, number: int) -> list[ModelResponsePart]:
    """Convert a scripted reply to the parts of a pydantic-ai response: thoughts, text, tool calls and structured
    output.

    Parameters
    ----------
    number
        Number of the response among all messages. It determines the ids of the calls.
    """
    parts: list[ModelResponsePart] = [ThinkingPart(reply.think)] if reply.think else []
    parts += [TextPart(reply.say)] if reply.say else []
    parts += [
        ToolCallPart(call.tool, call.arguments, tool_call_id=f"call-{number}-{index}")
        for index, call in enumerate(reply.calls, 1)
    ]
    for output in reply.output:
        parts.append(_output(output, info, f"output-{number}"))
    return parts or [TextPart("")]


def _output(output: Any, info: AgentInfo, tool_call_id: str) -> ModelResponsePart:
    """Return scripted structured output in the form that the agent expects: as a call of the agent's output tool, or as
    text.

    Providers accept only objects as arguments. Another answer is wrapped in the single argument of its output tool. A
    script contains the answer itself, which is wrapped here. A script that contains the arguments is accepted if only
    they match. An answer that matches no tool is passed on unchanged: a script may imitate a wrong answer of a model.
    """
    if not info.output_tools or (isinstance(output, str) and info.allow_text_output):
        return TextPart(output if isinstance(output, str) else json.dumps(output, ensure_ascii=False))
    # Try the wrapped answer first, then the answer as the arguments themselves.
    for tool in info.output_tools:
        name = _wrapper(tool)
        for arguments in ([] if name is None else [{name: output}]) + [output]:
            if complaint(tool.parameters_json_schema, arguments) is None:
                return ToolCallPart(tool.name, arguments, tool_call_id=tool_call_id)
    # No tool accepts the answer: pass it on, so that pydantic-ai reports the mistake.
    tool = info.output_tools[0]
    name = _wrapper(tool)
    arguments = output if name is None or isinstance(output, Mapping) else {name: output}
    raw_arguments = arguments if isinstance(arguments, dict) else json.dumps(arguments, ensure_ascii=False)
    return ToolCallPart(tool.name, raw_arguments, tool_call_id=tool_call_id)


def _wrapper(tool: ToolDefinition) -> str | None:
    """Return the argument name by which an output tool takes a value that is not an object, for example a list. Return
    None if the output is an object, whose fields are the arguments themselves.

    pydantic-ai wraps types that are not objects in this way, and this module wraps JSON schemas that are not objects.
    """
    schema = tool.parameters_json_schema
    # `_as_object` of `divebook.agents.signatures` makes schemas of this form.
    is_ours = list(schema.get("properties", {})) == [ITEM] and schema.get("additionalProperties") is False
    return tool.outer_typed_dict_key or (ITEM if is_ours else None)


def _failure(reply: ScriptedReply) -> Exception:
    """Return the error that a scripted request raises. If the reply has an HTTP status, the error is like that of a
    provider.
    """
    if reply.status is None:
        return RuntimeError(reply.error)
    # Statuses from 500 on without a category of their own are server errors.
    category = _CATEGORIES.get(reply.status, exceptions.ModelServerError if reply.status >= 500 else None)
    return ModelHTTPError.for_category(
        category,
        status_code=reply.status,
        model_name=SCRIPTED,
        body={"message": reply.error},
        retry_after=reply.retry_after,
    )


def _stated_usage(script: ScriptedModel) -> RequestUsage:
    usage = RequestUsage()
    for name, tokens in script.usage.items():
        setattr(usage, name, tokens)
    return usage


def _last_prompt(messages: Sequence[ModelMessage]) -> str:
    # The last message may hold only tool results, so the prompt is searched from the end.
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, UserPromptPart):
                # With content blocks, the prompt is the last text.
                texts = (
                    [part.content] if isinstance(part.content, str) else [c for c in part.content if isinstance(c, str)]
                )
                return texts[-1] if texts else ""
    return ""
