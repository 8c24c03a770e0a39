"""An MCP server of 2025 without the SDK, so that it starts fast and can do wrong what the SDK would not.

``python rough.py WAY``: how it misbehaves, or ``good``.
"""

import itertools
import json
import os
import signal
import sys
import time
from pathlib import Path

WAY, *MORE = (*sys.argv[1:], "good")
LISTED = itertools.count(1)
NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def say(text):
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def send(**message):
    say(json.dumps({"jsonrpc": "2.0", **message}).replace(json.dumps(DEEP), nested(LEVELS)))


def asked(method, params):
    """Ask the client something, and return what it answers."""
    send(id="own-1", method=method, params=params)
    answer = json.loads(sys.stdin.readline())
    return answer.get("result") or answer["error"]["message"]


def tool(name, **more):
    return {"name": name, "description": f"Do {name}.", "inputSchema": {"type": "object"}, **more}


def nested(levels):
    """Return a schema of that many levels as JSON. No encoder writes more levels than the stack of its Python has."""
    return '{"type": "object", "properties": {"a": ' * levels + '{"type": "object"}' + "}}" * levels


DEEP = "the deep schema"
LEVELS = int(MORE[0]) if MORE and MORE[0].isdigit() else 0
ELSEWHERE = {"type": "object", "properties": {"a": {"$ref": MORE[0] if MORE else "#"}}}
BACKTRACKS = {"type": "object", "properties": {"n": {"type": "string", "pattern": "^(a|aa)+$"}}}
TOOLS = {
    "deep": [tool("fine"), tool("deep", inputSchema=DEEP)],
    "refers": [
        tool("fine"),
        tool("asks", inputSchema=ELSEWHERE),
        tool("gives", outputSchema=ELSEWHERE),
    ],
    "backtracks": [tool("go", outputSchema=BACKTRACKS)],
    "names": [tool("a b"), tool("x" * 65), tool("fine"), tool("fine")],
    "long": [tool("fine"), tool("long", description="x" * 200_000)],
    "lies": [tool("go", outputSchema=NUMBER, annotations={"readOnlyHint": True, "destructiveHint": True})],
    "many": [tool(f"tool{number}") for number in range(2001)],
    "no-list": "none",
    "offers": [tool(name) for name in MORE[:-1]],
}


def listed():
    number = next(LISTED)
    if WAY == "changes":
        return {"tools": [tool(f"tool{number}")]}
    if WAY == "endless":
        return {"tools": [tool(f"tool{number}")], "nextCursor": str(number)}
    return {"tools": TOOLS.get(WAY, [tool("go", annotations={"readOnlyHint": True, "idempotentHint": True})])}


def hangs():
    time.sleep(3600)


def floods():
    for number in range(2_000):
        send(method="notifications/message", params={"level": "info", "data": number})


def garbage():
    for _ in range(200):
        say("Loading model ...")


def prints():
    say("Loading model ...")


def malformed():
    return {"content": [{"type": "text"}]}


def lies():
    return {"content": [], "structuredContent": {"n": "many"}}


def backtracks():
    return {"content": [], "structuredContent": {"n": "a" * 90 + "!"}}


def samples():
    return asked("sampling/createMessage", {"messages": [], "maxTokens": 9})


def asks():
    return json.dumps(asked("elicitation/create", {"message": "Which colour?", "requestedSchema": COLOUR}))


def dies():
    os._exit(3)


def dies_once():
    if not Path(MORE[0]).exists():
        Path(MORE[0]).touch()
        os._exit(3)


CALLED = {function.__name__.replace("_", "-"): function for function in (hangs, floods, garbage, prints, malformed)}
CALLED |= {function.__name__.replace("_", "-"): function for function in (lies, samples, asks, dies, dies_once)}
CALLED["backtracks"] = backtracks


def called():
    found = CALLED.get(WAY, lambda: None)() or f"{WAY} {os.getpid()}"
    if isinstance(found, dict) and "content" in found:
        return found
    return {"content": [{"type": "text", "text": found if isinstance(found, str) else json.dumps(found)}]}


def initialized(params):
    server = {"name": "rough", "version": "1"}
    return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": server}


def answer(message):
    match message["method"]:
        case "initialize":
            send(id=message["id"], result=initialized(message["params"]))
        case "tools/list":
            send(id=message["id"], result=listed())
        case "tools/call":
            send(id=message["id"], result=called())
        case _:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})


def main():
    if WAY == "ignores":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    if WAY == "refuses":
        sys.exit("no licence")
    if WAY == "silent":
        hangs()
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message)
    if WAY == "ignores":
        hangs()


if __name__ == "__main__":
    main()
