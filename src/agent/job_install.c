/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_install.c - install_packages: the manager as a command in a kept sandbox, and what it came to in words.
 *
 * What may be reached is decided outside of the sandbox, by the network policy; nothing here opens anything.
 */
#include <string.h>

#include "agent/worker.h"

static bool has_network(const struct worker *w)
{
	return strcmp(job_word(w->run_body, "network"), "-") != 0 &&
	       strcmp(job_word(w->run_body, "network"), "none") != 0;
}

void install_prepare(const struct worker *w, json_t *body)
{
	json_t *env = json_object_get(body, "env");

	if (!has_network(w) || json_object_get(env, "PYTHONUSERBASE"))
		return;
	env = env ? json_copy(env) : json_object(); /* it is the worker's, too */
	json_object_set_new(env, "PYTHONUSERBASE", json_string(PACKAGE_FOLDER));
	json_object_set_new(body, "env", env);
}

static void exec(struct job *j)
{
	const struct package_manager *m = j->c->tool.manager;

	kept_exec(j, json_pack("{so so}", "command", package_command(m, j->c->tool.packages), "env",
			       package_environment(m)));
}

void install_begin(struct job *j)
{
	const struct package_manager *m = j->c->tool.manager;
	char text[400];
	struct err e = {0};

	if (has_network(j->w)) {
		kept_enter(j, exec);
		return;
	}
	err_set(&e, 0,
		"install_packages: the sandboxes have no network (--network allow --preset %s gives "
		"them %s)",
		m->preset, m->registry);
	j->w->ops->log(&e);
	snprintf(
		text, sizeof text,
		"Nothing was installed: the sandboxes have no network, so %s cannot be reached. Only "
		"their operator can change that. Use what is there, or do without.",
		m->registry);
	job_text(j, text, true);
}

/* ---- what it came to ---- */

static bool is_missing(const struct job *j)
{
	size_t size;
	_cleanup_free_ char *err = text_of_stream(j->result, "stderr", &size);

	return job_is_unstarted(j) || (err && strstr(err, j->c->tool.manager->missing));
}

static void tell_use(FILE *f, const struct job *j, const char *ran)
{
	struct tool_view view = mcp_view(j->c);
	const char *sandbox = j->c->tool.sandbox;

	if (!view.by_id && (!sandbox || strcmp(sandbox, "session") == 0))
		sandbox = view.session ? NULL : "session";
	else
		sandbox = j->sandbox;
	fputs("Installed. ", f);
	if (sandbox)
		fprintf(f,
			"Pass \"sandbox\": \"%s\" to run_python, run_node or run_shell to use what "
			"was installed.\n",
			sandbox);
	else
		fputs("The next run_python, run_node and run_shell can use it.\n", f);
	fputs(ran, f);
}

char *install_text(const struct job *j)
{
	_cleanup_free_ char *ran = text_of_result(j->result, j->w->form, j->w->max_chars);
	const char *code = job_word(j->result, "error_code");
	char *text = NULL;
	size_t size;
	FILE *f = ran ? open_memstream(&text, &size) : NULL;

	if (!f)
		return NULL;
	if (strcmp(code, codes[CODE_SANDBOX_NETWORK_DENIED].name) == 0)
		fprintf(f,
			"Not installed. %s Only the operator of the sandboxes decides which hosts "
			"are allowed. Use what is there, or do without.",
			job_word(j->result, "model_message"));
	else if (is_missing(j))
		fprintf(f, "Not installed: there is no %s in this sandbox.",
			j->c->tool.manager->name);
	else if (json_is_true(json_object_get(j->result, "ok")))
		tell_use(f, j, ran);
	else
		fputs(ran, f);
	if (fclose(f) == 0)
		return text;
	free(text);
	return NULL;
}
