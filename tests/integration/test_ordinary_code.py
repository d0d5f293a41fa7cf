# SPDX-License-Identifier: Apache-2.0
"""Ordinary code works: what people and models write, by the tools of this machine's /usr."""
import subprocess
import textwrap

import cloche
import pytest
import shape

pytestmark = pytest.mark.needs("native", "python")
ROOM = ["--timeout", "60s", "--cpus", "2", "--memory", "512m"]


def sh(script, *options, **kw):
    r = cloche.run(["bash", *ROOM, *options, "-c", "set -e\n" + textwrap.dedent(script)], timeout=120, **kw)
    shape.exited(r, 0)
    assert r.oom_kills == 0 and set(r.limits_hit) <= {"output"}, r
    return r.out.decode()


def py(code, *options, **kw):
    r = cloche.python(textwrap.dedent(code), *ROOM, *options, timeout=120, **kw)
    shape.exited(r, 0)
    return r.out.decode()


def test_stdlib():
    assert py("""
        import asyncio, bz2, concurrent.futures, csv, datetime, decimal, gzip, hashlib, io, json, locale, lzma, os, platform
        import queue, random, re, secrets, select, shutil, signal, socket, socketserver, ssl, statistics, struct, subprocess
        import tarfile, tempfile, threading, time, unicodedata, urllib.request, uuid, xml.etree.ElementTree as ET, zipfile, zlib
        import fcntl, getpass, grp, http.server, mmap, pathlib, pickle, pwd, resource, selectors, zoneinfo
        done = []
        def step(name, ok):
            assert ok, name
            done.append(name)
        with tempfile.TemporaryDirectory() as d:
            p = pathlib.Path(d) / "é f"
            p.write_text("text\\n" * 1000)
            step("read", p.read_text().count("text") == 1000)
            for opener in (gzip.open, bz2.open, lzma.open):
                with opener(d + "/z", "wb") as f: f.write(b"z" * 10000)
                with opener(d + "/z", "rb") as f: step(opener.__module__, f.read() == b"z" * 10000)
            with zipfile.ZipFile(d + "/a.zip", "w") as z: z.write(p, "x")
            with tarfile.open(d + "/a.tar.xz", "w:xz") as t: t.add(p, "x")
            with zipfile.ZipFile(d + "/a.zip") as z: step("zip", z.read("x") == p.read_bytes())
            with tarfile.open(d + "/a.tar.xz") as t: step("tar", t.getmember("x").size == 5000)
            os.link(p, d + "/hard"); os.symlink("hard", d + "/soft"); os.rename(d + "/hard", d + "/h2"); os.mkfifo(d + "/fifo")
            os.chmod(p, 0o600); os.truncate(p, 3); os.utime(p, (1, 2))
            step("stat", (p.stat().st_size, p.stat().st_mtime, p.stat().st_nlink) == (3, 2, 2) and pathlib.Path(d, "fifo").is_fifo())
            with open(d + "/lock", "w") as f: fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(d + "/map", "wb+") as f:
                f.truncate(8192)
                with mmap.mmap(f.fileno(), 0) as m: m[4096] = 7
                step("mmap", f.seek(4096) and f.read(1) == b"\\7")
            shutil.copytree(d, d + "2", symlinks=True, ignore=shutil.ignore_patterns("fifo")); shutil.rmtree(d + "2")
            step("disk", shutil.disk_usage(d).total > 0)
        step("subprocess", subprocess.run("echo $0; cat", shell=True, input=b"in", capture_output=True).stdout == b"/bin/sh\\nin")
        with concurrent.futures.ThreadPoolExecutor(8) as e: step("threads", sum(e.map(len, ["ab"] * 100)) == 200)
        async def main():
            s = await asyncio.start_server(lambda r, w: (w.write(b"hello"), w.close()), "127.0.0.1", 0)
            r, w = await asyncio.open_connection(*s.sockets[0].getsockname())
            p = await asyncio.create_subprocess_exec("true")
            return await r.read(), await p.wait()
        step("asyncio", asyncio.run(main()) == (b"hello", 0))
        class H(http.server.BaseHTTPRequestHandler):
            def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(self.path.encode())
            def log_message(self, *_): pass
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            class S(http.server.ThreadingHTTPServer): address_family = family
            s = S((host, 0), H)
            threading.Thread(target=s.serve_forever, daemon=True).start()
            url = f"http://{'[::1]' if ':' in host else host}:{s.server_port}/x"
            step(url[:12], urllib.request.urlopen(url, timeout=5).read() == b"/x")
            s.shutdown()
        a, b = socket.socketpair(); a.send(b"x"); step("socketpair", b.recv(1) == b"x")
        step("localhost", socket.gethostbyname("localhost") == "127.0.0.1")
        signal.signal(signal.SIGALRM, lambda *_: done.append("alarm")); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.1)
        step("alarm", done[-1] == "alarm")
        step("pwd", pwd.getpwuid(os.getuid()).pw_name == getpass.getuser() == "nobody" and grp.getgrgid(os.getgid()).gr_name == "nogroup")
        step("expanduser", os.path.expanduser("~") == "/tmp")
        step("zone", str(datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")).utcoffset()) == "9:00:00")
        step("utc", time.tzname[0] == "UTC" and abs(time.time() - time.clock_gettime(time.CLOCK_REALTIME)) < 1)
        step("ssl", len(ssl.create_default_context().get_ca_certs()) > 50)
        step("cpu", len(os.sched_getaffinity(0)) >= 1 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0)
        step("urandom", len({secrets.token_hex(8) for _ in range(100)}) == 100)
        step("devices", open("/dev/zero", "rb").read(2) == b"\\0\\0" and open("/dev/null", "w").write("x") == 1 and len(open("/dev/urandom", "rb").read(4)) == 4)
        step("fd", os.listdir("/proc/self/fd") and open("/dev/stdin") and os.readlink("/proc/self/exe"))
        print("ok", len(done))
    """).startswith("ok ")


