"""What a model gets of the result of a tool: of a long one its head and its tail. The log has the whole."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic_ai.messages import BinaryContent, ToolReturn

from divebook.text.cuts import head_and_tail

MOST_BYTES = 1_000_000
"""Of an image or another file that a model is given."""
_ANY = TypeAdapter[Any](Any)


def shortened(result: Any, most: int) -> Any:
    r"""Return a result as the model gets it, which is the same wherever `most` characters are enough.

    Examples
    --------
    >>> shortened("a" * 50 + "z" * 50, 20)
    'aaaaaaaaaa\n... 80 characters left out; the whole is in the log ...\nzzzzzzzzzz'
    """
    if isinstance(result, ToolReturn):
        result.return_value = shortened(result.return_value, most)
        return result
    if isinstance(result, BinaryContent):
        size = len(result.data)
        return result if size <= MOST_BYTES else f"a file of {size:,} bytes ({result.media_type}), which is in the log"
    if isinstance(result, list) and any(isinstance(part, BinaryContent) for part in result):
        return [shortened(part, most) for part in result]
    text = result if isinstance(result, str) else _written(result)
    return result if len(text) <= most else head_and_tail(text, most)


def _written(value: Any) -> str:
    return _ANY.dump_json(value, fallback=str).decode() if isinstance(value, dict | list | tuple) else ""
