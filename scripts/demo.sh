#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What cloche is for, shown on real input: each command is printed, run, and its exit status compared with the one it
# should have. scripts/demo.sh [BINARY]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
binary=${1:-build/cloche}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
chmod 755 "$out"
cloche=("$binary")

if [ "$(id -u)" -ne 0 ] && ! why=$("$binary" run true 2>&1); then
	echo "As an ordinary user, cloche does not run here:"
	printf '%s\n' "$why" | sed 's/^/    /'
	if ! command -v sudo >/dev/null; then
		echo "Run this demo as root, or install sudo."
		exit 1
	fi
	echo "Going on as root, with sudo."
	cloche=(sudo "$binary")
fi

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\033[1m' plain=$'\033[0m'; fi
shown=0 wrong=0

# show EXPECTED "TITLE" ARGUMENTS…: run cloche with these arguments, stdin as it is.
show() {
	local expected=$1 title=$2 word status
	shift 2
	printf '\n%s# %s%s\n$ cloche' "$bold" "$title" "$plain"
	for word in "$@"; do
		case $word in *[!a-zA-Z0-9_=:./-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac
	done
	printf '\n'
	"${cloche[@]}" "$@" 2>&1
	status=$?
	shown=$((shown + 1))
	if [ $status -eq "$expected" ]; then
		echo "[exit $status]"
	else
		echo "[exit $status, expected $expected]"
		wrong=$((wrong + 1))
	fi
}

show 0 "Code goes in by stdin; it is data, never part of a shell command." \
	python - <<<'print(sum(range(10)), "is the sum of the first ten numbers")'

show 0 "The job: a program nobody has read counts the words of a real file and leaves a result." \
	python --in LICENSE:/workspace/LICENSE --out "$out" -c '
import collections, json, re
words = re.findall(r"[a-z]+", open("/workspace/LICENSE").read().lower())
top = collections.Counter(w for w in words if len(w) > 6).most_common(5)
json.dump(dict(top), open("/output/top.json", "w"), indent=1)
print(len(words), "words read;", len(top), "written to /output/top.json")'
printf '\n%s# What came out, on this side:%s\n$ cat OUT/top.json\n' "$bold" "$plain"
cat "$out/top.json" && echo || wrong=$((wrong + 1))

show 0 "A pipeline in bash." \
	bash -c 'seq 1 100 | awk "{ s += \$1 * \$1 } END { print s }"'

show 1 "No network: there is only a loopback interface inside." \
	python -c 'import urllib.request; urllib.request.urlopen("http://example.com", timeout=2)'

show 0 "Nothing of the caller: not its environment, not its files, not its name." \
	bash -c 'env | sort; id -u; hostname; ls -A /home /root 2>&1; ls -d /dev/*'

show 124 "An endless loop is over when its time is." \
	python --timeout 1s -c 'while True: pass'

show 137 "Too much memory is told as such, not as a bare 137." \
	python --memory 128m --timeout 10s --json -c 'b = bytearray(1 << 30)'

show 0 "A fork bomb meets its limit, and the host does not notice." \
	python --pids-limit 16 --json -c '
import os, time
n = 0
try:
	while os.fork() or time.sleep(1): n += 1
except OSError as e:
	print(n, "children, then:", e)'

show 0 "Output is capped; the program goes on and nothing blocks." \
	python --max-output 64 -c 'print("a" * 100000); import sys; print("done", file=sys.stderr)'

show 0 "Destroying everything destroys nothing." \
	bash --timeout 20s -c 'rm -rf --no-preserve-root /etc /home /usr/bin 2>/dev/null; echo "still here: $(ls /usr/bin | wc -l) programs"'

if [ -x /usr/bin/node ]; then
	show 0 "Other languages: what the host has." \
		node -c 'console.log([3, 1, 2].sort().join(" "), process.version.split(".")[0])'
fi

show 0 "What this host can enforce, and how." doctor

printf '\n%s commands shown, %s not as expected\n' "$shown" "$wrong"
[ "$wrong" -eq 0 ]
