#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs unit tests under valgrind: valgrind.sh PROGRAM... A wrong access or a leak is a failure. Programs that need
# clone3, openat2 or Landlock are not among them: valgrind 3.19 answers ENOSYS to those (FEASIBILITY 22).
set -uo pipefail
command -v valgrind >/dev/null || { echo "valgrind is not installed"; exit 77; }
unset CMOCKA_MESSAGE_OUTPUT CMOCKA_XML_FILE
export CLOCHE_UNDER_VALGRIND=1
failed=0
for program; do
	# Children end by _exit() with what they share with the test still allocated: only the test is judged.
	out=$(valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
		--errors-for-leak-kinds=definite,indirect --child-silent-after-fork=yes --num-callers=20 \
		"$program" 2>&1) || {
		echo "== $program"
		echo "$out" | tail -n 60
		failed=1
	}
done
[ $failed -eq 0 ] && echo "$# programs are clean"
exit $failed
