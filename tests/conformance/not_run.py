"""Why cases are not run as data: what divebook does otherwise by design, or does not have."""

from collections.abc import Mapping

NOT_RUN: Mapping[str, str] = {
    "continue_as_new": "a workflow itself says when it continues as new (ctx.continue_as_new); there are no thresholds",
    "operation": "operations are made by steps, never by hand",
    "orchestrator": "strategies of the old orchestrator, in words; here there are resume and fork",
    "recorder": "nothing is buffered: an event is in the store before what follows it begins",
    "retry": "Retry is a key of steps here, and says itself which errors are tried again",
    "path_state": "how the old system wrote a path as JSON; here it is a fold of the log",
    "runtime": "functions of the old scripts, in words; a StepContext has now, random, uuid and sleep",
    "state": "methods of the old state object; scripts have state.set, state.get and state.delete",
}
NOT_RUN_OF_SHAPE: Mapping[tuple[str, frozenset[str]], str] = {
    (
        "threads",
        frozenset({"thread_id", "repository"}),
    ): "threads lie in the store, which every environment has: there is no agent whose thread ids could fail",
    (
        "content",
        frozenset({"paths"}),
    ): "a function of the old system that gave a file its address: here files are read, and nothing names them so",
    (
        "agent",
        frozenset({"messages"}),
    ): "no agent gets a list of messages: a step without prompt and content is refused where it is read, and in the "
    "old dialect it asks with an empty message, as the old system's steps did",
    ("event", frozenset({"snapshot"})): "there are no snapshots: the state is a fold of the log",
    (
        "event",
        frozenset({"event_type", "data_type", "data"}),
    ): "an event has the type of its payload: no two can differ",
    ("execution_api", frozenset({"environment"})): "an environment makes executions; there are none without one",
    ("execution_api", frozenset({"definition", "cancel"})): "its note asks for the status cancelled, which it has here",
    ("event_store", frozenset({"snapshots"})): "there are no snapshots: the state is a fold of the log",
    ("event_store", frozenset({"save"})): "there are no snapshots: the state is a fold of the log",
    ("event_store", frozenset({"writers", "same_id"})): "there are no snapshots: the state is a fold of the log",
}
PROSE = "what is given or expected is prose"
