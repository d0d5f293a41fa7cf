#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Everything about the sources that a program can judge. Prints each complaint; fails when there was one.
# A tool that is missing is named and skipped, except with LINT_STRICT=1. --fix lays the C files out first.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

max_lines=900
max_complexity=20
failed=0
complain() { echo "lint: $*"; failed=1; }
have() {
	command -v "$1" >/dev/null && return 0
	echo "lint: $1 is not installed: $2 not checked"
	[ -z "${LINT_STRICT:-}" ] || failed=1
	return 1
}

# Tracked files and new ones that are not ignored; without git, what is there.
files() {
	if git -C . rev-parse --git-dir >/dev/null 2>&1; then
		git ls-files -co --exclude-standard -- "$@" | sort -u | while IFS= read -r f; do [ -f "$f" ] && echo "$f"; done
	else
		for pattern in "$@"; do find . -path ./.git -prune -o -path './build*' -prune -o -type f -name "$pattern" -print; done |
			sed 's,^\./,,' | sort -u
	fi
}
mapfile -t c_files < <(files '*.c' '*.h')
mapfile -t def_files < <(files '*.def')
mapfile -t py_files < <(files '*.py')
mapfile -t sh_files < <(files '*' | while IFS= read -r f; do head -c 64 "$f" | head -n 1 | tr -d '\0' |
	grep -qE '^#!.*\b(ba|da|k)?sh\b' && echo "$f"; done)
mapfile -t all_files < <(files '*')

if have clang-format 'the layout of C'; then
	mapfile -t ours < <(printf '%s\n' "${c_files[@]}" | grep -E '^(src|include|tests)/')
	[ "${1:-}" != --fix ] || clang-format -i "${ours[@]}"
	for f in "${ours[@]}"; do
		first=$(clang-format --dry-run -Werror "$f" 2>&1 | sed -n '1s/: error: code should be.*//p')
		[ -z "$first" ] || complain "$first: layout (scripts/lint.sh --fix)"
	done
fi

if have pmccabe 'the complexity of functions' && [ ${#c_files[@]} -gt 0 ]; then
	while IFS=$'\t' read -r complexity _ _ _ lines where name; do
		[ "$complexity" -le $max_complexity ] || complain "$where: $name: complexity $complexity of at most $max_complexity ($lines lines)"
	done < <(pmccabe "${c_files[@]}" 2>/dev/null)
fi

for f in "${c_files[@]}" "${py_files[@]}" "${sh_files[@]}"; do
	n=$(wc -l <"$f")
	[ "$n" -le $max_lines ] || complain "$f: $n lines of at most $max_lines"
done

for f in "${c_files[@]}" "${def_files[@]}"; do
	[ "$(head -n 1 "$f")" = '/* SPDX-License-Identifier: Apache-2.0 */' ] || complain "$f: the first line is not the licence line"
done
for f in "${py_files[@]}" "${sh_files[@]}"; do
	head -n 3 "$f" | grep -qx '# SPDX-License-Identifier: Apache-2.0' || complain "$f: no licence line in the first three"
done

scripts/check-includes.py || complain "includes point the wrong way"

# Paths of one machine; the brackets keep this line from finding itself.
machine=$(printf '%s\0' "${all_files[@]}" | xargs -0 grep -nIE '(^|[^a-zA-Z0-9_.])/([w]ork|[f]arm)/' -- /dev/null)
[ -z "$machine" ] || complain "paths of one machine:"$'\n'"$machine"
blanks=$(printf '%s\0' "${c_files[@]}" "${py_files[@]}" "${sh_files[@]}" | xargs -0 grep -nE '[[:space:]]+$' -- /dev/null)
[ -z "$blanks" ] || complain "blanks at the end of a line:"$'\n'"$blanks"

if have shellcheck 'shell scripts' && [ ${#sh_files[@]} -gt 0 ]; then
	shellcheck --severity=warning --exclude=SC1091,SC2187 "${sh_files[@]}" || complain "shellcheck"
fi
[ $failed -eq 0 ] && echo "lint: ${#c_files[@]} C, ${#py_files[@]} Python, ${#sh_files[@]} shell files: nothing to complain about"
exit $failed
