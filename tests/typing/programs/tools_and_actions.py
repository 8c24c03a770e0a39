"""Functions as tools and actions keep their types."""

from typing import Any

from divebook import Environment, Step, Workflow, action, tool
from divebook.tools import ToolContext, ToolFunction, ToolHints


@tool
def search(query: str, limit: int = 3) -> list[str]:
    """Find passages."""
    return [query] * limit


@tool("look_up", read_only=True, timeout=5, retry=2)
async def look_up(key: str) -> str:
    """Look up a key."""
    return key


@action
def stamp(text: str, context: ToolContext) -> str:
    return f"{text} {context.run_id[:4]}"


@action("Text.Pad", idempotent=True)
def pad(text: str, width: int = 5) -> str:
    return text.ljust(width, ".")


if __name__ == "__main__":
    passages: list[str] = search("a", limit=2)
    padded: str = pad("ab")
    assert (passages, padded) == (["a", "a"], "ab...")
    own = ToolFunction("own", search, "Find.", hints=ToolHints(read_only=True))
    assert own.name == "own"
    step = Step("s", action="Text.Pad", parameters={"text": "x", "width": 3}, store="padded")
    with Environment(store="memory:", workflows=[Workflow("w", [step], outputs=["padded"])]) as environment:
        outputs: dict[str, Any] = environment.start("w").wait().outputs
    assert outputs == {"padded": "x.."}
