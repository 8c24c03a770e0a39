"""What Anthropic's messages look like on the wire, whole and as events of a stream."""

import json

BASE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5-5", "stop_sequence": None}
USAGE = {"input_tokens": 8, "output_tokens": 6, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 0}
REFUSAL = {"type": "invalid_request_error", "message": "this model does not stream"}


def prompt_of(body):
    """Return the last text of a request."""
    return str(body["messages"][-1]["content"])


def answered(body):
    """Return how many answers of the model a request holds."""
    return sum(message["role"] == "assistant" for message in body["messages"])


def key_of(headers):
    """Return the key that a request came with."""
    return headers.get("x-api-key") or (headers.get("authorization") or "").removeprefix("Bearer ")


def refusal(message):
    """Return the body of an error."""
    return {"type": "error", "error": {"type": "error", "message": message}}


def whole(reply, number):
    """Return a reply as one body."""
    return {
        **BASE,
        "content": [block for block, _ in _blocks(reply, number)],
        "stop_reason": _end(reply),
        "usage": USAGE,
    }


def events(reply, number, pieces, _):
    """Return the events of a stream, each as its text."""
    yield _event(
        "message_start", message={**BASE, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    )
    for index, (block, empty) in enumerate(_blocks(reply, number)):
        yield _event("content_block_start", index=index, content_block=empty)
        for delta in _deltas(block, pieces):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta={"stop_reason": _end(reply), "stop_sequence": None}, usage=USAGE)
    yield _event("message_stop")


def _blocks(reply, number):
    """Return each block whole and as it begins in a stream."""
    found = []
    if reply.think:
        block = {"type": "thinking", "thinking": reply.think, "signature": "signed"}
        found.append((block, {**block, "thinking": "", "signature": ""}))
    if reply.say:
        found.append(({"type": "text", "text": reply.say}, {"type": "text", "text": ""}))
    for place, call in enumerate(reply.calls):
        block = {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": call.tool, "input": call.arguments}
        found.append((block, {**block, "input": {}}))
    return found


def _deltas(block, pieces):
    if block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    elif block["type"] == "text":
        yield from ({"type": "text_delta", "text": piece} for piece in pieces)
    else:
        written = json.dumps(block["input"])
        for half in (written[: len(written) // 2], written[len(written) // 2 :]):
            yield {"type": "input_json_delta", "partial_json": half}


def _event(kind, **told):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **told})}\n\n"


def _end(reply):
    return "tool_use" if reply.calls else "end_turn"