def test_standard_streams_by_name():
    """Through /dev and /proc, as shell scripts do."""
    r = cloche.run(["bash", "-c", "cat /dev/stdin; echo out >/dev/stdout; echo err >/dev/stderr; echo both | tee /dev/stderr; "
                    "echo fd >/proc/self/fd/1"], stdin="in\n")
    shape.exited(r, 0)
    assert (r.out, r.err) == (b"in\nout\nboth\nfd\n", b"err\nboth\n")


def test_multiprocessing():
    assert py("""
        import multiprocessing as m, multiprocessing.shared_memory as s, os
        if __name__ == "__main__":
            with m.Pool(4) as p: print(p.map(abs, range(-5, 0)))
            x = s.SharedMemory(create=True, size=100); x.buf[0] = 9; y = s.SharedMemory(x.name); print(y.buf[0]); y.close(); x.close(); x.unlink()
            q, l, v = m.Queue(), m.Lock(), m.Value("i", 0)
            p = m.Process(target=q.put, args=("item",)); p.start(); print(q.get(timeout=10)); p.join()
            print(m.Semaphore(1).acquire(timeout=1))
    """) == "[5, 4, 3, 2, 1]\n9\nitem\nTrue\n"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_multiprocessing_methods(method, tmp_path):
    (tmp_path / "m.py").write_text(f"import multiprocessing as m\nif __name__ == '__main__':\n m.set_start_method('{method}')\n"
                                   " with m.Pool(2) as p: print(p.map(abs, [-1, -2]))\n")
    r = cloche.run(["python", *ROOM, "m.py"], cwd=tmp_path)
    shape.exited(r, 0)
    assert r.out == b"[1, 2]\n"


def test_sqlite_wal():
    assert py("""
        import sqlite3, threading
        def connect():
            c = sqlite3.connect("/workspace/db", timeout=20); c.execute("pragma journal_mode=wal"); return c
        c = connect(); print(c.execute("pragma journal_mode").fetchone()[0]); c.execute("create table t(x)"); c.commit()
        def work():
            c = connect()
            for i in range(50):
                with c: c.execute("insert into t values(?)", (i,))
        ts = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in ts]; [t.join() for t in ts]
        print(c.execute("select count(*), sum(x) from t").fetchone())
    """) == "wal\n(200, 4900)\n"


@pytest.mark.needs("sqlite3")
def test_sqlite_shell():
    assert sh("sqlite3 db 'create table t(a); insert into t values(41); select a + 1 from t'") == "42\n"


@pytest.mark.needs("numpy")
def test_numpy_with_threads():
    assert py("""
        import numpy as np, threading
        rng = np.random.default_rng(1); a = rng.random((300, 300)); out = []
        ts = [threading.Thread(target=lambda: out.append(np.allclose(np.linalg.inv(a) @ a, np.eye(300)))) for _ in range(4)]
        [t.start() for t in ts]; [t.join() for t in ts]
        np.save("/workspace/a.npy", a); m = np.load("/workspace/a.npy", mmap_mode="r")
        print(out, np.array_equal(a, m), np.fft.fft(a).shape)
    """) == "[True, True, True, True] True (300, 300)\n"


