/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pulls.c - images that are not there: got by cloche-image, while what was asked for waits.
 *
 * A worker that finds no image says so; what it was to make then waits here, for one cloche-image per name, and is begun
 * anew when that has done its part. Only images that the operator's policy names are got: without a list of images,
 * whoever may make sandboxes could fill the disk. Nothing of the client's goes to cloche-image but that name, which it
 * treats as a stranger's (registry.h, untrusted_reference).
 */
#include "spawner/spawner.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "image/image.h"

/* ---- in the child */

/* What the owner of the store needs to write other users' files, and its decoder to become nobody. With no_new_privs
 * an exec gives root no more than it had. */
static int drop_capabilities(void)
{
	static const unsigned kept = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER |
				     1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID |
				     1u << CAP_SYS_ADMIN; /* trusted.overlay attributes */
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capget, &header, data) < 0)
		return -1;
	data[0].permitted &= kept;
	data[0].effective = data[0].permitted;
	data[0].inheritable = 0;
	data[1] = (struct __user_cap_data_struct){0};
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -1;
	return (int)syscall(SYS_capset, &header, data);
}

__attribute__((noreturn)) static void become_puller(const struct spawner *s, const char *program,
						    char *name, int words)
{
	char state[PATH_MAX + 16], config[PATH_MAX + 16];
	char *argv[] = {(char *)(uintptr_t)program,
			"pull",
			"--quiet",
			"--for-client",
			state,
			config,
			"--",
			name,
			NULL};
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC), keep = -1;

	snprintf(state, sizeof state, "--state-dir=%s", s->places.state);
	snprintf(config, sizeof config, "--config=%s", s->places.system_config);
	if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(nothing, 1) < 0 || dup2(words, 2) < 0)
		_exit(1);
	worker_close_others(&keep, 0);
	if (!s->places.rootless && drop_capabilities() < 0) {
		fprintf(stderr, "give up capabilities: %s\n", strerror(errno));
		_exit(1);
	}
	execv(program, argv);
	fprintf(stderr, "start %s: %s (reinstall cloche)\n", program, strerror(errno));
	_exit(1);
}

/* ---- one pull */

