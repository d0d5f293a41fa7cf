/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/approve.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>

#include "agent/tool.h"
#include "base/fd.h"

enum { CODE_LINES = 200, ASKED_TIMES = 3 };

static bool needs(const struct ask_settings *s, const struct use *u)
{
	enum tool_id id = tool_find(u->call->name);
	bool touches = id != TOOL_LIST_SANDBOXES && id != TOOL_RESET;
	bool network = (s->has_network && touches) || (id < TOOL_COUNT && tools[id].needs_network);

	for (size_t i = 0; i < json_array_size(s->approve); i++) {
		const char *what = json_string_value(json_array_get(s->approve, i));

		if (strcmp(what, "all") == 0 || (strcmp(what, "network") == 0 && network) ||
		    (strcmp(what, "volumes") == 0 && json_array_size(s->volumes) > 0 && touches))
			return true;
	}
	return false;
}

/* Where a person is; NULL if there is none, or they do something else there. */
static FILE *open_terminal(void)
{
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	FILE *f = fd >= 0 && tcgetpgrp(fd) == getpgrp() ? fdopen(fd, "w") : NULL;

	if (!f)
		fd_close(&fd);
	return f;
}

/* A line of the terminal: its first byte. 0: none will come. */
static char read_answer(int fd, int signals, uint64_t deadline_us)
{
	struct pollfd p[] = {{fd, POLLIN, 0}, {signals, POLLIN, 0}};
	uint64_t now = now_us();
	char line[256];
	ssize_t n;

	if (now >= deadline_us || poll(p, 2, (int)((deadline_us - now) / 1000 + 1)) <= 0 ||
	    p[1].revents)
		return '\0';
	n = read(fd, line, sizeof line);
	return n > 0 ? *line : '\0';
}

static char ask(FILE *terminal, const struct use *u, int signals, uint64_t deadline_us)
{
	_cleanup_free_ char *text = json_dumps(u->arguments, JSON_COMPACT);
	const json_t *code = json_object_get(u->arguments, "code");

	if (!code)
		code = json_object_get(u->arguments, "command");
	/* What was typed before is no answer to what had not been asked. */
	tcflush(fileno(terminal), TCIFLUSH);
	fputs("The model wants ", terminal);
	show_block(terminal, u->call->name, strlen(u->call->name), "", 1);
	if (json_is_string(code))
		show_block(terminal, json_string_value(code), json_string_length(code), "    ",
			   CODE_LINES);
	else
		show_block(terminal, text ? text : "", text ? strlen(text) : 0, "    ", CODE_LINES);
	for (int i = 0; i < ASKED_TIMES; i++) {
		char answer;

		fputs("Let it? [y/n] ", terminal);
		fflush(terminal);
		answer = read_answer(fileno(terminal), signals, deadline_us);
		if (!answer || strchr("yYnN", answer))
			return answer;
	}
	return 'n';
}

int approve(const struct ask_settings *s, struct show *w, struct use *u, int signals,
	    uint64_t deadline_us)
{
	FILE *terminal;
	char answer;

	u->approval = "not needed";
	if (!needs(s, u))
		return 0;
	terminal = open_terminal();
	if (!terminal) {
		u->approval = "nobody to ask";
		use_end(u, "This call needs a person's approval, and there is nobody to ask.",
			true);
		show_note(w, "%.60s needs approval, and there is no terminal to ask on: refused",
			  u->call->name);
		return 0;
	}
	answer = ask(terminal, u, signals, deadline_us);
	fclose(terminal);
	if (!answer)
		return -1;
	u->approval = strchr("yY", answer) ? "yes" : "no";
	if (strchr("nN", answer))
		use_end(u, "The user did not approve this call.", true);
	return 0;
}
