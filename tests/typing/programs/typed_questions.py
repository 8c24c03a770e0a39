"""Questions of all types, the inbox, answers given by object or id."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, assert_type

from pydantic import BaseModel, Field

from divebook import Context, Environment, workflow


class Size(StrEnum):
    BIG = "big"


class Form(BaseModel):
    name: str
    amount: Decimal = Field(gt=0)


@dataclass
class Pair:
    one: int
    other: str | None = None


@workflow
async def asks(ctx: Context) -> list[Any]:
    text = await ctx.ask("Text?")
    assert_type(text, str)
    day = await ctx.ask("Day?", date, message="A day", data={"a": 1}, expires_in=3600, default=date(2026, 1, 1))
    assert_type(day, date)
    form = await ctx.ask("Form?", Form)
    assert_type(form.amount, Decimal)
    pair = await ctx.ask("Pair?", Pair)
    assert_type(pair.other, str | None)
    size = await ctx.ask("Size?", Size)
    assert_type(size, Size)
    numbers = await ctx.ask("Numbers?", list[int])
    assert_type(numbers, list[int])
    choice: Literal["a", "b"] = await ctx.ask("Choice?", Literal["a", "b"])
    maybe: int | None = await ctx.ask("Maybe?", int | None)
    sure = await ctx.confirm("Sure?", message="Really", default=False, expires_in="1 h")
    assert_type(sure, bool)
    full = await ctx.interrupt("clarification", "Full?", answer={"type": "integer"})
    return [text, day, form.amount, pair.one, size, numbers, choice, maybe, sure, full["data"]]


ANSWERS: list[Any] = ["t", "2026-02-03", {"name": "n", "amount": "1.5"}, {"one": 1}, "big", [1], "a", 4, True, 5]

if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        run = environment.start(asks).wait()
        for number, answer in enumerate(ANSWERS):
            question = run.open_questions[0]
            assert environment.inbox()[0][1].id == question.id
            if number % 2:
                run.answer(question, answer, by="ann").wait()
            else:
                environment.answer(question.id, answer, run).wait()
        result: list[Any] = run.result()
        assert result == ["t", date(2026, 2, 3), Decimal("1.5"), 1, "big", [1], "a", 4, True, 5], result