@pytest.mark.needs("node")
def test_node():
    code = textwrap.dedent("""
        const http = require('http'), {Worker, isMainThread} = require('worker_threads'), cp = require('child_process'), fs = require('fs');
        const server = http.createServer((q, s) => s.end('path ' + q.url)).listen(0, '127.0.0.1', async () => {
          const text = await (await fetch(`http://127.0.0.1:${server.address().port}/x`)).text();
          server.close();
          const worker = await new Promise(r => new Worker("require('worker_threads').parentPort.postMessage(6*7)", {eval: true}).on('message', r));
          const child = cp.execSync('echo child; id -u').toString().trim().split('\\n');
          fs.writeFileSync('/workspace/f', 'file'); await fs.promises.cp('/workspace/f', '/workspace/g');
          const big = JSON.stringify(Array.from({length: 1e5}, (_, i) => i)).length;
          const sum = require('crypto').createHash('sha256').update('x').digest('hex').slice(0, 8);
          const gz = require('zlib').gunzipSync(require('zlib').gzipSync('zip')).toString();
          console.log([text, worker, ...child, fs.readFileSync('/workspace/g', 'utf8'), big, sum, gz].join('|'));
        });
    """)
    r = cloche.run(["node", *ROOM, "-"], stdin=code)
    shape.exited(r, 0)
    assert r.out == b"path /x|42|child|65534|file|588891|2d711642|zip\n"


@pytest.mark.needs("npm")
def test_npm_offline(tmp_path):
    package = tmp_path / "greet"
    package.mkdir()
    (package / "package.json").write_text('{"name": "greet", "version": "1.0.0", "main": "i.js", "bin": {"greet": "./cli.js"}}')
    (package / "i.js").write_text("module.exports = n => `hello ${n}`\n")
    (package / "cli.js").write_text("#!/usr/bin/env node\nconsole.log(require('./i.js')('cli'))\n")
    out = sh("""
        export npm_config_cache=/workspace/.npm npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false
        cd greet && npm pack --silent && mkdir ../app && cd ../app && npm init -y >/dev/null
        npm install --offline --silent ../greet/greet-1.0.0.tgz
        node -e "console.log(require('greet')('npm'))"
        npx --offline greet
        npm pkg set scripts.test="node -e 'console.log(1+1)'" && npm test --silent
    """, "--in", package, "--pids-limit", "128", "--memory", "1g")
    assert out == "greet-1.0.0.tgz\nhello npm\nhello cli\n2\n"


@pytest.mark.needs("gcc")
def test_gcc():
    assert sh(r"""
        cat >h.c <<'X'
        #include <math.h>
        #include <pthread.h>
        #include <stdio.h>
        static void *work(void *p) { *(double *)p = sqrt(*(double *)p); return NULL; }
        int main(void) { double d = 1764; pthread_t t; pthread_create(&t, NULL, work, &d); pthread_join(t, NULL); printf("%.0f\n", d); }
        X
        gcc -O2 -Wall -Werror -pipe -o h h.c -pthread -lm && ./h
        gcc -shared -fPIC -xc -o l.so - <<<'int answer(void) { return 43; }'
        python3 -c "import ctypes; print(ctypes.CDLL('./l.so').answer())"
    """) == "42\n43\n"


@pytest.mark.needs("g++")
def test_gpp():
    assert sh(r"""
        g++ -std=c++17 -o h -xc++ - <<<'#include <iostream>
        #include <vector>
        int main() { try { std::vector<int>().at(1); } catch (std::exception &) { std::cout << "caught\n"; } }'
        ./h
    """) == "caught\n"


@pytest.mark.needs("gcc")
def test_make():
    assert sh(r"""
        mkdir src; for i in 1 2 3 4; do echo "int f$i(void) { return $i; }" >src/f$i.c; done
        echo 'int f1(void); int f4(void); int main(void) { return f1() + f4(); }' >src/main.c
        printf 'O := $(patsubst src/%%.c,o/%%.o,$(wildcard src/*.c))\nprog: $O\n\t$(CC) -o $@ $^\no/%%.o: src/%%.c | o\n\t$(CC) -c -o $@ $<\no:\n\tmkdir $@\n.PHONY: sub\nsub:\n\t$(MAKE) -C src -f ../none.mk\n' >Makefile
        echo 'all:; @echo recursive' >none.mk
        make -j4 >/dev/null; ./prog || echo $?
        make -q && echo "up to date"; touch src/f1.c; make -n | head -1; make -s sub --no-print-directory
    """) == "5\nup to date\ncc -c -o o/f1.o src/f1.c\nrecursive\n"


