"""Tools: async, with a context, methods, partials, callable objects; given to agents and environments."""

import asyncio
import functools
from collections.abc import Sequence
from typing import assert_type

from typing_extensions import TypedDict

from divebook import Agent, Context, Environment, ScriptedModel, action, tool, workflow
from divebook.tools import ToolContext, ToolFunction


class Hit(TypedDict):
    title: str
    score: float


@tool(read_only=True, timeout="5 s", retry=2)
async def search(query: str, context: ToolContext, *, limit: int = 3) -> list[Hit]:
    """Find pages."""
    await asyncio.sleep(0)
    context.emit("searched", {"query": query})
    hits: list[Hit] = [{"title": query, "score": 1.0}]
    return hits[:limit]


class Library:
    def __init__(self, books: Sequence[str]) -> None:
        self.books = list(books)

    def find(self, word: str) -> list[str]:
        """Find books."""
        return [book for book in self.books if word in book]

    async def borrow(self, title: str) -> bool:
        """Borrow a book."""
        return title in self.books


class Rate:
    """Rate of a currency."""

    def __call__(self, currency: str) -> float:
        return 1.5


def weather(city: str, unit: str) -> str:
    """Weather in a city."""
    return f"{city} {unit}"


@action("Mail.Send", idempotent=True)
async def send(to: str, text: str, context: ToolContext) -> int:
    return len(to) + len(text)


library = Library(["moby dick", "ulysses"])
celsius = functools.partial(weather, unit="C")
find = tool(library.find)
rate = tool("rate")(Rate())
agent = Agent(
    "clerk",
    model=ScriptedModel(["done"]),
    tools=[search, library.find, library.borrow, tool("rate")(Rate()), tool("weather_c")(celsius), "other"],
)


@tool
def other(n: int) -> int:
    """Other."""
    return n


@workflow
async def ask(ctx: Context) -> str:
    answer: str = await ctx.agent("clerk").run("Go")
    return answer


if __name__ == "__main__":
    assert_type(find("moby"), list[str])
    assert_type(rate("eur"), float)
    assert_type(celsius("x"), str)
    own = ToolFunction("own", library.find, "Find.")
    with Environment(store="memory:", agents=[agent], tools=[other, own], actions=[send]) as environment:
        environment.add_action(send, replace=True)
        environment.add_tool(library.borrow)
        assert environment.start(ask).result() == "done"
