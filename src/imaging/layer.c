/* SPDX-License-Identifier: Apache-2.0 */
#include "imaging/layer.h"

#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/tree.h"
#include "imaging/helper.h"

#define PIECE    (256u << 10)
#define PIPE_MAX (1 << 20)

/* ---- the thread that hashes what goes in */

struct pump {
	int from, to; /* owned: to */
	uint64_t size;
	_Atomic uint64_t done;
	atomic_bool stop;
	int errnum; /* reading failed */
	bool cut;   /* the source was shorter */
	unsigned char hash[32];
};

static void *pump(void *context)
{
	struct pump *p = context;
	_cleanup_free_ char *piece = malloc(PIECE);
	EVP_MD_CTX *hash = EVP_MD_CTX_new();
	uint64_t done = 0;

	if (!piece || !hash || EVP_DigestInit_ex2(hash, EVP_sha256(), NULL) != 1)
		p->errnum = ENOMEM;
	while (!p->errnum && !p->stop && done < p->size) {
		size_t want = p->size - done < PIECE ? (size_t)(p->size - done) : PIECE;
		ssize_t n = pread(p->from, piece, want, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			p->errnum = errno;
		p->cut = n == 0;
		if (n <= 0)
			break;
		EVP_DigestUpdate(hash, piece, (size_t)n);
		done += (uint64_t)n;
		p->done = done;
		/* The decoder may stop early; all bytes belong to the digest all the same. */
		if (p->to >= 0 && fd_write_all(p->to, piece, (size_t)n) < 0)
			fd_close(&p->to);
	}
	fd_close(&p->to);
	if (hash)
		EVP_DigestFinal_ex(hash, p->hash, NULL);
	EVP_MD_CTX_free(hash);
	return NULL;
}

/* ---- the decoder */

struct decoding {
	struct pump pump;
	pthread_t thread;
	bool has_thread;
	pid_t pid;
	int out;
	char *buffer;
	struct entry_reader reader;
};

static int make_pipe(int p[2], struct err *e)
{
	if (pipe2(p, O_CLOEXEC) < 0)
		return err_set(e, errno, "make a pipe");
	fcntl(p[0], F_SETPIPE_SZ, PIPE_MAX); /* only faster */
	return 0;
}

static int start_decoder(struct decoding *d, uint64_t bytes_max, bool checked, struct err *e)
{
	char path[HELPER_PATH_SIZE], number[24],
		check[] = "check", *argv[] = {path, number, checked ? NULL : check, NULL},
		*environment[] = {NULL};
	posix_spawn_file_actions_t actions;
	int in[2], out[2], r;

	if (helper_find("cloche-decode", path, e) < 0 || make_pipe(in, e) < 0)
		return -1;
	d->pump.to = in[1];
	if (make_pipe(out, e) < 0) {
		close(in[0]);
		return -1;
	}
	d->out = out[0];
	snprintf(number, sizeof number, "%" PRIu64, bytes_max);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, in[0], 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	r = posix_spawn(&d->pid, path, &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	close(in[0]);
	close(out[1]);
	if (r != 0) {
		d->pid = 0;
		return err_set(e, r, "run %s", path);
	}
	r = pthread_create(&d->thread, NULL, pump, &d->pump);
	d->has_thread = r == 0;
	return r ? err_set(e, r, "start a thread") : 0;
}

/* Idempotent. Returns how the decoder ended. */
static int stop_decoder(struct decoding *d)
{
	int status = 0;

	d->pump.stop = true;
	if (d->pid > 0) {
		kill(d->pid, SIGKILL); /* it may have ended before: then this does nothing */
		while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR)
			;
		d->pid = 0;
	}
	fd_close(&d->out);
	if (d->has_thread)
		pthread_join(d->thread, NULL);
	d->has_thread = false;
	fd_close(&d->pump.to);
	free(TAKE_PTR(d->buffer));
	return status;
}

static int decoder_died(struct decoding *d, int r, struct err *e)
{
	int status;

	if (r == -EBADMSG)
		return err_set(
			e, 0,
			"the reader of archives sent nonsense: the archive may be an attack on it");
	status = stop_decoder(d);
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		return err_set(
			e, 0,
			"the reader of archives died of signal %d: the archive may be an attack on it",
			WTERMSIG(status));
	return err_set(e, 0, "the reader of archives ended early");
}

/* 0 when the archive was complete, 1 when take() had enough. */
static int read_all(struct decoding *d, struct meter *meter,
		    int (*take)(void *context, const struct entry_frame *entry, struct err *e),
		    void *context, struct err *e)
{
	struct entry_frame entry;
	int r;

	for (;;) {
		r = entry_read(&d->reader, &entry);
		if (is_cancelled())
			return err_set(e, ECANCELED, "interrupted");
		if (r < 0)
			return decoder_died(d, r, e);
		if (entry.type == ENTRY_FRAME_ERROR)
			return err_set(e, 0, "%s", entry.error);
		r = take(context, &entry, e);
		if (r != 0 || entry.type == ENTRY_FRAME_END)
			return r;
		meter_step(meter, d->pump.done, d->pump.size);
	}
}

int archive_read_frames(int fd, uint64_t size, uint64_t bytes_max, bool checked,
			struct meter *meter,
			int (*take)(void *context, const struct entry_frame *entry, struct err *e),
			void *context, char *hex, struct err *e)
{
	struct decoding d = {.pump = {.from = fd, .to = -1, .size = size}, .out = -1};
	int r;

	d.buffer = malloc(ENTRY_BUFFER);
	if (!d.buffer)
		return err_set(e, ENOMEM, "read an archive");
	r = start_decoder(&d, bytes_max, checked, e);
	entry_reader_init(&d.reader, d.out, d.buffer);
	if (r == 0)
		r = read_all(&d, meter, take, context, e);
	if (r == 0) {
		/* Without it the thread only hashes what it left unread. */
		kill(d.pid, SIGKILL);
		waitpid(d.pid, &(int){0}, 0);
		d.pid = 0;
		pthread_join(d.thread, NULL);
		d.has_thread = false;
		if (d.pump.errnum)
			r = err_set(e, d.pump.errnum, "read the archive");
		else if (d.pump.cut)
			r = err_set(e, 0, "it is shorter than %" PRIu64 " bytes", size);
		else if (hex)
			hash_to_hex(d.pump.hash, hex);
	}
	stop_decoder(&d);
	return r;
}

/* ---- layers */

struct unpacking {
	struct tree_writer *writer;
	struct end_wire end;
};

static int take_frame(void *context, const struct entry_frame *entry, struct err *e)
{
	struct unpacking *u = context;

	if (entry->type == ENTRY_FRAME_END) {
		u->end = entry->end;
		return tree_writer_finish(u->writer, e);
	}
	return tree_writer_take(u->writer, entry, e);
}

static void chain_hex(const char *digest, const struct record_layer *lowers, size_t count,
		      char hex[LAYER_HEX])
{
	char text[2 * (DIGEST_TEXT + 1)];

	hash_text("", 0, hex);
	for (size_t i = 0; i <= count; i++) {
		int n = snprintf(text, sizeof text, "%.64s %s", hex,
				 i < count ? lowers[i].digest : digest);

		hash_text(text, (size_t)n, hex);
	}
}

/* By its digest; or, if its tree needs what is below it, by that and all digests below. */
int layer_look_up(const struct image_store *s, const char *digest,
		  const struct record_layer *lowers, size_t lower_count, struct record_layer *ret,
		  struct err *e)
{
	char chain[LAYER_HEX];
	struct kept_layer kept;
	int r = keeper_layer_find(s, digest + strlen("sha256:"), &kept, e);

	if (r == 1) {
		chain_hex(digest, lowers, lower_count, chain);
		r = keeper_layer_find(s, chain, &kept, e);
	}
	if (r != 0)
		return r;
	memcpy(ret->name, kept.name, sizeof kept.name);
	memcpy(ret->digest, digest, DIGEST_TEXT + 1);
	ret->bytes = kept.bytes;
	return 0;
}

uint64_t layer_bytes_for(uint64_t size)
{
	uint64_t most = size > LAYER_MAX_BYTES / LAYER_RATIO ? LAYER_MAX_BYTES : size * LAYER_RATIO;

	return most > LAYER_FREE_BYTES ? most : LAYER_FREE_BYTES;
}

static int check_digests(const struct layer_source *from, const char *hex,
			 const struct end_wire *end, struct err *e)
{
	char inside[LAYER_HEX];

	if (strcmp(from->digest + strlen("sha256:"), hex) != 0)
		return err_set(e, 0, "the digest is wrong: its bytes are sha256:%s", hex);
	if (!from->diff_id)
		return 0;
	hash_to_hex(end->sha256, inside);
	if (strcmp(from->diff_id + strlen("sha256:"), inside) != 0)
		return err_set(
			e, 0,
			"the image's configuration says its archive is %s, but it is sha256:%s",
			from->diff_id, inside);
	return 0;
}

static int unpack(const struct image_store *s, const struct layer_source *from, int dir, int l_dir,
		  const struct record_layer *lowers, size_t lower_count, struct meter *meter,
		  struct tree_notes *notes, struct kept_layer *kept, bool *ret_gaps, struct err *e)
{
	const uint64_t bytes_max = layer_bytes_for(from->size);
	const struct tree_limits limits = {bytes_max, LAYER_MAX_ENTRIES};
	_cleanup_(cleanup_tree_writer) struct tree_writer *writer =
		tree_writer_new(dir, s->rootless, &limits, l_dir, lowers, lower_count, e);
	struct unpacking u = {.writer = writer};
	struct tree_notes n;
	char hex[LAYER_HEX];

	if (!writer)
		return -1;
	if (archive_read_frames(from->fd, from->size, bytes_max, from->diff_id != NULL, meter,
				take_frame, &u, hex, e) != 0 ||
	    check_digests(from, hex, &u.end, e) < 0)
		return -1;
	kept->bytes = tree_writer_bytes(writer);
	kept->entries = tree_writer_entries(writer);
	*ret_gaps = tree_writer_has_gaps(writer);
	n = tree_writer_notes(writer);
	notes->devices += n.devices;
	notes->set_ids += n.set_ids;
	notes->attributes += n.attributes;
	return 0;
}

/* Under its lock, in a folder of its own. */
static int make_layer(const struct image_store *s, const struct layer_source *from,
		      const struct record_layer *lowers, size_t lower_count, struct meter *meter,
		      struct tree_notes *notes, struct err *e)
{
	const char *hex = from->digest + strlen("sha256:");
	char folder[LAYER_HEX + 8], chain[LAYER_HEX];
	_cleanup_close_ int dir = -1, l_dir = openat(s->dir, "l", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct kept_layer kept;
	bool gaps = false;
	int r;

	snprintf(folder, sizeof folder, "tmp/%s", hex);
	r = tree_remove(s->dir, folder); /* of somebody who was killed */
	if (r < 0)
		return err_set(e, -r, "remove %s/%s", s->path, folder);
	if (mkdirat(s->dir, folder, 0700) < 0)
		return err_set(e, errno, "make %s/%s", s->path, folder);
	dir = openat(s->dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0 || l_dir < 0)
		r = err_set(e, errno, "open %s/%s", s->path, folder);
	else
		r = unpack(s, from, dir, l_dir, lowers, lower_count, meter, notes, &kept, &gaps, e);
	if (r == 0) {
		chain_hex(from->digest, lowers, lower_count, chain);
		r = keeper_layer_commit(s, hex, gaps ? chain : hex, &kept, e);
	}
	if (r < 0)
		tree_remove(s->dir, folder);
	return r;
}

static void say_busy(void *context)
{
	meter_remark(context, "another process unpacks it, waiting");
}

int layer_have(const struct image_store *s, const struct layer_source *from,
	       const struct record_layer *lowers, size_t lower_count, struct meter *meter,
	       struct tree_notes *notes, struct record_layer *ret, struct err *e)
{
	_cleanup_close_ int lock = -1;
	int r = layer_look_up(s, from->digest, lowers, lower_count, ret, e);

	if (r != 1)
		return r;
	lock = keeper_layer_lock(s, from->digest + strlen("sha256:"), say_busy, meter, e);
	if (lock < 0)
		return -1;
	r = layer_look_up(s, from->digest, lowers, lower_count, ret, e);
	if (r != 1)
		return r;
	if (make_layer(s, from, lowers, lower_count, meter, notes, e) < 0)
		return err_prefix(e, "layer %.19s", from->digest);
	r = layer_look_up(s, from->digest, lowers, lower_count, ret, e);
	return r == 1 ? err_set(e, 0, "layer %.19s has vanished", from->digest) : r;
}