def test_cp_a_keeps_what_there_is():
    out = sh("""
        umask 022; mkdir -p a/b; echo 1 >a/f; ln a/f a/hard; ln -s f a/soft; mkfifo a/fifo; chmod 640 a/f
        touch -h -d '2001-02-03 04:05:06 UTC' a/b a/f a/soft a/fifo
        cp -a a c; stat -c '%n %a %F %Y' c/b c/f c/soft c/fifo; test c/f -ef c/hard && echo linked
        mv c /tmp/c; mv /tmp/c d; stat -c '%n %a %Y' d/f
    """)
    assert out == ("c/b 755 directory 981173106\nc/f 640 regular file 981173106\nc/soft 777 symbolic link 981173106\n"
                   "c/fifo 644 fifo 981173106\nlinked\nd/f 640 981173106\n")


def test_fifo():
    assert sh("mkfifo p; (echo through >p) & cat p; wait") == "through\n"


def test_small_tools():
    assert sh("""
        timeout 0.1 sleep 5 || echo $?; nice -n 5 echo nice; date -u +%Z; stdbuf -o0 echo buf; taskset -c 0 echo task 2>&1
        echo x >g; chown 65534:65534 g; install -m 750 -D g e/x; stat -c %a e/x; tar cf - e | tar tf - | wc -l
        printf 'b\\na\\n' | sort | tr a-z A-Z | paste -sd,; seq 3 | xargs -P 3 -n 1 echo | wc -l; echo '{"a":1}' | sed s/1/2/ | awk -F: '{print $2}'
        mktemp -d | cut -c1-9; df -P . | tail -1 | awk '{print $6}'; flock g echo locked; setsid -w echo session
    """) == "124\nnice\nUTC\nbuf\ntask\n750\n2\nA,B\n3\n2}\n/tmp/tmp.\n/workspace\nlocked\nsession\n"


def test_bash_pipelines():
    assert sh(r"""
        cat <(echo proc) <<<unused; diff <(seq 3) <(seq 3) && echo same; seq 100000 | tail -1 | { read n; echo $((n + 1)); }
        coproc cat; echo to >&${COPROC[1]}; read line <&${COPROC[0]}; echo $line; exec {COPROC[1]}>&-
        yes | head -1; set +e; false | true; echo ${PIPESTATUS[*]}; trap 'echo bye' EXIT; (exit 3); echo $?; echo "$(echo sub)" >/dev/stderr
        for i in 1 2 3; do sleep 0.0$i & done; wait; echo $(jobs | wc -l); [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}; exec 3<>f; echo three >&3; cat f
    """) == "proc\nsame\n100001\nto\ny\n1 0\n3\n0\nc\nthree\nbye\n"


@pytest.mark.needs("git")
def test_git(tmp_path):
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@y", "-C", tmp_path / "repo"]
    subprocess.run(["git", "init", "-q", "-b", "main", tmp_path / "repo"], check=True)
    (tmp_path / "repo" / "f").write_text("one\n")
    subprocess.run([*git, "add", "f"], check=True)
    subprocess.run([*git, "commit", "-qm", "first"], check=True)
    script = """
        git clone -q {} new; cd new; git log --format=%s; echo two >>f; git -c user.name=a -c user.email=b commit -qam second
        git diff --stat HEAD~1 | tail -1; git push -q origin HEAD:side; git gc -q; git fsck --no-progress; git status -s | wc -l
        git worktree add -q ../tree side; cat ../tree/f; git archive HEAD | tar t; git stash list | wc -l
    """
    want = "first\n 1 file changed, 1 insertion(+)\n0\none\ntwo\nf\n0\n"
    assert sh(script.format("/workspace/repo"), "--in", tmp_path / "repo") == want
    assert sh(script.format("file:///workspace/repo").replace("git push -q origin HEAD:side", "git branch side"),
              "--in", tmp_path / "repo") == want
    out = sh("git clone -q /data new && git -C new log --format=%s && git -C /data status -s | wc -l", "-v",
             f"{tmp_path}/repo:/data:ro")
    assert out == "first\n0\n"


