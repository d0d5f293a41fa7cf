/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pull.c - registry-pull [OPTION VALUE]... REFERENCE FOLDER: the registry client and download.h, for tests. Prints one JSON object: what came, or the cause and the error. Exit status 0, 1; 2 usage.
 *
 * A blob is FOLDER/<digits> while it comes and FOLDER/<digest> when it has been verified. SIGINT and SIGTERM cancel.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "registry/download.h"

struct settings {
	struct registry_config config;
	struct registry_options options;
	struct platform platform;
	bool digest_only;
};

static void show_progress(void *context, const struct registry_progress *p)
{
	(void)context;
	fprintf(stderr, "{\"done\": %llu, \"total\": %llu, \"active\": %u, \"waiting\": %s}\n",
		(unsigned long long)p->done, (unsigned long long)p->total, p->active,
		p->waiting ? "true" : "false");
}

static int by_digest(const void *a, const void *b)
{
	return strcmp(((const struct descriptor *)a)->digest,
		      ((const struct descriptor *)b)->digest);
}

/* What is not there yet, each once, in order: download.h says why. */
static size_t choose(const struct registry_image *image, int dir, struct descriptor *ret)
{
	size_t n = 0, unique = 0;

	for (size_t i = 0; i <= image->parsed.layer_count; i++)
		ret[n++] = i ? image->parsed.layers[i - 1] : image->parsed.config;
	qsort(ret, n, sizeof *ret, by_digest);
	for (size_t i = 0; i < n; i++)
		if ((i == 0 || by_digest(&ret[i], &ret[i - 1]) != 0) &&
		    faccessat(dir, ret[i].digest, F_OK, 0) != 0)
			ret[unique++] = ret[i];
	return unique;
}

static json_t *tell(const struct registry_blob *b, uint64_t resumed)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:b}", "digest", b->what.digest, "size",
			 (json_int_t)b->what.size, "done", (json_int_t)b->done, "resumed",
			 (json_int_t)resumed, "finished", b->finished);
}

static int fetch(struct settings *s, struct registry *r, const struct registry_image *image,
		 int dir, json_t *out, struct err *e)
{
	size_t count = image->parsed.layer_count + 1, opened = 0;
	struct descriptor *wanted = calloc(count, sizeof *wanted);
	struct registry_blob *blobs = calloc(count, sizeof *blobs);
	struct download *files = calloc(count, sizeof *files);
	json_t *list = json_array();
	int result = 0;

	count = choose(image, dir, wanted);
	for (size_t i = 0; i < count && result == 0; i++) {
		result = download_open(&files[opened], dir, &wanted[i], s->options.cancel_fd, e);
		if (result == 0 && faccessat(dir, wanted[i].digest, F_OK, 0) == 0) {
			download_remove(&files[opened]); /* another process was here first */
			download_done(&files[opened]);
		} else if (result == 0) {
			blobs[opened] = download_blob(&files[opened]);
			opened++;
		}
	}
	if (result == 0)
		result = registry_fetch(r, blobs, opened, e);
	for (size_t i = 0; i < opened; i++) {
		json_array_append_new(list, tell(&blobs[i], blobs[i].offset));
		if (blobs[i].finished &&
		    renameat(dir, files[i].name, dir, blobs[i].what.digest) < 0 && result == 0)
			result = err_set(e, errno, "keep %s", files[i].name);
		download_done(&files[i]);
	}
	json_object_set_new(out, "blobs", list);
	free(wanted);
	free(blobs);
	free(files);
	return result;
}

static void describe(json_t *out, const struct registry_image *image)
{
	json_object_set_new(out, "digest", json_string(image->digest));
	json_object_set_new(out, "manifest_digest", json_string(image->manifest_digest));
	json_object_set_new(out, "media_type", json_string(image->media_type));
	json_object_set_new(out, "manifest", json_stringn(image->manifest, image->manifest_size));
	json_object_set_new(out, "index",
			    image->index ? json_stringn(image->index, image->index_size)
					 : json_null());
	json_object_set_new(out, "layers", json_integer((json_int_t)image->parsed.layer_count));
	json_object_set_new(out, "compression", json_integer(image->parsed.layers[0].compression));
}