static int find_program(char path[PATH_MAX + 16], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	char *slash;

	path[n > 0 ? n : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return err_set(e, errno, "find the folder of this program");
	memcpy(slash, "/cloche-image", sizeof "/cloche-image");
	return 0;
}

static int start(struct spawner *s, struct pull *p, const char *name, struct err *e)
{
	char program[PATH_MAX + 16], copy[sizeof p->name];
	pid_t parent = getpid();
	int words[2];

	*p = (struct pull){.deadline_ms = now_ms() + PULL_DEADLINE_MS};
	snprintf(p->name, sizeof p->name, "%s", name);
	memcpy(copy, p->name, sizeof copy);
	if (find_program(program, e) < 0)
		return -1;
	if (pipe2(words, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	p->pid = fork();
	if (p->pid == 0) {
		worker_become_child(parent);
		become_puller(s, program, copy, words[1]);
	}
	close(words[1]);
	if (p->pid < 0) {
		close(words[0]);
		return err_set(e, errno, "start %s", program);
	}
	fcntl(words[0], F_SETFL, O_NONBLOCK);
	p->words = words[0];
	p->used = true;
	return 0;
}

static struct pull *find(struct spawner *s, const char *name, struct err *e)
{
	struct pull *unused = NULL;

	for (struct pull *p = s->pulls; p < s->pulls + PULLS_MAX; p++) {
		if (p->used && !p->given_up && strcmp(p->name, name) == 0)
			return p;
		if (!p->used)
			unused = p;
	}
	if (!unused) {
		err_set(e, EAGAIN, "%d images are being pulled already", PULLS_MAX);
		err_code(e, CODE_SANDBOX_QUOTA_EXCEEDED);
		return NULL;
	}
	return start(s, unused, name, e) < 0 ? NULL : unused;
}

static void refuse(struct spawner *s, const struct queued *q, const struct err *e)
{
	client_refuse(s, q->client, q->job->request.header.sequence, e);
	job_free(q->job);
}

bool pulls_take(struct spawner *s, struct job *j, unsigned client, const struct err *missing)
{
	struct spawner_by_id m = {.header = {SPAWNER_PULLING, j->request.header.sequence}};
	const struct queued q = {j, client};
	struct err e = *missing;
	struct pull *p;

	/* An id is of what is here, and no name. */
	if (!j->request.pull || j->pulled || strncmp(j->request.image, "sha256:", 7) == 0 ||
	    client != s->client_number)
		return false;
	if (!s->policy.settings.images) {
		err_set(&e, 0,
			"no such image: %.200s (this service pulls only what its operator's "
			"policy: images names; get it with `cloche image pull` or `cloche image import`)",
			j->request.image);
		err_code(&e, CODE_SANDBOX_IMAGE_MISSING);
		refuse(s, &q, &e);
		return true;
	}
	e = (struct err){.code = CODE_SANDBOX_CREATE_FAILED};
	p = find(s, j->request.image, &e);
	if (p && p->waiting_count == PULL_WAITING_MAX) {
		err_set(&e, EAGAIN, "%d sandboxes wait for %.200s", PULL_WAITING_MAX, p->name);
		err_code(&e, CODE_SANDBOX_QUOTA_EXCEEDED);
		p = NULL;
	}
	if (!p) {
		refuse(s, &q, &e);
		return true;
	}
	p->waiting[p->waiting_count++] = q;
	memcpy(m.id, j->request.id, sizeof m.id);
	client_send(s, client, &m, sizeof m);
	return true;
}

static void give_up(struct pull *p)
{
	if (!p->given_up && p->pid > 0)
		kill(p->pid, SIGTERM); /* it cleans up; what has come stays for the next time */
	p->given_up = true;
}

bool pulls_pending(struct spawner *s, const char *id, bool cancel)
{
	for (struct pull *p = s->pulls; p < s->pulls + PULLS_MAX; p++)
		for (size_t i = 0; p->used && i < p->waiting_count; i++) {
			if (strcmp(p->waiting[i].job->request.id, id) != 0)
				continue;
			if (!cancel)
				return true;
			creation_cancelled(s, &p->waiting[i]);
			p->waiting[i] = p->waiting[--p->waiting_count];
			if (p->waiting_count == 0)
				give_up(p);
			return true;
		}
	return false;
}

void pulls_forget(struct spawner *s)
{
	for (struct pull *p = s->pulls; p < s->pulls + PULLS_MAX; p++) {
		if (!p->used)
			continue;
		while (p->waiting_count > 0)
			job_free(p->waiting[--p->waiting_count].job);
		give_up(p);
	}
}

/* What it said last, as one line; a registry may have a word in it. */
static void last_words(int fd, struct err *e)
{
	char text[sizeof e->text];
	ssize_t n = read(fd, text, sizeof text - 1);
	const char *line = text;

	text[n > 0 ? n : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (strncmp(line, "cloche: ", 8) == 0)
		line += 8;
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
	if (*line)
		memmove(e->text, line, strlen(line) + 1);
}

void pulls_ended(struct spawner *s, pid_t pid, bool worked)
{
	for (struct pull *p = s->pulls; p < s->pulls + PULLS_MAX; p++) {
		struct err e = {0};

		if (!p->used || p->pid != pid)
			continue;
		p->used = false;
		err_set(&e, 0, "the image %.200s could not be pulled%s", p->name,
			p->given_up ? ": it took too long" : "");
		if (!worked && !p->given_up)
			last_words(p->words, &e);
		err_code(&e, CODE_SANDBOX_IMAGE_MISSING);
		close(p->words);
		for (size_t i = 0; i < p->waiting_count; i++) {
			p->waiting[i].job->pulled = true;
			if (!worked || creation_again(s, &p->waiting[i], &e) < 0)
				refuse(s, &p->waiting[i], &e);
		}
		return;
	}
}

uint64_t pulls_deadlines(struct spawner *s, uint64_t now)
{
	uint64_t next = UINT64_MAX;

	for (struct pull *p = s->pulls; p < s->pulls + PULLS_MAX; p++) {
		if (!p->used || p->given_up)
			continue;
		if (now >= p->deadline_ms)
			give_up(p);
		else if (p->deadline_ms < next)
			next = p->deadline_ms;
	}
	return next;
}
