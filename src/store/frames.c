/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c - a write where SQLite makes two. It appends to its log frame by frame: 24 bytes of header, then
 * the page; of what a commit costs us half are these calls. Here a header waits for its page.
 *
 * A header that waits is in no file, so nothing may end on one. SQLite writes one alone only when it has just
 * read (walRewriteChecksums): then, and for any size but a header's, nothing waits. Whatever else is asked of
 * the log meanwhile comes after it. Everything but the log is SQLite's own, untouched.
 */
#include "store/database.h"

#include <stdlib.h>
#include <string.h>

enum {
	HEADER = 24,     /* of a frame: sqlite.org/fileformat2.html, 4.1 */
	PAGE_MAX = 4096, /* the largest of ours */
};

struct log {
	sqlite3_file base;
	sqlite3_int64 at;  /* where what waits belongs */
	bool waits, wrote; /* wrote: the call before was a write */
	unsigned char frame[HEADER + PAGE_MAX];
	_Alignas(sqlite3_int64) unsigned char real[]; /* a sqlite3_file of SQLite's own */
};

static struct log *log_of(sqlite3_file *f)
{
	return (struct log *)f;
}

static sqlite3_file *real_of(struct log *l)
{
	return (sqlite3_file *)l->real;
}

static int flush(struct log *l)
{
	sqlite3_file *real = real_of(l);

	l->wrote = false;
	if (!l->waits)
		return SQLITE_OK;
	l->waits = false;
	return real->pMethods->xWrite(real, l->frame, HEADER, l->at);
}

static int log_write(sqlite3_file *f, const void *data, int size, sqlite3_int64 at)
{
	struct log *l = log_of(f);
	sqlite3_file *real = real_of(l);
	int r;

	if (l->waits && at == l->at + HEADER && size <= PAGE_MAX) {
		memcpy(l->frame + HEADER, data, (size_t)size);
		l->waits = false;
		l->wrote = true;
		return real->pMethods->xWrite(real, l->frame, HEADER + size, l->at);
	}
	if (size == HEADER && l->wrote && !l->waits) {
		memcpy(l->frame, data, HEADER);
		l->at = at;
		l->waits = true;
		return SQLITE_OK;
	}
	r = flush(l);
	l->wrote = true;
	return r == SQLITE_OK ? real->pMethods->xWrite(real, data, size, at) : r;
}

static int log_read(sqlite3_file *f, void *data, int size, sqlite3_int64 at)
{
	struct log *l = log_of(f);
	int r = flush(l);

	return r == SQLITE_OK ? real_of(l)->pMethods->xRead(real_of(l), data, size, at) : r;
}

static int log_truncate(sqlite3_file *f, sqlite3_int64 size)
{
	struct log *l = log_of(f);
	int r = flush(l);

	return r == SQLITE_OK ? real_of(l)->pMethods->xTruncate(real_of(l), size) : r;
}

static int log_sync(sqlite3_file *f, int flags)
{
	struct log *l = log_of(f);
	int r = flush(l);

	return r == SQLITE_OK ? real_of(l)->pMethods->xSync(real_of(l), flags) : r;
}

static int log_size(sqlite3_file *f, sqlite3_int64 *ret)
{
	struct log *l = log_of(f);
	int r = flush(l);

	return r == SQLITE_OK ? real_of(l)->pMethods->xFileSize(real_of(l), ret) : r;
}

static int log_close(sqlite3_file *f)
{
	struct log *l = log_of(f);
	int flushed = flush(l), r = real_of(l)->pMethods->xClose(real_of(l));

	return flushed == SQLITE_OK ? r : flushed;
}

static int log_lock(sqlite3_file *f, int level)
{
	return real_of(log_of(f))->pMethods->xLock(real_of(log_of(f)), level);
}

static int log_unlock(sqlite3_file *f, int level)
{
	return real_of(log_of(f))->pMethods->xUnlock(real_of(log_of(f)), level);
}

static int log_locked(sqlite3_file *f, int *ret)
{
	return real_of(log_of(f))->pMethods->xCheckReservedLock(real_of(log_of(f)), ret);
}

static int log_control(sqlite3_file *f, int op, void *argument)
{
	return real_of(log_of(f))->pMethods->xFileControl(real_of(log_of(f)), op, argument);
}

static int log_sector(sqlite3_file *f)
{
	return real_of(log_of(f))->pMethods->xSectorSize(real_of(log_of(f)));
}

static int log_device(sqlite3_file *f)
{
	return real_of(log_of(f))->pMethods->xDeviceCharacteristics(real_of(log_of(f)));
}

static const sqlite3_io_methods methods = {
	.iVersion = 1, /* shared memory and maps are the database's */
	.xClose = log_close,
	.xRead = log_read,
	.xWrite = log_write,
	.xTruncate = log_truncate,
	.xSync = log_sync,
	.xFileSize = log_size,
	.xLock = log_lock,
	.xUnlock = log_unlock,
	.xCheckReservedLock = log_locked,
	.xFileControl = log_control,
	.xSectorSize = log_sector,
	.xDeviceCharacteristics = log_device,
};

static int open_file(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *ret_flags)
{
	sqlite3_vfs *own = v->pAppData;
	struct log *l = log_of(f);
	int r;

	if (!(flags & SQLITE_OPEN_WAL))
		return own->xOpen(own, name, f, flags, ret_flags);
	*l = (struct log){0};
	r = own->xOpen(own, name, real_of(l), flags, ret_flags);
	if (real_of(l)->pMethods)
		l->base.pMethods = &methods;
	return r;
}

const char *frames_vfs(void)
{
	static sqlite3_vfs vfs;
	sqlite3_vfs *own = sqlite3_vfs_find(NULL);

	if (vfs.zName || !own)
		return vfs.zName;
	vfs = *own;
	vfs.zName = "cloche";
	vfs.pAppData = own;
	vfs.szOsFile = (int)sizeof(struct log) + own->szOsFile;
	vfs.xOpen = open_file;
	if (sqlite3_vfs_register(&vfs, 0) != SQLITE_OK)
		vfs.zName = NULL;
	return vfs.zName;
}
