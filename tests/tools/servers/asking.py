"""An MCP server of 2025 whose tool asks its client during a call what the call's arguments say.

``asks`` are the requests, one after the other: ``[method, params]``. The tool returns what it was told, as JSON; with
``ends`` it returns after the last request without waiting for an answer, and with ``dies`` it ends its process then.
Each answer is appended as a line to the file that the first argument names, if there is one.
"""

import json
import os
import queue
import sys
import threading
from pathlib import Path

TOLD = Path(sys.argv[1]) if len(sys.argv) > 1 else None
LOCK = threading.Lock()
ANSWERS = {}


def send(**message):
    with LOCK:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def noted(told):
    if TOLD is not None:
        with LOCK, TOLD.open("a") as file:
            file.write(json.dumps(told) + "\n")


def called(call, asks, way):
    told = []
    for number, (method, params) in enumerate(asks):
        own = f"own-{call}-{number}"
        ANSWERS[own] = queue.Queue()
        send(id=own, method=method, params=params)
        if number == len(asks) - 1 and way.get("dies"):
            os._exit(3)
        if number == len(asks) - 1 and way.get("ends"):
            break
        told.append(ANSWERS[own].get())
    send(id=call, result={"content": [{"type": "text", "text": json.dumps(told)}]})


def main():
    tool = {"name": "ask", "description": "Ask.", "inputSchema": {"type": "object"}}
    for line in sys.stdin:
        message = json.loads(line)
        params = message.get("params", {})
        match message.get("method"):
            case None:
                told = message.get("result", message.get("error"))
                noted(told)
                ANSWERS[message["id"]].put(told)
            case "initialize":
                server = {"name": "asking", "version": "1"}
                answer = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
                send(id=message["id"], result={**answer, "serverInfo": server})
            case "tools/list":
                send(id=message["id"], result={"tools": [tool]})
            case "tools/call":
                way = params.get("arguments", {})
                given = message["id"], way.get("asks", []), way
                threading.Thread(target=called, args=given, daemon=True).start()
            case _ if "id" in message:
                send(id=message["id"], error={"code": -32601, "message": "Method not found"})


if __name__ == "__main__":
    main()
