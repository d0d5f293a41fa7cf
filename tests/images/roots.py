# SPDX-License-Identifier: Apache-2.0
"""Images of real systems, each made once for a session of tests: Debian's packages as mmdebstrap, umoci and buildah put
them together."""
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import cloche

TOOLS = ("mmdebstrap", "umoci", "skopeo", "buildah")
# name: (suite, mmdebstrap's variant, packages)
SYSTEMS = {
    "minbase": ("bookworm", "minbase", "python3-minimal"),
    "tools": ("bookworm", "extract", "gcc,perl,python3-minimal,passwd,login"),
    "bullseye": ("bullseye", "extract", "bash,coreutils,tzdata,util-linux"),
    "trixie": ("trixie", "extract", "bash,coreutils,systemd,sudo"),
    "busybox": ("bookworm", "extract", "busybox-static"),
}


def run(*argv, **more):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    assert done.returncode == 0, (argv, done.stdout[-3000:].decode(errors="replace"))
    return done.stdout.decode().strip()


def sha256_text(text):
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def oci_of(tars, where, tag="t"):
    """An OCI layout whose layers are these archives, by umoci."""
    run("umoci", "init", "--layout", where)
    run("umoci", "new", "--image", f"{where}:{tag}")
    for one in tars:
        run("umoci", "raw", "add-layer", "--image", f"{where}:{tag}", one)
    return where


class Roots:
    def __init__(self, folder):
        for tool in TOOLS:
            cloche.need(tool, shutil.which(tool), f"no {tool}")
        self.folder, self.layouts = Path(folder), {}
        self.debs = self.folder / "debs"
        self.debs.mkdir()
        # buildah's own places, so that nothing of it stays on the machine
        self.buildah_options = ["--root", self.folder / "containers", "--runroot", self.folder / "containers-run", "--storage-driver", "vfs"]

    def system(self, name):
        """The archive of a system's root."""
        out = self.folder / f"{name}.tar"
        if not out.exists():
            suite, variant, packages = SYSTEMS[name]
            keep = f'cp "$1"/var/cache/apt/archives/*.deb {self.debs}' if name == "tools" else "true"
            run("mmdebstrap", "--quiet", f"--variant={variant}", f"--include={packages}", f"--extract-hook={keep}", suite, out,
                env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        return out

    def layout(self, name):
        """The folder of an OCI layout, with the tag "t"."""
        if name not in self.layouts:
            make = getattr(self, f"make_{name}", None)
            self.layouts[name] = make() if make else oci_of([self.system(name)], self.folder / f"{name}.oci")
        return self.layouts[name]

    def make_packages(self):
        """A layer for each of 46 packages: the archives that are in them, as their maintainers made them."""
        self.system("tools")
        needed = [next(self.debs.glob(f"{n}_*")) for n in ("perl-base", "libc6", "libcrypt1")]
        small = sorted(set(self.debs.iterdir()) - set(needed), key=lambda p: p.stat().st_size)
        tars = []
        for deb in sorted(needed + small[:46 - len(needed)]):
            tars.append(self.folder / f"{deb.stem}.layer.tar")
            with open(tars[-1], "wb") as f:
                subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], stdout=f, check=True)
        where = oci_of(tars, self.folder / "packages.oci")
        for one in tars:
            one.unlink()
        return where

    def make_repacked(self):
        """A system that was changed and made into a second and a third layer by umoci."""
        where, bundle = self.folder / "repacked.oci", self.folder / "repacked"
        shutil.copytree(self.layout("bullseye"), where)
        for change in ("rm -r usr/share/doc bin/ls; mkdir usr/share/doc; echo new >usr/share/doc/new; chown -R 12:34 usr/share/zoneinfo/Europe; "
                       "ln bin/cat bin/dog; chmod 700 var/tmp; mkfifo run/pipe; "
                       "python3 -c 'import os; os.setxattr(\"etc/bash.bashrc\", \"user.mark\", b\"here\")'",
                       "rm bin/dog; rm -r usr/share/zoneinfo/Asia; echo a file >usr/share/zoneinfo/Asia; touch -h -d 2001-02-03 etc/*; "
                       "mv usr/share/zoneinfo/Africa usr/share/zoneinfo/Elsewhere; ln -sfn Elsewhere usr/share/zoneinfo/Africa"):
            run("umoci", "unpack", "--image", f"{where}:t", bundle)
            run("sh", "-ec", change, cwd=bundle / "rootfs")
            run("umoci", "repack", "--image", f"{where}:t", bundle)
            shutil.rmtree(bundle)
        return where

    def buildah(self, *args, **more):
        return run("buildah", *self.buildah_options, *args, **more)

    def make_built(self):
        """FROM busybox, in four layers, by buildah: whiteouts, owners, links as commands that ran in it left them."""
        where, recipe = self.folder / "built.oci", self.folder / "recipe"
        recipe.mkdir()
        shutil.copy(self.system("busybox"), recipe / "root.tar")
        (recipe / "Dockerfile").write_text("""FROM scratch
ADD root.tar /
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox mkdir -p /app/a/b /usr/sbin && /bin/busybox --install -s /bin && echo one >/app/a/b/1 && echo 2 >/app/2 && chown -R 7:8 /app/a"]
RUN ["sh", "-c", "rm -r /app/a && mkdir /app/a && echo new >/app/a/new && ln /app/2 /app/also-2 && chmod 4711 /app/2 && rm -r /usr/share/doc && echo file >/usr/share/doc"]
RUN ["sh", "-c", "rm /app/also-2; chown 1000:1000 /app; chmod 1775 /app; ln -s /etc/passwd /app/passwd"]
ENV PATH=/bin WHO=built
WORKDIR /app
CMD ["cat", "/app/a/new"]
""")
        self.buildah("bud", "--layers", "--isolation", "chroot", "--tag", "built", recipe)
        self.buildah("push", "built", f"oci:{where}:t")
        return where

    def make_zstd(self):
        """The same layers, compressed by zstd."""
        where = self.folder / "zstd.oci"
        run("skopeo", "copy", "--insecure-policy", "--dest-compress-format", "zstd", "--dest-compress-level", "3",
            f"oci:{self.layout('built')}:t", f"oci:{where}:t")
        return where
