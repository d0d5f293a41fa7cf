/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main.c - cloched: started by `cloche serve` as a user of its own, with the sockets it serves and its
 * configuration as descriptors. It opens its state, finds what lives, and serves until SIGTERM.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <openssl/ssl.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/units.h"
#include "service/box.h"
#include "service/call.h"
#include "service/dying.h"
#include "service/kept.h"
#include "service/link.h"
#include "service/pool.h"
#include "service/recover.h"
#include "service/run.h"
#include "service/sandbox_self.h"

enum {
	EXIT_USAGE = 2,
	HOUSEKEEPING_MS = 60000,
	STOP_LIMIT_US = 2000000,
	HEAP_PAD = 256 << 10,
	HEAP_KEPT = 2 << 20
};

struct arguments {
	int config_fd, socket_fd, tcp_fd, certificate_fd, key_fd;
	uint32_t operator_uid;
	int store_folders[STORE_FOLDERS];
	const char *openapi, *config_name;
	bool routes;
};

static struct service service;
static SSL_CTX *tls; /* NULL: TCP without */
static struct arguments args = {.config_fd = -1,
				.socket_fd = -1,
				.tcp_fd = -1,
				.certificate_fd = -1,
				.key_fd = -1,
				.store_folders = {-1, -1, -1},
				.config_name = "configuration"};

static int parse_arguments(char **argv, struct err *e)
{
	struct {
		const char *name;
		int *number;
	} numbers[] = {{"--config-fd", &args.config_fd},
		       {"--socket-fd", &args.socket_fd},
		       {"--tcp-fd", &args.tcp_fd},
		       {"--certificate-fd", &args.certificate_fd},
		       {"--key-fd", &args.key_fd},
		       {"--operator-uid", (int *)&args.operator_uid},
		       {"--store-fd", &args.store_folders[0]},
		       {"--refs-fd", &args.store_folders[1]},
		       {"--images-fd", &args.store_folders[2]}};

	for (char **p = argv + 1; *p; p++) {
		size_t i = 0;
		uint64_t v;

		if (strcmp(*p, "--routes") == 0) {
			args.routes = true;
			continue;
		}
		if (!p[1])
			return err_set(e, 0, "%.40s: needs a value", *p);
		while (i < ARRAY_SIZE(numbers) && strcmp(numbers[i].name, *p) != 0)
			i++;
		if (i < ARRAY_SIZE(numbers)) {
			if (parse_count(p[1], 0, UINT32_MAX, &v) < 0)
				return err_set(e, 0, "%s: give a number", *p);
			*numbers[i].number = (int)v;
		} else if (strcmp(*p, "--openapi") == 0) {
			args.openapi = p[1];
		} else if (strcmp(*p, "--config-name") == 0) {
			args.config_name = p[1];
		} else {
			return err_set(e, 0, "%.40s: is not understood", *p);
		}
		p++;
	}
	return 0;
}

/* ---- what it needs ---- */

static int read_config(struct service *v, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	struct spec spec;
	size_t size;
	int r;

	/* With every place in it: what HOME would say of this user is of no interest. */
	if (args.config_fd < 0)
		return err_set(e, 0, "is started by `cloche serve`");
	v->file_name = args.config_name;
	r = fd_slurp(args.config_fd, 2 << 20, &text, &size);
	fd_close(&args.config_fd);
	if (r < 0)
		return err_set(e, -r, "read the configuration");
	v->file = json_read(text, size, e);
	if (!v->file)
		return -1;
	if (service_config_read(&v->config, &v->places, v->file, e) < 0)
		return -1;
	if (spec_init(&spec, e) < 0)
		return -1;
	r = settings_from_json(&v->policy, &spec, v->file, v->file_name, true, e);
	if (r == 0)
		r = mcp_asks_read(&v->mcp_asks, v->config.mcp, &v->policy, &spec, e);
	spec_done(&spec);
	return r;
}

static int read_quotas(struct service *v, struct err *e)
{
	struct quota session;

	if (service_config_quotas(&v->config, &v->owner_quota, &session, e) < 0)
		return -1;
	v->quotas = quota_table_new(&v->owner_quota, &session, &quota_default_limits);
	return v->quotas ? 0 : err_set(e, ENOMEM, "make the quotas");
}

