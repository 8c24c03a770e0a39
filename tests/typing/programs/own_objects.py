"""A small store of one's own, a clock, chance, a codec, documents, a formatter and a hook."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from divebook import Context, Environment, workflow
from divebook.documents import DocumentRepository
from divebook.environments import Formatter
from divebook.errors import ConcurrentAppendError


class Lists:
    def __init__(self) -> None:
        self.lists: dict[str, list[dict[str, Any]]] = {}

    def append(self, run_id: str, entries: Sequence[Mapping[str, Any]], expected: int) -> None:
        present = self.lists.setdefault(run_id, [])
        if len(present) != expected:
            raise ConcurrentAppendError(run_id, expected, len(present))
        present.extend(dict(entry) for entry in entries)

    def read(self, run_id: str, after: int) -> list[dict[str, Any]]:
        return self.lists.get(run_id, [])[after:]

    def ids(self) -> list[str]:
        return list(self.lists)


class SlowClock:
    def __init__(self) -> None:
        self.microseconds = 1_700_000_000_000_000

    def now(self) -> int:
        self.microseconds += 1
        return self.microseconds

    async def sleep(self, duration: float) -> None:
        self.microseconds += int(duration * 1_000_000)


class Dice:
    def __init__(self) -> None:
        self.generator = random.Random(1)

    def bits(self, n: int) -> int:
        return self.generator.getrandbits(n)


class Reversed:
    def encrypt(self, value: bytes) -> bytes:
        return value[::-1]

    def decrypt(self, value: bytes) -> bytes:
        return value[::-1]


class Told(Formatter):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []


class Texts(DocumentRepository):
    def __init__(self) -> None:
        super().__init__()
        self.texts: dict[str, str] = {"a": "text"}

    def _size(self, path: str) -> int:
        return len(self.texts[path])

    def _read(self, path: str) -> str | None:
        return self.texts.get(path)

    def _write(self, path: str, content: str) -> None:
        self.texts[path] = content

    def _remove(self, path: str) -> None:
        del self.texts[path]

    def _paths(self) -> Iterable[str]:
        return self.texts


def told(question: Mapping[str, Any]) -> None:
    print(question["question"])


def printed(*parts: object) -> None: ...


@workflow
async def hello(ctx: Context, who: str) -> str:
    await ctx.sleep(1)
    return f"hello {who} {await ctx.random() >= 0}"


if __name__ == "__main__":
    store = Lists()
    environment = Environment(
        store=store,
        clock=SlowClock(),
        chance=Dice(),
        codec=Reversed(),
        formatter=Told(),
        documents=Texts(),
        notify=told,
        printer=printed,
        executors={"gpu": "thread"},
    )
    with environment:
        assert environment.start(hello, {"who": "you"}).result() == "hello you True"
    assert store.lists
