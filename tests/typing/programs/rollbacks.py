"""Steps with a rollback, a class with a step as a method, and signals."""

from divebook import Context, Environment, step, workflow
from divebook.errors import ExecutionFailedError

UNDONE: list[str] = []


def cancel_room(city: str, result: int) -> None:
    UNDONE.append(f"{city} {result}")


@step(rollback=cancel_room)
def book_room(city: str) -> int:
    return 7


@step
def fly(city: str) -> None:
    raise ValueError(f"no flight to {city}")


class Shop:
    @step
    def total(self, price: int) -> int:
        return price


SHOP = Shop()


@workflow
async def trip(ctx: Context, city: str) -> int:
    number = await book_room(city)
    ctx.emit("booked", {"number": number})
    await fly(city)
    return number


@workflow
async def shopping(ctx: Context, price: int) -> int:
    paid: object = await ctx.wait_signal("paid")
    assert paid == "yes"
    version: int = await ctx.version("rounding", 1, 2)
    return await Shop.total(SHOP, price) if version == 1 else price


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        run = environment.start(trip, {"city": "Rome"})
        try:
            run.result()
        except ExecutionFailedError as error:
            assert "no flight" in str(error)
        assert UNDONE == ["Rome 7"]
        shop = environment.start(shopping, {"price": 3})
        shop.signal("paid", "yes")
        total: int = shop.result()
        assert total == 3
