/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_echo.c - the HTTP server of cloched with a handler for tests: http-echo [OPTION VALUE]...
 *
 *   --unix PATH, --tcp PORT (0: any), --tls CERTIFICATE KEY (for the TCP socket), and the names of
 *   struct http_limits with '-': --header-seconds 1. Prints "ready PORT", ends at the end of its input.
 *
 * Paths: /echo sends the body back as it comes; /collect answers what it collected (limit: ?limit);
 * /big?size=N writes N bytes as there is room, chunked with ?chunked; /slow?ms=N answers later; /never does
 * not; /takeover gives bytes back; /goodbye half-closes and adds what comes to `ends`; /twice writes, waits, writes; /short ends before its size;
 * /fds tells the descriptors; /facts what happened so far; everything else the request, as JSON.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "http/http.h"

static struct http_server *server;
static uv_loop_t *loop;
static unsigned long requests, gone, alive, ends;

/* One exchange of ours; the timer outlives it. */
struct job {
	struct exchange *x; /* NULL: over */
	uv_timer_t timer;
	uint64_t left;
	bool paused;
};

static void job_closed(uv_handle_t *h)
{
	free(h->data);
	alive--;
}

static void job_over(struct job *j)
{
	j->x = NULL;
	uv_close((uv_handle_t *)&j->timer, job_closed);
}

static void on_gone(struct exchange *x)
{
	gone++;
	job_over(exchange_data(x));
}

static struct job *job_new(struct exchange *x, const struct exchange_ops *ops)
{
	struct job *j = calloc(1, sizeof *j);

	if (!j)
		abort();
	uv_timer_init(loop, &j->timer);
	j->timer.data = j;
	j->x = x;
	alive++;
	exchange_set_ops(x, ops, j);
	return j;
}

static uint64_t number(struct exchange *x, const char *name, uint64_t otherwise)
{
	const char *text = exchange_query(x, name);

	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void reply_json(struct exchange *x, int status, json_t *j)
{
	char *text = json_dumps(j, JSON_COMPACT);

	if (!text)
		abort();
	exchange_reply(x, status, "application/json", "X-Echo: yes\r\n", text, strlen(text));
	free(text);
	json_decref(j);
}

/* ---- /echo and /takeover: what comes goes back ---- */

static void echo_body(struct exchange *x, const void *data, size_t size)
{
	if (!exchange_write(x, data, size))
		exchange_pause(x);
}

static void echo_room(struct exchange *x)
{
	exchange_resume(x);
}

static void echo_end(struct exchange *x)
{
	ends++;
	job_over(exchange_data(x));
	exchange_end(x, true);
}

static const struct exchange_ops echo_ops = {echo_body, echo_end, echo_room, on_gone};

static void sink_body(struct exchange *x, const void *data, size_t size)
{
	struct job *j = exchange_data(x);

	(void)data;
	j->left += size;
}

static void sink_end(struct exchange *x)
{
	struct job *j = exchange_data(x);
	json_t *answer = json_pack("{s:I}", "size", (json_int_t)j->left);

	job_over(j);
	reply_json(x, 200, answer);
}

static const struct exchange_ops sink_ops = {sink_body, sink_end, NULL, on_gone};

static void takeover(struct exchange *x)
{
	static const char head[] = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\n"
				   "Connection: Upgrade\r\n\r\n";

	job_new(x, &echo_ops);
	exchange_take_over(x, head, sizeof head - 1);
}

/* Says goodbye and listens on. */
static void listen_end(struct exchange *x)
{
	struct job *j = exchange_data(x);

	ends += j->left;
	job_over(j);
	exchange_end(x, true);
}

static const struct exchange_ops listen_ops = {sink_body, listen_end, NULL, on_gone};

static void goodbye(struct exchange *x)
{
	static const char head[] = "HTTP/1.1 101 Switching Protocols\r\n\r\n";

	job_new(x, &listen_ops);
	exchange_take_over(x, head, sizeof head - 1);
	exchange_write(x, "bye", 3);
	exchange_end_writing(x);
}

/* ---- /big ---- */

static void big_room(struct exchange *x)
{
	static const char block[65536];
	struct job *j = exchange_data(x);

	while (j->left) {
		size_t n = j->left < sizeof block ? j->left : sizeof block;

		j->left -= n;
		if (!exchange_write(x, block, n) && j->left)
			return;
	}
	job_over(j);
	exchange_end(x, true);
}

static const struct exchange_ops big_ops = {NULL, NULL, big_room, on_gone};

static void big(struct exchange *x)
{
	struct job *j = job_new(x, &big_ops);

	j->left = number(x, "size", 1000);
	exchange_begin(x, 200, "application/octet-stream", NULL,
		       exchange_query(x, "chunked") ? UINT64_MAX : j->left);
	big_room(x);
}

/* ---- later ---- */

static const struct exchange_ops wait_ops = {.on_gone = on_gone};

static void slow_done(uv_timer_t *t)
{
	struct job *j = t->data;
	struct exchange *x = j->x;

	if (!x)
		return;
	job_over(j);
	exchange_reply(x, 200, "text/plain", NULL, "slow\n", 5);
}

static void twice_done(uv_timer_t *t)
{
	struct job *j = t->data;
	struct exchange *x = j->x;

	if (!x)
		return;
	job_over(j);
	exchange_write(x, "second\n", 7);
	exchange_end(x, true);
}

static void twice(struct exchange *x)
{
	struct job *j = job_new(x, &wait_ops);

	exchange_begin(x, 200, "text/plain", NULL, UINT64_MAX);
	exchange_write(x, "first\n", 6);
	uv_timer_start(&j->timer, twice_done, number(x, "ms", 100), 0);
}

static void ask_done(uv_timer_t *t)
{
	struct job *j = t->data;

	if (j->x)
		exchange_resume(j->x);
}

/* ---- collected, facts ---- */

static void collected(struct exchange *x, char *data, size_t size)
{
	exchange_reply(x, 200, "application/octet-stream", NULL, data, size);
}

static void reply_fds(struct exchange *x)
{
	int fds[40];
	size_t n = exchange_take_fds(x, fds, 40);
	json_t *sizes = json_array();

	for (size_t i = 0; i < n; i++) {
		struct stat st = {0};

		fstat(fds[i], &st);
		json_array_append_new(sizes, json_integer(st.st_size));
		close(fds[i]);
	}
	reply_json(x, 200, json_pack("{s:o}", "sizes", sizes));
}

static void reply_facts(struct exchange *x)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	reply_json(x, 200,
		   json_pack("{s:I,s:I,s:I,s:I,s:I,s:I}", "requests", (json_int_t)requests, "gone",
			     (json_int_t)gone, "alive", (json_int_t)alive, "ends", (json_int_t)ends,
			     "connections", (json_int_t)http_server_connections(server), "rss_kb",
			     (json_int_t)usage.ru_maxrss));
}