static int pull(struct settings *s, const char *name, int dir, json_t *out, struct err *e)
{
	struct registry_image image = {0};
	char digest[DIGEST_TEXT + 1];
	struct reference reference;
	struct registry *r;
	int result;

	if (reference_parse(name, &reference, e) < 0)
		return -1;
	r = registry_open(&s->config, &reference, &s->options, e);
	registry_config_done(&s->config);
	if (!r)
		return -1;
	if (s->digest_only) {
		result = registry_digest(r, digest, e);
		if (result == 0)
			json_object_set_new(out, "digest", json_string(digest));
	} else {
		result = registry_resolve(r, &s->platform, &image, e);
		if (result == 0) {
			describe(out, &image);
			result = fetch(s, r, &image, dir, out, e);
		}
	}
	json_object_set_new(out, "cause", json_string(registry_cause_name(registry_cause(r))));
	registry_image_done(&image);
	registry_close(r);
	return result;
}

static int set_number(struct settings *s, const char *name, const char *value)
{
	const struct {
		const char *name;
		uint64_t *wide;
		unsigned *narrow;
	} numbers[] = {
		{"--stall-ms", &s->options.stall_us, NULL},
		{"--connect-ms", &s->options.connect_us, NULL},
		{"--deadline-ms", &s->options.deadline_us, NULL},
		{"--patience-ms", &s->options.patience_us, NULL},
		{"--max-total", &s->options.max_total, NULL},
		{"--parallel", NULL, &s->options.parallel},
		{"--attempts", NULL, &s->options.attempts},
	};

	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		uint64_t n = strtoull(value, NULL, 10);

		if (strcmp(name, numbers[i].name) != 0)
			continue;
		if (numbers[i].narrow)
			*numbers[i].narrow = (unsigned)n;
		else
			*numbers[i].wide = strstr(name, "-ms") ? n * 1000 : n;
		return 0;
	}
	return -1;
}

static int set_option(struct settings *s, const char *name, const char *value, struct err *e)
{
	json_t *root;
	int r = 0;

	if (strcmp(name, "--registries") == 0) {
		root = json_read(value, strlen(value), e);
		r = root ? registry_config_read(&s->config, root, e) : -1;
		json_decref(root);
	} else if (strcmp(name, "--docker-config") == 0) {
		s->options.docker_config = value;
	} else if (strcmp(name, "--platform") == 0) {
		r = platform_parse(value, &s->platform, e);
	} else if (strcmp(name, "--untrusted") == 0) {
		s->options.untrusted_reference = *value == '1';
	} else if (strcmp(name, "--digest-only") == 0) {
		s->digest_only = *value == '1';
	} else if (strcmp(name, "--progress") == 0) {
		s->options.progress = *value == '1' ? show_progress : NULL;
	} else if (set_number(s, name, value) < 0) {
		r = err_set(e, 0, "unknown option %s", name);
	}
	return r;
}

static int watch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	signal(SIGPIPE, SIG_IGN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

/* Largest resident size; getrusage() would count what the parent had before the exec. */
static json_int_t peak_kib(void)
{
	char text[4096];
	ssize_t n = fd_read_file(AT_FDCWD, "/proc/self/status", text, sizeof text);
	const char *line = n > 0 ? strstr(text, "VmHWM:") : NULL;

	return line ? strtoll(line + 6, NULL, 10) : -1;
}

int main(int argc, char **argv)
{
	struct settings s = {.platform = platform_native};
	json_t *out = json_object();
	struct err e = {0};
	int i = 1, dir, r = 0;

	s.options.cancel_fd = watch_signals();
	for (; i + 1 < argc && argv[i][0] == '-' && r == 0; i += 2)
		r = set_option(&s, argv[i], argv[i + 1], &e);
	if (r == 0 && i + 2 != argc) {
		fprintf(stderr, "usage: registry-pull [OPTION VALUE]... REFERENCE FOLDER\n");
		return 2;
	}
	if (r == 0) {
		dir = open(argv[i + 1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = dir < 0 ? err_set(&e, errno, "%s", argv[i + 1])
			    : pull(&s, argv[i], dir, out, &e);
		fd_close(&dir);
	}
	json_object_set_new(out, "rss_kib", json_integer(peak_kib()));
	json_object_set_new(out, "error", r < 0 ? json_string(e.text) : json_null());
	json_dumpf(out, stdout, JSON_INDENT(1));
	json_decref(out);
	registry_config_done(&s.config);
	return r < 0;
}
