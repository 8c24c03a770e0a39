"""An MCP server made with the SDK: ``python good.py [http PORT]``; on pipes without arguments."""

import base64
import os
import signal
import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ImageContent,
    InputRequiredResult,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

server = MCPServer("good", instructions="Add with add.")
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def echo(text: str) -> CallToolResult:
    """Return a text."""
    return CallToolResult(content=[TextContent(type="text", text=text)])


@server.tool()
def variable(name: str) -> str:
    """Return a variable of the process."""
    return os.environ.get(name, "")


@server.tool()
def pid() -> int:
    """Return the number of the process."""
    return os.getpid()


@server.tool()
def fails() -> str:
    """Raise an error."""
    raise ValueError("no such city")


@server.tool()
def dies() -> str:
    """End the process at once, in the middle of the call."""
    sys.stderr.write("out of paper")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@server.tool()
def big(size: int) -> CallToolResult:
    """Return a long text."""
    return CallToolResult(content=[TextContent(type="text", text="x" * size)])


@server.tool()
def picture() -> CallToolResult:
    """Return a picture."""
    data = base64.b64encode(b"not really").decode()
    return CallToolResult(
        content=[
            TextContent(type="text", text="see"),
            ImageContent(type="image", data=data, mime_type="image/png"),
        ]
    )


@server.tool()
async def paint(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Paint in a colour that is asked for; the call is answered with a question."""
    answer = (ctx.input_responses or {}).get("colour")
    if answer is None:
        form = ElicitRequestFormParams(message="Which colour?", requested_schema=COLOUR)
        return InputRequiredResult(input_requests={"colour": ElicitRequest(params=form)}, request_state="easel")
    said = answer.content["colour"] if answer.action == "accept" else answer.action
    return CallToolResult(content=[TextContent(type="text", text=f"{ctx.request_state}: {said}")])


@server.tool()
async def inquire(name: str, counts: list[int], ctx: Context) -> CallToolResult | InputRequiredResult:
    """Ask `counts[i]` questions in round i + 1, and return all answers."""
    answers = dict(pair.split("=") for pair in (ctx.request_state or "").split() if pair)
    answers |= {key: answer.content["colour"] for key, answer in (ctx.input_responses or {}).items()}
    for number, count in enumerate(counts):
        keys = [f"{name}/{number}/{index}" for index in range(count)]
        if not answers.keys() >= set(keys):
            forms = {key: ElicitRequestFormParams(message=key, requested_schema=COLOUR) for key in keys}
            requests = {key: ElicitRequest(params=form) for key, form in forms.items()}
            state = " ".join(f"{key}={value}" for key, value in answers.items())
            return InputRequiredResult(input_requests=requests, request_state=state)
    text = " ".join(f"{key}={value}" for key, value in sorted(answers.items()))
    return CallToolResult(content=[TextContent(type="text", text=text)])


@server.tool()
async def ponder(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Return what a model says to a question; the call is answered with that."""
    answer = (ctx.input_responses or {}).get("thought")
    if answer is not None:
        return CallToolResult(content=[TextContent(type="text", text=f"{answer.model}: {answer.content.text}")])
    asked = CreateMessageRequestParams(messages=[said("Why?")], max_tokens=9)
    return InputRequiredResult(input_requests={"thought": CreateMessageRequest(params=asked)})


@server.tool()
async def stalls(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Ask to be called again, for ever."""
    return InputRequiredResult(request_state="not yet")


@server.tool()
async def ponder_as_before(ctx: Context) -> str:
    """Return what a model says to two questions that are asked during the call."""
    answers = [await ctx.session.create_message([said("Hm."), said(text)], max_tokens=9) for text in ("Why?", "Why?")]
    return ", ".join(answer.content.text for answer in answers)


def said(text):
    return SamplingMessage(role="user", content=TextContent(type="text", text=text))


class Colour(BaseModel):
    colour: str


@server.tool()
async def paint_as_before(ctx: Context) -> str:
    """Paint in a colour that is asked for during the call, as servers of 2025 do."""
    answer = await ctx.elicit("Which colour?", Colour)
    return answer.data.colour if answer.action == "accept" else answer.action


@server.resource("notes://today", mime_type="text/markdown")
def today() -> str:
    return "# Today\nNothing."


@server.resource("notes://bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    return b"\x00\x01"


@server.prompt()
def review(path: str) -> str:
    """Ask for a review."""
    return f"Review {path}."


if __name__ == "__main__":
    if "http" in sys.argv:
        server.run("streamable-http", port=int(sys.argv[-1]))
    else:
        server.run("stdio")
