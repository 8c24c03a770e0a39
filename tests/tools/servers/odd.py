"""An MCP server of 2025 with the tools that its first argument lists as JSON; each returns its own name.

A tool ``fails`` is an error, whatever its arguments. A text ``DEEP:n`` in the list stands for a schema of n levels.
"""

import json
import sys


def deep(levels):
    schema = {"type": "object"}
    for _ in range(levels // 2):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def made(given):
    if isinstance(given, dict) and str(given.get("inputSchema", "")).startswith("DEEP:"):
        return {**given, "inputSchema": deep(int(given["inputSchema"].partition(":")[2]))}
    return given


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(said, tools):
    match said.get("method"):
        case "initialize":
            server, version = {"name": "odd", "version": "1"}, said["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
            send(id=said["id"], result=result)
        case "tools/list":
            send(id=said["id"], result={"tools": tools})
        case "tools/call":
            text = {"type": "text", "text": f"called {said['params']['name']}"}
            send(id=said["id"], result={"content": [text], "isError": said["params"]["name"] == "fails"})
        case _ if "id" in said:
            send(id=said["id"], error={"code": -32601, "message": "no"})


def main():
    tools = [made(tool) for tool in json.loads(sys.argv[1])]
    for line in sys.stdin:
        answer(json.loads(line), tools)


if __name__ == "__main__":
    main()
