# SPDX-License-Identifier: Apache-2.0
"""PyPI's `mcp` drives every tool: drive.py MODE CLOCHE [ARGUMENT...] starts `cloche mcp`, drive.py MODE URL talks to a service with
the key in KEY; MODE is legacy or auto. Run by test_mcp_clients.py with the package's own interpreter; prints one JSON object of
what it saw."""
import asyncio
import json
import os
import sys

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

PLOT = """
import base64
open('/output/plot.png', 'wb').write(base64.b64decode(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='))
open('/output/t.csv', 'w').write('1,2')
print(6 * 7)
"""


async def main(mode, command, *args):
    saw, told = {}, []

    async def progress(done, total, message):
        told.append([done, total, message])

    async def call(name, arguments, **more):
        r = await client.call_tool(name, arguments, **more)
        saw[name] = {"error": r.is_error, "structured": r.structured_content, "kinds": [c.type for c in r.content],
                     "text": r.content[0].text if r.content[0].type == "text" else None}
        return r

    if command.startswith("http"):
        key = {"Authorization": f"Bearer {os.environ['KEY']}"}
        server = streamable_http_client(command, http_client=create_mcp_http_client(headers=key))
    else:
        server = StdioServerParameters(command=command, args=list(args), env=dict(os.environ))
    async with Client(server, mode=mode) as client:
        saw["revision"] = client.protocol_version
        saw["tools"] = [t.name for t in (await client.list_tools()).tools]
        await call("run_python", {"code": PLOT})
        listed = (await client.list_resources()).resources
        table = next(r for r in listed if r.name == "t.csv")
        saw["resource"] = [c.text for c in (await client.read_resource(str(table.uri))).contents]
        await call("run_node", {"code": "console.log(2 + 2)"})
        await call("run_shell", {"command": "sleep 2.3; echo err >&2; exit 3"}, progress_callback=progress)
        wrote = await call("write_file", {"path": "a.py", "content": "print('kept')"})
        which = {"sandbox": wrote.structured_content["sandbox"]} if wrote.structured_content else {}
        await call("read_file", {"path": "a.py", **which})
        await call("list_files", which)
        await call("install_packages", {"packages": ["wheelhouse-test"], **which})
        if which:
            use = {"code": "import wheelhouse_test; print(wheelhouse_test.answer)", **which}
            saw["imported"] = (await client.call_tool("run_python", use)).structured_content["stdout"]
        await call("list_sandboxes", {})
        await call("reset", which)
        slow = asyncio.create_task(client.call_tool("run_shell", {"command": f"exec sleep {os.environ['MARK']}"}))
        await asyncio.sleep(0.7)
        slow.cancel()
        try:
            await slow
        except asyncio.CancelledError:
            saw["cancelled"] = True
        parallel = await asyncio.gather(*(client.call_tool("run_python", {"code": f"print({i})"}) for i in range(5)))
        saw["parallel"] = [r.structured_content["stdout"] for r in parallel]
        saw["wrong"] = (await client.call_tool("run_python", {"cod": 1})).is_error
        try:
            await client.call_tool("no_such_tool", {})
        except Exception as e:
            saw["unknown"] = str(e)
    saw["progress"] = told
    print(json.dumps(saw))


asyncio.run(main(*sys.argv[1:]))