static void reply_request(struct exchange *x)
{
	json_t *fields = json_object();
	const struct peer *p = exchange_peer(x);
	const char *name, *value, *q = exchange_query(x, "q");

	for (size_t i = 0; exchange_field_at(x, i, &name, &value); i++)
		json_object_set_new(fields, name, json_string(exchange_field(x, name)));
	reply_json(x, 200,
		   json_pack("{s:s,s:s,s:s,s:s?,s:o,s:i,s:i,s:s}", "method", exchange_method(x),
			     "path", exchange_path(x), "query", exchange_raw_query(x), "q", q,
			     "fields", fields, "uid", p->kind == PEER_UNIX ? (int)p->uid : -1,
			     "pid", (int)p->pid, "address", p->address));
}

static void collect(struct exchange *x)
{
	exchange_collect(x, (size_t)number(x, "limit", 1 << 20), collected);
}

static void echo(struct exchange *x)
{
	job_new(x, &echo_ops);
	exchange_begin(x, 200, "application/octet-stream", NULL, exchange_body_size(x));
}

static void sink(struct exchange *x)
{
	job_new(x, &sink_ops);
}

static void slow(struct exchange *x)
{
	struct job *j = job_new(x, &wait_ops);

	uv_timer_start(&j->timer, slow_done, number(x, "ms", 100), 0);
}

static void never(struct exchange *x)
{
	job_new(x, &wait_ops);
}

static void ask_later(struct exchange *x)
{
	struct job *j = job_new(x, &sink_ops);

	exchange_pause(x);
	uv_timer_start(&j->timer, ask_done, number(x, "ms", 100), 0);
}

static void short_answer(struct exchange *x)
{
	exchange_begin(x, 200, "text/plain", NULL, 100);
	exchange_write(x, "ten bytes\n", 10);
	exchange_end(x, !exchange_query(x, "false"));
}

static void inject(struct exchange *x)
{
	exchange_reply(x, 200, NULL, "X: a\r\n\r\nHTTP/1.1 200 OK\r\n", NULL, 0);
}

static void empty(struct exchange *x)
{
	exchange_reply(x, 204, NULL, NULL, NULL, 0);
}

static void close_all(void *context)
{
	(void)context;
	uv_stop(loop);
}

