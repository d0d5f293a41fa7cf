#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian package: packaging/deb.sh [BUILD-FOLDER], default build-deb. Prints the file's name.
# One binary package `cloche` with everything; no debhelper: the lists are short and stand here. Needs no root.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."
build=${1:-build-deb}
debian=packaging/debian
version=$(sed -n '1s/^cloche (\(.*\)) .*/\1/p' $debian/changelog)
meson_version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build)
if [ "${version%-*}" != "$meson_version" ]; then
	echo "deb.sh: $debian/changelog says $version, meson.build $meson_version" >&2
	exit 1
fi
architecture=$(dpkg --print-architecture)
triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
SOURCE_DATE_EPOCH=$(date -d "$(sed -n '/^ -- /{s/.*>  //p;q}' $debian/changelog)" +%s)
export SOURCE_DATE_EPOCH

mkdir -p "$build"
exec 9>"$build/.deb.lock" # two at once (tests) take turns
flock 9
[ -f "$build/build.ninja" ] || meson setup --prefix=/usr --libdir="lib/$triplet" --libexecdir=libexec \
	--sysconfdir=/etc "$build" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 1; }
rm -f "$build.log"
# What is installed, and nothing else: the tests take longer than the programs.
mapfile -t targets < <(meson introspect --installed "$build" | python3 -c '
import json, os, sys
base = os.path.realpath(sys.argv[1]) + "/"
for name in json.load(sys.stdin):
    if name.startswith(base) and not name.endswith(".pc"):
        print(name[len(base):])' "$build")
ninja -C "$build" "${targets[@]}" >&2

stage=$build/package
root=$stage/root
rm -rf "$stage"
mkdir -p "$root" "$stage/debian"
DESTDIR=$(realpath "$root") meson install -C "$build" --no-rebuild --quiet --strip >&2
chmod 644 "$root/usr/lib/$triplet"/libcloche.so.*.*.*
# Where Debian has modules for every version of Python; meson knows only one.
install -D -m 644 python/cloche.py "$root/usr/lib/python3/dist-packages/cloche.py"
rm -rf "$root"/usr/lib/python3.*

doc=$root/usr/share/doc/cloche
install -d "$doc" "$root/usr/lib/systemd/system" "$root/usr/lib/systemd/user" "$root/etc/cloche" \
	"$root/usr/share/lintian/overrides" "$root/DEBIAN"
install -d -m 711 "$root/var/lib/cloche" # walked through by cloched on its way to its own folder
install -m 644 README.md SECURITY.md docs/*.md "$doc/"
install -m 644 $debian/copyright "$doc/copyright"
install -m 644 $debian/cloche.service "$root/usr/lib/systemd/system/cloche.service"
install -m 644 $debian/user.service "$root/usr/lib/systemd/user/cloche.service"
install -m 644 $debian/cloche.yaml "$root/etc/cloche/cloche.yaml"
install -m 644 $debian/lintian-overrides "$root/usr/share/lintian/overrides/cloche"
gzip -9nc $debian/changelog >"$doc/changelog.gz"
gzip -9n "$root/usr/share/man/man1/cloche.1"
install -m 644 CHANGELOG.md "$doc/CHANGELOG.md"

# The libraries that the programs need are found by dpkg, which wants to be in a source tree.
printf 'Source: cloche\n\nPackage: cloche\nArchitecture: any\n' >"$stage/debian/control"
libraries=$(cd "$stage" && dpkg-shlibdeps -O -xcloche root/usr/bin/cloche root/usr/libexec/cloche/* \
	"root/usr/lib/$triplet"/libcloche.so.*.*.* 2>shlibdeps.log | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || { cat "$stage/shlibdeps.log" >&2; exit 1; }

maintainer=$(sed -n '/^ -- /{s/^ -- \(.*>\)  .*/\1/p;q}' $debian/changelog)
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" -e "s|@MAINTAINER@|$maintainer|" \
	-e "s|@SIZE@|$(du -sk --exclude=DEBIAN "$root" | cut -f1)|" -e "s|@DEPENDS@|$libraries|" \
	$debian/control.in >"$root/DEBIAN/control"
install -m 755 $debian/postinst $debian/prerm $debian/postrm "$root/DEBIAN/"
echo /etc/cloche/cloche.yaml >"$root/DEBIAN/conffiles"
printf 'libcloche 0 cloche (>= %s)\n' "$version" >"$root/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$root/DEBIAN/triggers"
(cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | LC_ALL=C sort -z |
	xargs -0 md5sum) >"$root/DEBIAN/md5sums"

package=$build/cloche_${version}_$architecture.deb
dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >&2
echo "$package"