static void read_openapi(struct service *v)
{
	_cleanup_close_ int fd = args.openapi ? open(args.openapi, O_RDONLY | O_CLOEXEC) : -1;

	if (fd >= 0 && fd_slurp(fd, 4 << 20, &v->openapi, &v->openapi_size) < 0)
		v->openapi = NULL;
}

/* The files came as descriptors: they need not be readable for this user. */
static int make_tls(struct err *e)
{
	char certificate[64], key[64];

	tls = SSL_CTX_new(TLS_server_method());
	snprintf(certificate, sizeof certificate, "/proc/self/fd/%d", args.certificate_fd);
	snprintf(key, sizeof key, "/proc/self/fd/%d", args.key_fd);
	if (!tls || SSL_CTX_use_certificate_chain_file(tls, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(tls) != 1)
		return err_set(e, 0, "tls_certificate and tls_key: not a PEM chain and its key");
	close(args.certificate_fd);
	close(args.key_fd);
	return 0;
}

/* ---- while it serves ---- */

static void on_pulling(void *context, const char *id)
{
	box_on_pulling(context, id);
}

static void on_ended(void *context, const struct spawner_ended *ended)
{
	box_on_ended(context, ended);
}

static void on_up(void *context)
{
	log_event("spawner.up", NULL);
	recover(context);
}

static void on_down(void *context)
{
	log_event("spawner.down", NULL);
	pool_forget(context);
	dying_forget(context);
}

static bool may_create(void *context)
{
	return !dying_are_too_many(context);
}

static const struct link_ops link_ops = {on_ended, on_pulling, on_up, on_down, may_create};

static void tell_systemd(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	size_t n = path ? strlen(path) : 0;
	_cleanup_close_ int fd = -1;

	if (n < 2 || n >= sizeof a.sun_path)
		return;
	memcpy(a.sun_path, path, n);
	if (a.sun_path[0] == '@')
		a.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	/* connected first: the filter lets nothing be sent to an address (self_calls.def) */
	if (fd < 0 ||
	    connect(fd, (struct sockaddr *)&a,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0 ||
	    send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		log_event("notify.failed", NULL);
}

/* The comparison with what lives is done: clients may come. */
void service_is_ready(struct service *v)
{
	struct err e = {0};

	if (v->ready)
		return;
	v->ready = true;
	if ((args.socket_fd >= 0 && http_server_listen(v->http, args.socket_fd, NULL, &e) < 0) ||
	    (args.tcp_fd >= 0 && http_server_listen(v->http, args.tcp_fd, tls, &e) < 0)) {
		log_event("service.failed", json_pack("{ss}", "error", e.text));
		uv_stop(&v->loop);
		v->failed = true;
		return;
	}
	SSL_CTX_free(tls);
	log_event("service.ready", json_pack("{sI}", "sandboxes", (json_int_t)v->box_count));
	tell_systemd("READY=1");
}

static void on_turn(uv_prepare_t *p)
{
	service_commit(p->data);
}

static void on_housekeeping(uv_timer_t *t)
{
	struct service *v = t->data;
	const struct retention r = {.ended_sandbox_ms =
					    (int64_t)(v->config.ended_retention_us / 1000),
				    .run_ms = (int64_t)(v->config.run_retention_us / 1000),
				    .audit_ms = (int64_t)(v->config.audit_retention_us / 1000)};
	struct err e = {0};
	bool expired;
	int more;

	service_commit(v);
	expired = !kept_expire(v);
	more = store_retain(v->store, &r, &e);
	if (more < 0)
		store_failed(v, &e);
	malloc_trim(0); /* what large bodies have left behind */
	uv_timer_start(t, on_housekeeping, more > 0 || !expired ? 50 : HOUSEKEEPING_MS, 0);
}

/* Until the sandboxes that are nobody's are gone, but not for ever. A spawner that has died has a successor, which
 * tells what lives (recover.c), what was prepared among it; unless cloche-serve has died, too. */
static void on_stopping(uv_timer_t *t)
{
	struct service *v = t->data;
	bool gone = link_is_up(v->link)
			    ? v->dying_count == 0 && pool_is_empty(v) && link_is_idle(v->link)
			    : !v->pool;

	if (gone || now_us() > v->stop_by_us)
		uv_stop(&v->loop);
}

static void on_signal(uv_signal_t *s, int number)
{
	struct service *v = s->data;

	if (v->stopping)
		return;
	v->stopping = true;
	/* cloche-serve orders by SIGTERM, and its death sends the other (serve.c). */
	v->orphaned = number == SIGINT;
	log_event("service.stopping", json_pack("{si}", "signal", number));
	/* STOPPING=1 is not for us to say: systemd would end the whole service when only we stop. */
	http_server_stop(v->http);
	/* Sandboxes stay; who waits for an answer of one-shots finds it by id later. What nobody waits for goes. */
	pool_stop(v);
	v->stop_by_us = now_us() + STOP_LIMIT_US;
	uv_timer_start(&v->housekeeping, on_stopping, 0, 10);
}

static int start(struct service *v, struct err *e)
{
	struct http_limits limits = http_default_limits;
	char path[sizeof v->config.runtime_dir + 16];
	static uv_signal_t term, interrupt;
	int r = uv_loop_init(&v->loop);

	if (r < 0)
		return err_set(e, -r, "make an event loop");
	if (args.certificate_fd >= 0 && make_tls(e) < 0)
		return -1;
	limits.connections = v->config.connections;
	v->store = store_open(v->config.state_dir, e);
	if (!v->store || read_quotas(v, e) < 0)
		return -1;
	kept_sweep(v);
	v->http = http_server_new(&v->loop, &limits, call_route, v, e);
	if (!v->http)
		return -1;
	uv_prepare_init(&v->loop, &v->commit);
	v->commit.data = v;
	uv_prepare_start(&v->commit, on_turn);
	uv_timer_init(&v->loop, &v->again);
	v->again.data = v;
	uv_timer_init(&v->loop, &v->forgetting);
	v->forgetting.data = v;
	uv_timer_init(&v->loop, &v->tidying);
	v->tidying.data = v;
	uv_timer_init(&v->loop, &v->sharing);
	v->sharing.data = v;
	uv_timer_init(&v->loop, &v->housekeeping);
	v->housekeeping.data = v;
	uv_timer_start(&v->housekeeping, on_housekeeping, HOUSEKEEPING_MS, 0);
	uv_signal_init(&v->loop, &term);
	uv_signal_init(&v->loop, &interrupt);
	term.data = interrupt.data = v;
	uv_signal_start(&term, on_signal, SIGTERM);
	uv_signal_start(&interrupt, on_signal, SIGINT);
	snprintf(path, sizeof path, "%s/spawner.sock", v->config.runtime_dir);
	v->link = link_new(&v->loop, path, &link_ops, v, e);
	if (v->link)
		pool_start(v);
	return v->link ? 0 : -1;
}

/* A shell's 1,024 are as many as one client may have connections: it would leave none to the others. */
static void raise_limits(void)
{
	struct rlimit l;

	if (getrlimit(RLIMIT_NOFILE, &l) < 0)
		return;
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
}

/* A request's bodies and rows come and go: the heap would be given back and asked for again with each (3 brk() a run).
 * What large ones have left is given back by the housekeeping. */
static void keep_heap(void)
{
	mallopt(M_TOP_PAD, HEAP_PAD);
	mallopt(M_TRIM_THRESHOLD, HEAP_KEPT);
	mallopt(M_MMAP_THRESHOLD, HEAP_KEPT);
}

int main(int argc, char **argv)
{
	struct service *v = &service;
	struct err e = {0};

	(void)argc;
	keep_heap();
	signal(SIGPIPE, SIG_IGN);
	raise_limits();
	if (parse_arguments(argv, &e) < 0) {
		fprintf(stderr, "cloched: %s\n", e.text);
		return EXIT_USAGE;
	}
	if (args.routes) {
		call_print_routes(stdout);
		return 0;
	}
	v->operator_uid = args.operator_uid;
	memcpy(v->store_folders, args.store_folders, sizeof v->store_folders);
	v->started_ms = wall_ms();
	if (read_config(v, &e) == 0)
		read_openapi(v);
	if (e.text[0] || start(v, &e) < 0 ||
	    sandbox_self(v->config.state_dir, v->config.runtime_dir, &e) < 0) {
		log_event("service.failed", json_pack("{ss}", "error", e.text));
		fprintf(stderr, "cloched: %s\n", e.text);
		return 1;
	}
	uv_run(&v->loop, UV_RUN_DEFAULT);
	service_commit(v);
	store_close(v->store);
	return v->failed;
}
