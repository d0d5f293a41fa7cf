/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_python.c - run a piece of Python and say how it ended.
 *
 *	cc run_python.c $(pkg-config --cflags --libs cloche) && ./a.out 'print(sum(range(10)))'
 */
#include <cloche/cloche.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	const char *code = argc > 1 ? argv[1] : "print(sum(range(10)))";
	struct cloche_spec *spec;
	struct cloche_result *result;
	struct cloche_error e;

	spec = cloche_spec_new(&e);
	if (!spec || cloche_spec_language(spec, "python", &e) < 0 ||
	    cloche_spec_set(spec, "timeout", "3s", &e) < 0 ||
	    cloche_run(spec, code, strlen(code), &result, &e) < 0) {
		fprintf(stderr, "%s\n", e.text);
		cloche_spec_free(spec);
		return 1;
	}
	printf("reason: %s, exit code: %d\n", cloche_result_reason(result),
	       cloche_result_exit_code(result));
	fwrite(cloche_result_stdout(result), 1, cloche_result_stdout_size(result), stdout);
	fwrite(cloche_result_stderr(result), 1, cloche_result_stderr_size(result), stderr);
	cloche_result_free(result);
	cloche_spec_free(spec);
	return 0;
}
