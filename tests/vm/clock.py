# SPDX-License-Identifier: Apache-2.0
"""Runs in the VM, for test_clock.py: a service whose machine's clock is set forward and back. Prints what was seen as JSON."""
import json
import os
import sys
import threading
import time
from datetime import datetime

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import service as services  # noqa: E402

DAY, LIFE_S = 86400, 90
facts = {}


def step(seconds):
    time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)


def when(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def kill_cloched(service):
    os.kill(service.child("cloched"), 9)
    service.wait_ready(60)


def look(name, boxes):
    """Which answer, and what the service says of them."""
    facts[name] = {k: [b.object()["state"], b.exec(["echo", "hi"]).out.decode()] for k, b in boxes.items()}


def stepped_command(box, seconds):
    """How long a command with a time-out of 3 s takes when the clock is set meanwhile."""
    began = time.monotonic()
    t = threading.Timer(1, step, [seconds])
    t.start()
    r = box.exec(["sleep", "60"], timeout=3)
    t.join()
    return [r.reason, time.monotonic() - began]


with services.Service(seconds=60) as s:
    born = time.monotonic()
    short = s.root.box(memory="64m", timeout=LIFE_S)
    boxes = {"hour": s.root.box(memory="64m", timeout="1h"), "idle": s.root.box(memory="64m", timeout="2h", idle_timeout="1h"),
             "pausing": s.root.box(memory="64m", timeout="1h", on_timeout="pause")}
    look("before", boxes)
    facts["forward command"] = stepped_command(boxes["hour"], DAY)
    look("forward", boxes)
    new = s.root.box(memory="64m", timeout="1h").object()
    facts["created"] = [when(new["created_at"]) - time.time(), when(new["expires_at"]) - when(new["created_at"])]
    kill_cloched(s)
    look("forward, restarted", boxes)
    facts["back command"] = stepped_command(boxes["hour"], -2 * DAY)
    look("back", boxes)
    kill_cloched(s)
    look("back, restarted", boxes)
    while short.object()["state"] != "ended":
        time.sleep(0.2)
    facts["short"] = [short.object()["reason"], time.monotonic() - born]
    facts["renewed"] = when(boxes["hour"].renew(timeout="10m")["expires_at"]) - time.time()
    facts["audit"] = s.root.get("/v1/audit/verify")["ok"]
    facts["runs"] = sorted({r["state"] for r in s.root.get("/v1/runs", limit=1000)["runs"]})
json.dump(facts, sys.stdout)