@pytest.mark.needs("perl")
def test_perl():
    assert sh(r"""
        perl -MPOSIX -MList::Util=sum -MJSON::PP -MTime::HiRes=sleep -MFile::Temp=tempfile -MSocket -e '
        my ($f, $n) = tempfile(); print $f "x"; close $f; print -s $n, "\n"; print sum(1..10), "\n"; print encode_json([1,"a"]), "\n";
        my $p = fork // die; if (!$p) { exit 7 } waitpid $p, 0; print $? >> 8, "\n"; socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, 0) or die;
        print `echo sub`; print strftime("%Y", gmtime 0), "\n"'
    """) == '1\n55\n[1,"a"]\n7\nsub\n1970\n'


def wheel(folder):
    """A wheel as pip wants it, made by hand."""
    import base64
    import hashlib
    import zipfile
    files = {"ours/__init__.py": "answer = 42\n", "ours-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: ours\nVersion: 1.0\n",
             "ours-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             "ours-1.0.dist-info/entry_points.txt": "[console_scripts]\nours = ours:__name__.upper\n"}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n"
                     for n, t in files.items()) + "ours-1.0.dist-info/RECORD,,\n"
    with zipfile.ZipFile(folder / "ours-1.0-py3-none-any.whl", "w") as z:
        for n, t in {**files, "ours-1.0.dist-info/RECORD": record}.items():
            z.writestr(n, t)
    return folder / "ours-1.0-py3-none-any.whl"


@pytest.mark.needs("venv")
def test_pip_offline(tmp_path):
    w = wheel(tmp_path)
    out = sh("""
        python3 -m venv v; . v/bin/activate; pip install -q --no-index --find-links . --disable-pip-version-check ours
        cd /; python -c 'import ours; print(ours.answer, ours.__file__)'; pip list --disable-pip-version-check | grep ours
    """, "--in", w).split()
    assert out[0] == "42" and out[1].startswith("/workspace/v/lib/python3") and out[2:] == ["ours", "1.0"]


def test_pip_target(tmp_path):
    """Without a virtual environment."""
    if subprocess.run(["/usr/bin/python3", "-m", "pip", "--version"], stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no pip in /usr")
    out = sh("python3 -m pip install -q --no-index --target lib --disable-pip-version-check ./ours-1.0-py3-none-any.whl\n"
             "PYTHONPATH=lib python3 -c 'import ours; print(ours.answer)'", "--in", wheel(tmp_path))
    assert out == "42\n"


def test_unittest(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "test_x.py").write_text("import unittest\nclass T(unittest.TestCase):\n def test(self): self.assertEqual(1, 1)\n"
                                              " def test_no(self): self.assertEqual(1, 2)\n")
    r = cloche.run(["run", *ROOM, "--in", tmp_path / "t", "--workdir", "/workspace/t", "python3", "-m", "unittest"])
    shape.exited(r, 1)
    assert b"Ran 2 tests" in r.err and b"FAILED (failures=1)" in r.err


@pytest.mark.needs("java")
def test_java():
    r = cloche.run(["run", *ROOM, "--memory", "1g", "--pids-limit", "256", "java", "-version"])
    shape.exited(r, 0)
    assert b"openjdk version" in r.err or b"OpenJDK" in r.err
    assert b"MaxRAM=1073741824" in r.err


@pytest.mark.needs("java")
def test_java_program(tmp_path):
    (tmp_path / "H.java").write_text(textwrap.dedent("""
        import java.nio.file.*; import java.util.concurrent.*; import java.util.stream.*;
        public class H { public static void main(String[] a) throws Exception {
          Files.writeString(Path.of("/tmp/x"), "file");
          ExecutorService e = Executors.newFixedThreadPool(4); int s = 0;
          for (Future<Integer> f : e.invokeAll(IntStream.range(0, 10).mapToObj(i -> (Callable<Integer>) () -> i).collect(Collectors.toList()))) s += f.get();
          e.shutdown();
          System.out.println(Files.readString(Path.of("/tmp/x")) + " " + s + " " + (Runtime.getRuntime().maxMemory() >> 20 <= 768));
        } }
    """))
    r = cloche.run(["run", *ROOM, "--memory", "1g", "--pids-limit", "256", "--in", tmp_path / "H.java", "java", "-version"])
    if not subprocess.run(["java", "--list-modules"], stdout=subprocess.PIPE, text=True).stdout.count("jdk.compiler"):
        pytest.skip("java here has no compiler")
    r = cloche.run(["run", *ROOM, "--memory", "1g", "--pids-limit", "256", "--in", tmp_path / "H.java", "java", "H.java"])
    shape.exited(r, 0)
    assert r.out == b"file 45 true\n"
