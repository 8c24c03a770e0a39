"""What OpenAI's chat completions look like on the wire, whole and as events of a stream."""

import json

USAGE = {"prompt_tokens": 11, "completion_tokens": 6, "total_tokens": 17, "prompt_tokens_details": {"cached_tokens": 3}}
REFUSAL = {"message": "Your organization must be verified to stream this model.", "param": "stream", "code": "x"}
BASE = {"id": "answer-1", "created": 1_700_000_000, "model": "gpt-4o-mini"}


def prompt_of(body):
    """Return the last text of a request."""
    return str(body["messages"][-1]["content"])


def answered(body):
    """Return how many answers of the model a request holds."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def key_of(headers):
    """Return the key that a request came with."""
    return (headers.get("authorization") or "").removeprefix("Bearer ")


def refusal(message):
    """Return the body of an error."""
    return {"error": {"message": message}}


def whole(reply, number):
    """Return a reply as one body."""
    message = {"role": "assistant", "content": reply.say or None}
    if reply.calls:
        message["tool_calls"] = [_call(call, number, place) for place, call in enumerate(reply.calls)]
    choices = [{"index": 0, "finish_reason": _end(reply), "message": message}]
    return {**BASE, "object": "chat.completion", "choices": choices, "usage": USAGE}


def events(reply, number, pieces, body):
    """Return the events of a stream, each as its text."""
    said = [{"content": piece} for piece in pieces]
    for place, call in enumerate(reply.calls):
        written = _call(call, number, place)
        arguments = written["function"].pop("arguments")
        written["function"]["arguments"] = ""
        said.append({"tool_calls": [{**written, "index": place}]})
        halves = arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]
        said += [{"tool_calls": [{"index": place, "function": {"arguments": half}}]} for half in halves]
    said[:1] = [{"role": "assistant", **said[0]}]
    for delta in said:
        yield _event(_chunk(delta))
    yield _event(_chunk({}, _end(reply)))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**_chunk({}), "choices": [], "usage": USAGE})
    yield "data: [DONE]\n\n"


def _event(told):
    return f"data: {json.dumps(told)}\n\n"


def _call(call, number, place):
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return {"id": f"call_{number}_{place}", "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _end(reply):
    return "tool_calls" if reply.calls else "stop"


def _chunk(delta, finish_reason=None):
    choices = [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    return {**BASE, "object": "chat.completion.chunk", "choices": choices}
