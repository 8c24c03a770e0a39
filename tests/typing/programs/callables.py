"""Steps and workflows from methods, static methods, partials, callable objects and generic functions."""

import functools
from typing import assert_type

from divebook import Context, Environment, step, workflow


class Shop:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    @step
    def price(self, n: int) -> float:
        return n * 2.0

    @staticmethod
    @step
    def tax(price: float) -> float:
        return price / 10

    @step(retry=2)
    async def ship(self, to: str) -> str:
        return to

    def discount(self, n: int) -> float:
        return n * self.rate


class Adder:
    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, n: int) -> int:
        return n + self.more


def scaled(n: int, factor: int) -> int:
    return n * factor


SHOP = Shop(0.5)
discount = step(SHOP.discount)
add = step("add")(Adder(3))
tenfold = step(name="tenfold")(functools.partial(scaled, factor=10))


@workflow
async def buys(ctx: Context, n: int) -> float:
    assert_type(await Shop.tax(2.0), float)
    assert_type(await discount(n), float)
    assert_type(await add(n), int)
    assert_type(await tenfold(n), int)
    return await discount(n) + await add(n) + await tenfold(n)


if __name__ == "__main__":
    with Environment(store="memory:") as environment:
        assert environment.start(buys, {"n": 2}).result() == 1 + 5 + 20
    assert_type(discount.fn(3), float)
