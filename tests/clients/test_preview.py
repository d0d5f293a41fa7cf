# SPDX-License-Identifier: Apache-2.0
"""What somebody sees who works with an agent: a dev server inside a sandbox, open in a browser outside, that shows a change
of a file at once. Vite with hot module reload over WebSocket; Chromium, by the protocol of its developer tools."""
import contextlib
import http.client
import io
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
import tempfile

import clients
import cloche
import pytest
import service as services
from contract import until
from websocket import TEXT, WebSocket

INDEX = '<!doctype html><title>preview</title><div id="app">nothing yet</div><script type="module" src="/main.js"></script>'
MAIN = """import {text} from './text.js';
const show = t => { document.querySelector('#app').textContent = t; };
show(text);
import.meta.hot.accept('./text.js', m => show(m.text));
"""


class BetweenPages(Exception):
    pass


class Browser:
    """A headless Chromium with one page."""
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="clo-chromium.")
        self.process = subprocess.Popen(
            [shutil.which("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.folder}",
             "--remote-debugging-port=0", "about:blank"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
            start_new_session=True, env={"PATH": os.environ["PATH"], "HOME": self.folder})
        for line in self.process.stderr:
            if found := re.search(rb"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
                self.port = int(found[1])
                break
        self.number = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)  # its own session: what it started
        self.process.wait()
        self.process.stderr.close()
        self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def open(self, url):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        c.request("GET", "/json")
        page = next(p for p in json.loads(c.getresponse().read()) if p["type"] == "page")
        c.close()
        self.socket = socket.create_connection(("127.0.0.1", self.port), 30)
        self.page = WebSocket(self.socket, page["webSocketDebuggerUrl"].partition(f":{self.port}")[2],
                              [f"Host: 127.0.0.1:{self.port}"])
        assert self.page.status == 101
        self.call("Page.navigate", url=url)

    def call(self, method, **params):
        self.number += 1
        self.page.send(json.dumps({"id": self.number, "method": method, "params": params}).encode(), kind=TEXT)
        while True:
            data, final = b"", False
            while not final:
                _, final, piece = self.page.receive()
                data += piece
            answer = json.loads(data)
            if answer.get("id") == self.number:
                if "not attached to an active page" in answer.get("error", {}).get("message", "").lower():
                    raise BetweenPages
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression):
        """None between two pages."""
        with contextlib.suppress(BetweenPages):
            return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def text(self):
        return self.evaluate("document.querySelector('#app')?.textContent")


@pytest.fixture(scope="module")
def packages():
    cloche.need("node")
    where, why = clients.make_node("preview")
    cloche.need("npm-clients", where is not None, f"vite from npm: {why}")
    return where


def as_tar(where):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        t.add(os.path.join(where, "node_modules"), "node_modules",
              filter=lambda m: None if m.name.startswith("node_modules/.bin") else m)
    return data.getvalue()


@pytest.fixture(scope="module")
def vite(service, packages):
    client = service.key("preview")
    box = client.box(memory="1g", cpus=2, pids_limit=256)
    assert box.unpack("/workspace", as_tar(packages)).status in (201, 204)
    for name, text in (("index.html", INDEX), ("main.js", MAIN), ("text.js", "export const text = 'first';\n"),
                       ("package.json", '{"type": "module"}')):
        box.put(f"/workspace/{name}", text.encode())
    p = box.start(["node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", "5173", "--strictPort"])
    until(lambda: b"ready in" in services.joined(p.output(), "stdout"), 60, f"vite: {p.output()}")
    yield box
    box.kill()


def test_a_page_changes_in_a_browser_outside(service, vite):
    cloche.need("chromium")
    url = vite.expect(201, "POST", "/ports/5173/share", json={}).json["url"]
    with Browser() as browser:
        browser.open(url)
        until(lambda: browser.text() == "first", 30, "the page")
        assert "cloche_token" not in browser.evaluate("location.href")
        assert "cloche_port" not in (browser.evaluate("document.cookie") or "")  # HttpOnly
        browser.evaluate("window.mark = 1")
        until(lambda: browser.evaluate("performance.getEntriesByType('resource').some(e => e.name.includes('@vite/client'))"),
              what="vite's client")

        def changed():
            """A page whose socket is not open yet is told of no change: the file is written until it was heard of."""
            vite.put("/workspace/text.js", b"export const text = 'second';\n")
            with contextlib.suppress(AssertionError):
                until(lambda: browser.text() == "second", 3, "the change in the page")
            return browser.text() == "second"
        until(changed, 30, "the change in the page")
        assert browser.evaluate("window.mark") == 1  # it was told of the change, not loaded again
        # what it may not: the API beside it
        said = browser.call("Runtime.evaluate", awaitPromise=True, returnByValue=True,
                            expression=f"fetch('http://localhost:{service.port}/healthz').then(r => r.status, e => 'refused')")
        assert said["result"]["value"] in ("refused", 403)
        vite.expect(204, "DELETE", "/ports/5173/share")
        browser.call("Page.reload")
        until(lambda: "UNAUTHENTICATED" in (browser.evaluate("document.body.innerText") or ""), 20, "the share's end")
