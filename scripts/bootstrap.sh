#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what a target of the Makefile needs: scripts/bootstrap.sh build|deb|test|ci|bench
# Does nothing, and asks for no rights, when all of it is there. The only list of packages in this repository.
set -euo pipefail

# A word is a Debian package; "command=package" is satisfied by the command, wherever it came from.
build='gcc make=make meson ninja-build pkg-config musl-tools linux-libc-dev libc6-dev libjansson-dev libyaml-dev libsqlite3-dev libseccomp-dev scdoc
	libuv1-dev libssl-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev python3 libpython3-dev'
deb='dpkg-dev'
test='libcmocka-dev python3-pytest bubblewrap uidmap strace curl=curl openssl=openssl qemu-system-x86 busybox-static cpio erofs-utils e2fsprogs
	linux-image-cloud-amd64 valgrind clang libclang-rt-14-dev clang-format pmccabe git=git g++ node=nodejs npm=npm
	java=default-jre-headless python3-numpy python3-pandas python3-venv python3-pip python3-jsonschema python3-dnspython python3-h11 python3-requests python3-httpx python3-aiohttp bind9-dnsutils nginx=nginx-light nft=nftables perl sqlite3 shellcheck
	docker-registry skopeo umoci apache2-utils buildah mmdebstrap zstd chromium=chromium
	systemd dbus dbus-user-session libpam-systemd procps iproute2 netbase debootstrap lintian'
# A daemon that would run from the next boot on: not on the machine of whoever types `make test`.
ci='dockerd=docker.io'
bench='crun runc runsc umoci busybox-static'
# Without these the tests that want them are skipped, and say so: other releases have other names for them.
optional='chromium docker-registry skopeo umoci buildah mmdebstrap debootstrap lintian linux-image-cloud-amd64 libclang-rt-14-dev qemu-system-x86 shellcheck pmccabe crun runsc docker.io'

case ${1:-} in
build) want=$build ;;
deb) want="$build $deb" ;;
test) want="$build $deb $test" ;;
ci) want="$build $deb $test $ci" ;;
bench) want="$build $deb $test $ci $bench" ;;
*) echo "usage: $0 build|deb|test|ci|bench" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null; then
	echo "bootstrap: no apt-get on this system; make sure these are installed (Debian's names):" $want >&2
	exit 0
fi

here=" $(dpkg-query -W -f '${db:Status-Abbrev}|${Package}\n' | sed -n 's/^.i |//p' | tr '\n' ' ')"
packaged() { apt-cache show "$1" >/dev/null 2>&1; }
optional() { case " $optional " in *" $1 "*) ;; *) false ;; esac; }
lists=$(find /var/lib/apt/lists -name '*Packages*' -print -quit 2>/dev/null)
missing=
for word in $want; do
	package=${word#*=}
	case $word in *=*) command -v "${word%%=*}" >/dev/null && continue ;; esac
	case $here in *" $package "*) continue ;; esac
	if [ -n "$lists" ] && optional "$package" && ! packaged "$package"; then
		continue
	fi
	missing="$missing $package"
done
# Not installed but unpacked; needs the lists of packages, so after an update when there are none.
llhttp() { "$(dirname "$0")/llhttp.sh" fetch; }
if [ -z "$missing" ] && llhttp 2>/dev/null; then
	exit 0
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
	if ! command -v sudo >/dev/null; then
		echo "bootstrap: not installed:$missing" >&2
		echo "bootstrap: run as root: apt-get install --no-install-recommends$missing" >&2
		exit 1
	fi
	as_root=sudo
fi
apt() { # the timeout: another apt-get may be at work
	$as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -qq -o DPkg::Lock::Timeout=600 -o Acquire::Retries=3 "$@"
}

echo "bootstrap: installing${missing:- the sources of llhttp}"
apt update || echo "bootstrap: the package lists could not be renewed; trying with those that are here" >&2
install=
for package in $missing; do
	if optional "$package" && ! packaged "$package"; then
		echo "bootstrap: $package is not packaged here; going on without it" >&2
	elif optional "$package" && apt -s install --no-install-recommends "$package" 2>/dev/null | grep -q ^Remv; then
		echo "bootstrap: $package would take the place of what is installed here; going on without it" >&2
	else
		install="$install $package"
	fi
done
[ -n "$install" ] || { llhttp; exit; }
log=$(mktemp)
# No daemon is started because it was installed: tests start their own.
policy=/usr/sbin/policy-rc.d words="of cloche's bootstrap.sh, while it installs"
clean() {
	rm -f "$log"
	grep -qs "$words" $policy && $as_root rm -f $policy
	true
}
trap clean EXIT
[ -e $policy ] || printf '#!/bin/sh\n# %s\nexit 101\n' "$words" | $as_root install -m 755 /dev/stdin $policy
if ! apt install -y --no-install-recommends $install >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
llhttp
