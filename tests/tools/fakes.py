"""A server of tools without a process: functions by name, and a list of what it was asked."""

from divebook.definitions.servers import CallOutcome, Discovered, OfferedTool


class FakeServer:
    """Serves functions, of which each takes the arguments of a call and returns an outcome or its content."""

    def __init__(self, name="fake", hints=None, **tools):
        self.name, self.tools, self.hints = name, tools, hints or {}
        self.timeout, self.sampling, self.asked = 5.0, None, []

    async def discover(self):
        self.asked.append("discover")
        return Discovered(tuple(OfferedTool(name, f"Do {name}.", hints=self.hints) for name in self.tools), "Be brief.")

    async def call(self, tool, arguments, *, answers=None, state=None, elicit=None, repeatable=False):
        self.asked.append((tool, dict(arguments), answers, state))
        found = self.tools[tool](arguments, answers)
        return found if isinstance(found, CallOutcome) else CallOutcome(content=found)
