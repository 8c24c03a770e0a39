"""Bookings that are undone, and workflows that make them."""

from divebook import Each, Step, Workflow
from divebook.definitions.functions import step, workflow
from divebook.steps.actions import Action


class Travel:
    """Bookings and what was done with them."""

    def __init__(self):
        self.told, self.refusing, self.broken = [], set(), True

    def actions(self):
        def book(what):
            self.told.append(f"book {what}")
            return {"id": f"{what}-1"}

        def cancel(booking):
            if booking in self.refusing:
                raise ConnectionError(f"no line to {booking}")
            self.told.append(f"cancel {booking}")

        def fly():
            if self.broken:
                raise ValueError("no room")

        return [
            Action("book", book, idempotent=True),
            Action("cancel", cancel, idempotent=True),
            Action("fly", fly, idempotent=True),
        ]


def undone(booking="$(result.id)", **options):
    return {"action": "cancel", "parameters": {"booking": booking}, **options}


def trip(*last, **options):
    hotels = Each(["oslo", "rome"], "item", **options)
    steps = [
        Step("train", action="book", parameters={"what": "train"}, store="train", rollback=undone("$(state.train.id)")),
        Step("hotels", action="book", parameters={"what": "${item}"}, each=hotels, rollback=undone()),
        *(last or [Step("flight", action="fly")]),
    ]
    return Workflow("trip", steps)


ALL = ["book train", "book oslo", "book rome", "cancel rome-1", "cancel oslo-1", "cancel train-1"]


def functions(told, *, fails=True):
    def unbook(what, result):
        told.append(f"undo {what} {result}")

    @step(rollback=unbook, idempotent=True)
    def book(what, nights=1):
        told.append(f"book {what}")
        return nights * 10

    @workflow
    async def journey(ctx):
        await book("train")
        await ctx.gather(book("oslo", 2), book("rome", nights=3))
        if fails:
            raise ValueError("late")
        await ctx.wait_signal("go")

    return journey
