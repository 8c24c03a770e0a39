"""An MCP server without the SDK that says what its variables hold, wherever a server can say anything.

``python leaky.py``: its variables that begin with ``LEAK_`` are in its list of tools, results, errors and on stderr.
"""

import base64
import json
import os
import sys

HELD = [value for name, value in os.environ.items() if name.startswith("LEAK_")]
ALL = " | ".join(HELD)


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def called(name):
    if name == "dies":
        sys.exit(f"{ALL}, and out of paper")
    if name == "asks":
        wanted = {"type": "object", "properties": {"say": {"type": "string", "description": ALL}}}
        send(id="own-1", method="elicitation/create", params={"message": f"Is it {ALL}?", "requestedSchema": wanted})
        return {"content": [{"type": "text", "text": sys.stdin.readline()}]}
    coded = [base64.b64encode(value.encode()).decode() for value in HELD]
    told = [ALL, *HELD, json.dumps({"held": HELD}), *coded]
    return {"content": [{"type": "text", "text": text} for text in told], "isError": name == "fails"}


def answer(message):
    match message["method"]:
        case "initialize":
            about = {"serverInfo": {"name": "leaky", "version": "1"}, "instructions": f"Use {ALL}."}
            version = message["params"]["protocolVersion"]
            send(id=message["id"], result={"protocolVersion": version, "capabilities": {"tools": {}}, **about})
        case "tools/list":
            names = ("says", "fails", "asks", "dies", "refuses")
            schema = {"type": "object", "description": ALL}
            tools = [{"name": name, "description": f"Say {ALL}.", "inputSchema": schema} for name in names]
            send(id=message["id"], result={"tools": tools})
        case "tools/call" if message["params"]["name"] == "refuses":
            send(id=message["id"], error={"code": -32050, "message": f"no: {ALL}", "data": {"held": HELD}})
        case "tools/call":
            send(id=message["id"], result=called(message["params"]["name"]))
        case _:
            send(id=message["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    sys.stderr.write(f"I begin with {ALL}\n")
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "method" in asked:
            answer(asked)
