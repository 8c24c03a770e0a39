"""Small pipelines whose stages follow a script and note their calls."""

import threading

from divebook import Environment, ScriptedModel
from divebook.pipeline import Pipeline, StageResult, create_envelope
from divebook.stores import MemoryStore
from tests.runtime.test_resuming import FixedChance, StoppedClock


class Script:
    """Stage functions that return what they are told to, in turn; the last one repeats."""

    def __init__(self, **results):
        self.results, self.calls, self._lock = results, [], threading.Lock()

    def services(self, config):
        return {agent["name"]: self._service(agent["name"]) for agent in config["agents"]}

    def _service(self, name):
        async def serve(envelope):
            with self._lock:
                turn = self.calls.count(name)
                self.calls.append(name)
            results = self.results.get(name, [{}])
            told = results[min(turn, len(results) - 1)]
            if isinstance(told, Exception):
                raise told
            return told(envelope) if callable(told) else told

        return serve


class ModelServerError(Exception):
    """What a provider says that is down for a moment."""


class Stumbling(ScriptedModel):
    """A model whose provider is down for the first requests."""

    down = 2

    def reply(self, prompt):
        text = super().reply(prompt)
        if self.calls <= self.down:
            raise ModelServerError("503")
        return text


def asks(kind, id="q", output=None, **details):
    """Return a stage's function that raises a question."""

    def ask(envelope):
        envelope.set_interrupt(kind, id, **details)
        return output or {}

    return ask


def counted(output, llm_calls):
    return StageResult(output, llm_calls)


def chain(*names, **settings):
    """Return a pipeline of stages that lead one to the next."""
    following = [*names[1:], "end"]
    agents = [
        {"name": name, "stage_order": position, "default_next": after}
        for position, (name, after) in enumerate(zip(names, following, strict=True))
    ]
    return {"name": "p", "max_llm_calls": 50, "max_agent_hops": 50, "agents": agents, **settings}


def flat(**stages):
    """Return a pipeline of stages by name, each with its settings."""
    agents = [{"name": name, "stage_order": order, **own} for order, (name, own) in enumerate(stages.items())]
    return {"name": "p", "max_llm_calls": 50, "max_agent_hops": 50, "agents": agents}


def envelope(**details):
    return create_envelope("Do it", "ann", "s1", **details)


def world(store=None, **settings):
    """Return an environment whose clock moves only when somebody sleeps."""
    settings.setdefault("clock", StoppedClock())
    return Environment(store=store or MemoryStore(), chance=FixedChance(), **settings)


def pipeline(config, script=None, **settings):
    return Pipeline(config, services=(script or Script()).services(config), **settings)


def went(envelope):
    """Return the stages an envelope was in, in order."""
    return [record.agent for record in envelope.processing_history]