static void stop(struct exchange *x)
{
	http_server_stop(server);
	exchange_reply(x, 200, NULL, NULL, "stopping", 8);
}

static void handler(struct exchange *x, void *context)
{
	static const struct {
		const char *path;
		void (*serve)(struct exchange *x);
	} routes[] = {
		{"/echo", echo},         {"/sink", sink},           {"/collect", collect},
		{"/big", big},           {"/slow", slow},           {"/never", never},
		{"/twice", twice},       {"/takeover", takeover},   {"/fds", reply_fds},
		{"/facts", reply_facts}, {"/ask-later", ask_later}, {"/short", short_answer},
		{"/inject", inject},     {"/empty", empty},         {"/stop", stop},
		{"/goodbye", goodbye},
	};

	(void)context;
	requests++;
	for (size_t i = 0; i < ARRAY_SIZE(routes); i++)
		if (strcmp(routes[i].path, exchange_path(x)) == 0) {
			routes[i].serve(x);
			return;
		}
	reply_request(x);
}

/* ---- set-up ---- */

static int listen_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (void *)&a, sizeof a) < 0 || listen(fd, 4096) < 0) {
		perror(path);
		exit(1);
	}
	return fd;
}

static int listen_tcp(int port, int *ret_port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t size = sizeof a;

	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0 || bind(fd, (void *)&a, sizeof a) < 0 || listen(fd, 4096) < 0 ||
	    getsockname(fd, (void *)&a, &size) < 0) {
		perror("tcp");
		exit(1);
	}
	*ret_port = ntohs(a.sin_port);
	return fd;
}

static SSL_CTX *make_tls(const char *certificate, const char *key)
{
	SSL_CTX *tls = SSL_CTX_new(TLS_server_method());

	if (!tls || SSL_CTX_use_certificate_file(tls, certificate, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1)
		exit(1);
	return tls;
}

struct setup {
	struct http_limits limits;
	const char *path;
	int port;
	SSL_CTX *tls;
};

static void read_option(struct setup *s, char **argv, int *i)
{
	struct http_limits *l = &s->limits;
	const char *name = argv[*i], *value = argv[*i + 1];
	const struct {
		const char *name;
		unsigned *value;
	} numbers[] = {
		{"--fields", &l->fields},
		{"--header-seconds", &l->header_seconds},
		{"--idle-seconds", &l->idle_seconds},
		{"--body-seconds", &l->body_seconds},
		{"--write-seconds", &l->write_seconds},
	};

	*i += 2;
	for (size_t k = 0; k < ARRAY_SIZE(numbers); k++)
		if (strcmp(name, numbers[k].name) == 0)
			*numbers[k].value = (unsigned)strtoul(value, NULL, 10);
	if (strcmp(name, "--unix") == 0)
		s->path = value;
	else if (strcmp(name, "--tcp") == 0)
		s->port = (int)strtol(value, NULL, 10);
	else if (strcmp(name, "--connections") == 0)
		l->connections = strtoul(value, NULL, 10);
	else if (strcmp(name, "--per-peer") == 0)
		l->per_peer = strtoul(value, NULL, 10);
	else if (strcmp(name, "--tls") == 0)
		s->tls = make_tls(value, argv[(*i)++]);
}

static void on_input(uv_poll_t *p, int status, int events)
{
	(void)status;
	(void)events;
	uv_poll_stop(p);
	http_server_close(server, close_all, NULL);
}

int main(int argc, char **argv)
{
	struct setup s = {.limits = http_default_limits, .port = -1};
	struct err e = {0};
	uv_poll_t input;
	int port = 0;

	for (int i = 1; i + 1 < argc;)
		read_option(&s, argv, &i);
	loop = uv_default_loop();
	server = http_server_new(loop, &s.limits, handler, NULL, &e);
	if (!server || (s.path && http_server_listen(server, listen_unix(s.path), NULL, &e) < 0) ||
	    (s.port >= 0 && http_server_listen(server, listen_tcp(s.port, &port), s.tls, &e) < 0)) {
		fprintf(stderr, "http-echo: %s\n", e.text);
		return 1;
	}
	if (s.tls)
		SSL_CTX_free(s.tls);
	uv_poll_init(loop, &input, 0);
	uv_poll_start(&input, UV_READABLE, on_input);
	printf("ready %d\n", port);
	fflush(stdout);
	uv_run(loop, UV_RUN_DEFAULT);
	uv_close((uv_handle_t *)&input, NULL);
	uv_run(loop, UV_RUN_DEFAULT);
	return uv_loop_close(loop) == 0 && alive == 0 ? 0 : 1;
}
