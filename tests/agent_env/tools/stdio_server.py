"""A small MCP server that needs nothing but Python: counts, hangs, dies and babbles.

It runs in a sandbox, which has only the system's programs.
"""

import json
import os
import sys
import time

count = 0


def answer(id: object, result: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}) + "\n")
    sys.stdout.flush()


def text(said: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": said}], **more}


def call(name: str) -> dict[str, object]:
    global count
    if name == "count":
        count += 1
        return text(str(count))
    if name == "where":
        return text(os.getcwd() + " " + os.environ.get("WHO", ""))
    if name == "fail":
        return text("it does not work", isError=True)
    if name == "die":
        sys.exit(3)
    if name == "hang":
        time.sleep(600)
    if name == "babble":
        line = "x" * 65536
        while True:
            sys.stdout.write(line)
    if name == "much":
        return text("y" * 1_000_000)
    if name == "picture":
        image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        return {"content": [{"type": "text", "text": "look"}, image]}
    return text("no such tool", isError=True)


NAMES = ["count", "where", "fail", "die", "hang", "babble", "much", "picture"]
sys.stdout.write("starting\n")  # as some do, before they speak the protocol
for line in sys.stdin:
    message = json.loads(line)
    method, id = message["method"], message.get("id")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "small", "version": "1"}
        answer(id, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        schema = {"type": "object"}
        answer(id, {"tools": [{"name": n, "description": n, "inputSchema": schema} for n in NAMES]})
    elif method == "tools/call":
        answer(id, call(message["params"]["name"]))
    elif id is not None:
        answer(id, {})
