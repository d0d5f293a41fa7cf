# SPDX-License-Identifier: Apache-2.0
"""What stays of an owner's runs is bounded: the owner's own oldest make room, nobody else's, and it is said what is gone."""
import json
import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor

import cloche
import contract
import pytest
import service as services

KIB = 1024


@pytest.fixture(scope="module")
def mine():
    """A service of its own, whose owners may keep little."""
    with services.Service({"quota": {"kept": "60k", "sandboxes": 100}}) as one:
        yield one


def leave(client, kib, name="f", **body):
    """A run that leaves a file of so many KiB."""
    return client.run(f"head -c {kib * KIB} /dev/zero >/output/{name}", output=True, memory="64m", **body)


def on_disk(one, *runs):
    """What the files of these runs, or of all, take."""
    root = one.folder / "state" / "artifacts"
    return sum(f.lstat().st_blocks * 512 for run in runs or ["."] for f in (root / run).rglob("*") if f.is_file())


def kept(client):
    state = client.get("/v1/quota")
    return state["used"]["kept"], state["limits"]["kept"]


def test_the_oldest_artifacts_make_room(mine):
    mine_key, other = mine.key("full", {"kept": "100k"}), mine.key("other", {"kept": "100k"})
    theirs = leave(other, 40)
    runs = [leave(mine_key, 40) for _ in range(3)]
    assert all(a["skipped"] is None and a["href"] for r in runs for a in r.artifacts)
    assert on_disk(mine, *[r.id for r in runs]) == 80 * KIB
    used, limit = kept(mine_key)
    assert 80 * KIB < used <= limit == 100 * KIB
    first = mine_key.get(f"/v1/runs/{runs[0].id}")["result"]["artifacts"]
    assert [(a["path"], a["bytes"], a["skipped"], a["href"]) for a in first] == [("f", 40 * KIB, None, None)]
    problem = mine_key.problem(404, "NOT_FOUND", "GET", runs[0].artifacts[0]["href"])
    assert "not kept any more" in problem["detail"]
    for client, run in ((mine_key, runs[1]), (mine_key, runs[2]), (other, theirs)):
        assert client.get(f"/v1/runs/{run.id}")["result"]["artifacts"][0]["href"]
        assert len(client.expect(200, "GET", run.artifacts[0]["href"]).body) == 40 * KIB
    rows = [r for r in mine.root.get("/v1/audit", limit=1000)["rows"] if r["action"] == "run.artifacts_dropped"]
    assert [(r["object"], r["details"]["owner"]) for r in rows] == [(runs[0].id, f"key:{mine_key.key_id}")]


def test_what_can_never_fit_drops_nothing(mine):
    client = mine.key("big", {"kept": "100k"})
    before = leave(client, 40)
    r = leave(client, 104)
    assert [(a["path"], a["bytes"], a["skipped"]) for a in r.artifacts
            ] == [("f", None, "no room for it in the quota of what is kept")] and "href" not in r.artifacts[0]
    assert not (mine.folder / "state" / "artifacts" / r.id).exists()
    assert len(client.expect(200, "GET", before.artifacts[0]["href"]).body) == 40 * KIB


def test_empty_files_count_as_what_they_take(mine):
    client = mine.key("inodes", {"kept": "40k"})
    r = client.run("for i in $(seq 30); do mkdir /output/$i; : >/output/$i/f; done", output=True)
    had = [a for a in r.artifacts if a["skipped"] is None]
    assert len(r.artifacts) == 30 and len(had) == 5  # a folder and a file: two blocks


def test_runs_at_once_stay_below_it(mine):
    client = mine.key("many", {"kept": "100k"})
    with ThreadPoolExecutor(6) as pool:
        runs = list(pool.map(lambda _: leave(client, 32), range(12)))
    assert on_disk(mine, *[r.id for r in runs]) <= 100 * KIB and kept(client)[0] <= 100 * KIB
    left = [r for r in runs if client.get(f"/v1/runs/{r.id}")["result"]["artifacts"][0].get("href")]
    assert left and all(client.expect(200, "GET", r.artifacts[0]["href"]).body == bytes(32 * KIB) for r in left)
    said = {a["skipped"] for r in runs for a in r.artifacts}
    assert said <= {None, "no room for it in the quota of what is kept"}


def test_results_alone_are_bounded(mine):
    client = mine.key("results", {"kept": "40k"})
    runs = [client.run("head -c 5000 /dev/zero | tr '\\0' x", memory="64m") for _ in range(12)]
    used, limit = kept(client)
    there = [client.request("GET", f"/v1/runs/{r.id}").status for r in runs]
    assert used <= limit and there == sorted(there, reverse=True) and there.count(200) >= 4 and there[-1] == 200
    listed = client.get("/v1/runs")["runs"]
    assert [r["id"] for r in listed] == [r.id for r in reversed(runs)][:len(listed)] and len(listed) == there.count(200)
    assert used == sum(len(json.dumps(r["result"], separators=(",", ":"), ensure_ascii=False)) for r in listed)


def restart(one):
    one.process.send_signal(signal.SIGTERM)
    one.process.wait(20)
    one.start()


def test_a_restart_counts_the_same(mine):
    """And a key's own quota holds for a run that ends after it, before the key has said anything."""
    client = mine.key("restarted", {"kept": "400k"})  # the default is 60k
    first = leave(client, 100)
    before = kept(client)
    with client.stream("POST", "/v1/runs?stream", json={"command": "head -c 9000 /dev/zero; sleep 2", "timeout": "60s"}) as s:
        run = s.until(lambda e: e["type"] == "started")["id"]
        os.kill(mine.process.pid, signal.SIGTERM)
        mine.process.wait(20)
    mine.start()
    contract.until(lambda: mine.root.get(f"/v1/runs/{run}")["state"] == "ended", 10)
    assert kept(client)[0] >= before[0] and kept(client)[1] == before[1] == 400 * KIB
    assert client.get(f"/v1/runs/{first.id}")["result"]["artifacts"][0]["href"]
    assert len(client.expect(200, "GET", first.artifacts[0]["href"]).body) == 100 * KIB


def test_files_of_no_run_are_removed_at_the_start(mine):
    client = mine.key("swept")
    run = leave(client, 8)
    stray = mine.folder / "state" / "artifacts" / ("run_" + "0" * 32)
    stray.mkdir()
    (stray / "f").write_bytes(b"x")
    for path in (stray, stray / "f"):
        shutil.chown(path, stray.parent.stat().st_uid)
    restart(mine)
    assert not stray.exists() and len(client.expect(200, "GET", run.artifacts[0]["href"]).body) == 8 * KIB


@pytest.mark.parametrize("keys, word", [({"session_quota": {"kept": "1m"}}, "kept is counted per owner"),
                                        ({"quota": {"kept": "much"}}, "quota kept"), ({"quota": {"keep": "1m"}}, "no such quota")])
def test_configurations_that_are_none(tmp_path, keys, word):
    config = tmp_path / "cloche.yaml"
    config.write_text(services.configuration(tmp_path, 7171, keys))
    r = cloche.run(["serve", "--check", "--config", str(config)], json=False)
    assert r.returncode == 1 and word in r.err.decode(), r
