/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - cloche-ask, which `cloche ask` becomes: asks a model, and lets it run code in sandboxes.
 *
 * A program of its own, because it links libcurl. It has the key and talks to the provider; sandboxes are made by its
 * child, `cloche mcp` (tools.h), which has no key.
 */
#include <curl/curl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "agent/text.h"
#include "ask/loop.h"
#include "ask/show.h"
#include "base/end_signals.h"
#include "base/fd.h"
#include "sandbox/model.h"

enum { EXIT_CLOCHE = 125 };

/* Nobody could be asked: the same object, without a conversation. */
static void print_failure(const struct ask_settings *s, const struct err *e)
{
	size_t size;
	_cleanup_free_ char *message = text_repair(e->text, strlen(e->text), &size);
	json_t *all = json_pack("{ss sn ss? sb ss ss sb ss sn s[] s{si si} si sf}", "session", "",
				"provider", "model", s->model, "ok", 0, "reason", "failed",
				"error_code", codes[CODE_MODEL_COMPLETION_FAILED].name, "retryable",
				0, "message", message, "answer", "steps", "usage", "input_tokens",
				0, "output_tokens", 0, "requests", 0, "wall_ms", 0.0);
	_cleanup_free_ char *text = all ? json_dumps(all, JSON_COMPACT) : NULL;

	if (text)
		puts(text);
	json_decref(all);
}

int main(void)
{
	struct ask_settings s;
	struct err e = {0};
	struct show show = {.live = -1};
	int status = EXIT_CLOCHE;
	_cleanup_close_ int signals = -1;

	signal(SIGPIPE, SIG_IGN);
	if (ask_settings_read(&s, &e) < 0) {
		if (s.json)
			print_failure(&s, &e);
		show_error(&show, &e);
	} else if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
		err_set(&e, 0, "libcurl cannot be used");
		show_error(&show, &e);
	} else {
		signals = end_signals_watch(0, NULL, &e);
		if (signals < 0)
			show_error(&show, &e);
		else
			status = loop_run(&s, signals);
		curl_global_cleanup();
	}
	ask_settings_done(&s);
	return status;
}
