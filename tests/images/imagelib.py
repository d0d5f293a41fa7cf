# SPDX-License-Identifier: Apache-2.0
"""Archives and layouts by hand, and a store of one's own: root's /var/lib/cloche is covered by a folder of the test in
a mount namespace of its own, an ordinary user's lies where XDG_DATA_HOME says."""
import gzip
import hashlib
import io
import json
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import cloche

MTIME = 1_000_000_000
DIR, LINK, HARD, FIFO, CHAR = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE


def entry(name, data=None, kind=None, mode=None, uid=0, gid=0, link="", mtime=MTIME, pax=None, dev=(0, 0)):
    """(TarInfo, bytes or None)"""
    i = tarfile.TarInfo(name)
    i.type = kind or tarfile.REGTYPE
    i.mode = mode if mode is not None else 0o755 if kind == DIR else 0o644
    i.uid, i.gid, i.mtime, i.linkname = uid, gid, mtime, link
    i.devmajor, i.devminor = dev
    i.pax_headers = pax or {}
    i.size = len(data) if data is not None else 0
    return i, data


def tar(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data) if data is not None else None)
    return out.getvalue()


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Layout:
    """An OCI layout in a folder."""

    def __init__(self, path):
        self.path = Path(path)
        (self.path / "blobs/sha256").mkdir(parents=True)
        (self.path / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.entries = []

    def blob(self, data, digest=None):
        digest = digest or sha(data)
        (self.path / "blobs/sha256" / digest[7:]).write_bytes(data)
        return {"digest": digest, "size": len(data)}

    def image(self, tag, layers, config=None, compress=lambda x: gzip.compress(x, 6, mtime=0), media="tar+gzip", diff_ids=None, **manifest):
        """layers: archives as bytes."""
        blobs = []
        for layer in layers:
            data = compress(layer) if compress else layer
            blobs.append({"mediaType": f"application/vnd.oci.image.layer.v1.{media if compress else 'tar'}", **self.blob(data)})
        text = json.dumps({"architecture": "amd64", "os": "linux", "config": config or {},
                           "rootfs": {"type": "layers", "diff_ids": diff_ids or [sha(x) for x in layers]}}).encode()
        m = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
             "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **self.blob(text)}, "layers": blobs, **manifest}
        e = {"mediaType": "application/vnd.oci.image.manifest.v1+json", **self.blob(json.dumps(m).encode()),
             "annotations": {"org.opencontainers.image.ref.name": tag}}
        self.entries.append(e)
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": self.entries}))
        return m


class Store:
    """Where one test's images are, and cloche as it sees them."""

    def __init__(self, path, uid=0):
        self.state, self.uid = Path(path), uid
        self.etc = None  # a folder that covers /etc/cloche
        self.binary = cloche.binary_for(uid)
        self.images = self.state / "images" if uid == 0 else self.state / "cloche/images"

    def argv(self, args):
        # /var/lib/cloche/host is made anew for each store: 30 ms, once
        if self.uid == 0:
            return ["unshare", "--mount", "sh", "-c",
                    'mount --bind "$0" /var/lib/cloche && { [ -z "$1" ] || { mkdir -p /etc/cloche && mount --bind "$1" /etc/cloche; }; } && '
                    'shift && exec "$@"', str(self.state), str(self.etc or ""), self.binary, *args]
        return [self.binary, *args]

    def call(self, *args, stdin=None, check=True, **more):
        env = {**os.environ, "CLOCHE_DIRECT": "1"}
        if self.uid:
            env.update(XDG_DATA_HOME=str(self.state), HOME=str(self.state), XDG_RUNTIME_DIR=str(self.state))
            more.update(user=self.uid, group=self.uid, extra_groups=[])
        r = subprocess.run(self.argv([str(a) for a in args]), input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, **more)
        r.out, r.err = r.stdout.decode("utf-8", "replace"), r.stderr.decode("utf-8", "replace")
        assert not check or r.returncode == 0, (r.returncode, r.err)
        return r

    def configure(self, text):
        self.etc = self.state.parent / "etc"
        self.etc.mkdir(exist_ok=True)
        (self.etc / "cloche.yaml").write_text(text)

    def image(self, *args, **more):
        return self.call("image", *args, **more)

    def refuses(self, source, *words, name="bad:1", **more):
        """An import that is refused with these words, and leaves the store as it was."""
        before = self.files()
        r = self.image("import", source, name, check=False, **more)
        assert r.returncode == 1 and r.err.startswith("cloche: import"), (r.returncode, r.out, r.err)
        for w in words:
            assert w in r.err, (w, r.err)
        assert self.files() == before
        return r

    def files(self):
        """What is in the store, but for the lock."""
        if not self.images.exists():
            return []
        return sorted(str(p.relative_to(self.images)) for d in ("refs", "images", "layers", "l", "tmp", "partial", "locks")
                      for p in (self.images / d).rglob("*"))

    def record(self, name):
        return json.loads(self.image("inspect", name).out)[0]

    def layer(self, name, n=-1):
        return self.images / "l" / self.record(name)["layers"][n]["name"]

    def kept(self, name):
        """The record's file itself."""
        [path] = (self.images / "images").glob(self.record(name)["id"][7:] + "-*")
        return path

    def one_folder(self, name):
        """The folder that holds all layers of an image with many of them, or None."""
        folder = json.loads(self.kept(name).read_text())["merged"]
        return self.images / "l" / folder if folder else None

    def merged(self, name):
        """A context: the image's layers as overlayfs merges them, at a path (root)."""
        return Merged(self, name)


class Merged:
    def __init__(self, store, name):
        names = [x["name"] for x in store.record(name)["layers"]]
        empty = store.state / "empty"
        empty.mkdir(exist_ok=True)
        self.cwd, self.at = store.images / "l", store.state / "merged"
        self.at.mkdir(exist_ok=True)
        self.options = "lowerdir=" + ":".join([str(empty), *reversed(names)])

    def __enter__(self):
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", self.options, str(self.at)], cwd=self.cwd, check=True)
        return self.at

    def __exit__(self, *_):
        subprocess.run(["umount", str(self.at)], check=True)


def tree(top, owners=True):
    """{path: what it is}, as two unpackers can be compared. Hard links are named by the first of their names."""
    seen, out = {}, {}
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            st = os.lstat(path)
            kind = stat.S_IFMT(st.st_mode)
            what = [oct(kind), oct(stat.S_IMODE(st.st_mode)) if kind != stat.S_IFLNK else "", int(st.st_mtime)]
            if owners:
                what += [st.st_uid, st.st_gid]
            rel = os.path.relpath(path, top)
            if kind == stat.S_IFLNK:
                what.append(os.readlink(path))
            elif kind == stat.S_IFREG:
                first = seen.setdefault((st.st_dev, st.st_ino), rel) if st.st_nlink > 1 else rel
                what += [st.st_size, hashlib.sha256(Path(path).read_bytes()).hexdigest(), first]
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                what.append({x: os.getxattr(path, x) for x in os.listxattr(path) if x.startswith("user.")})
            out[rel] = what
    return out
