/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frames.c - one write for a commit, where SQLite makes two for each of its pages: it appends to its log frame by frame, 24
 * bytes of header, then the page. Half of what a commit costs us were these calls. Here frames wait for the one that commits:
 * its header has the size of the database, those of the others have 0 there. With its page all of them are written, in
 * their order.
 *
 * So nothing that is committed waits, and what waits is in no file: whatever else is asked of the log comes after it. SQLite
 * writes a header alone, into an earlier frame, only when it has just read that (walRewriteChecksums): what follows anything
 * but a write does not wait. What a transaction leaves that is rolled back goes with it (frames_forget): written later it would
 * lie over what another program has committed meanwhile. What could not be written is missing to all that comes after it:
 * nothing is written until the transaction is rolled back. (SQLite writes a page in one piece with synchronous=NORMAL; not so
 * with FULL.) Everything but the log is SQLite's own, untouched.
 */
#include "store/database.h"

#include <stdlib.h>
#include <string.h>

enum {
	HEADER = 24,      /* of a frame: sqlite.org/fileformat2.html, 4.1 */
	COMMITS = 4,      /* where it has four bytes that are 0 if it does not commit */
	ROOM = 32 * 1024, /* a run ends with 12 pages of 2 KiB */
};

struct log {
	sqlite3_file base;
	sqlite3_int64 at;     /* where what waits belongs */
	int size;             /* of it */
	bool wrote;           /* the call before was a write */
	bool commits;         /* the frame whose header came last */
	bool lost;            /* something that waited could not be written */
	unsigned char *waits; /* ROOM */
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

static int write_what_waits(struct log *l)
{
	sqlite3_file *real = real_of(l);
	int size = TAKE(l->size, 0), r;

	if (size == 0)
		return SQLITE_OK;
	r = real->pMethods->xWrite(real, l->waits, size, l->at);
	l->lost |= r != SQLITE_OK;
	return r;
}

static int flush(struct log *l)
{
	l->wrote = false;
	return write_what_waits(l);
}

/* What is not the next of what waits, or has no room there, has to come after it. */
static int make_room(struct log *l, int size, sqlite3_int64 at)
{
	int r = SQLITE_OK;

	if (l->size > 0 && (at != l->at + l->size || size > ROOM - l->size))
		r = write_what_waits(l);
	if (l->size == 0)
		l->at = at;
	return r;
}

static int log_write(sqlite3_file *f, const void *data, int size, sqlite3_int64 at)
{
	static const unsigned char no[4];
	struct log *l = log_of(f);
	sqlite3_file *real = real_of(l);
	bool may_wait = l->wrote && size <= ROOM;
	int r = make_room(l, size, at);

	l->wrote = true;
	if (size == HEADER)
		l->commits = memcmp((const unsigned char *)data + COMMITS, no, sizeof no) != 0;
	if (r != SQLITE_OK || l->lost)
		return r != SQLITE_OK ? r : SQLITE_IOERR_WRITE;
	if (!may_wait)
		return real->pMethods->xWrite(real, data, size, at);
	memcpy(l->waits + l->size, data, (size_t)size);
	l->size += size;
	return size != HEADER && TAKE(l->commits, false) ? write_what_waits(l) : SQLITE_OK;
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

	free(TAKE_PTR(l->waits)); /* with what was not committed */
	return real_of(l)->pMethods->xClose(real_of(l));
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
	*l = (struct log){.waits = malloc(ROOM)};
	if (!l->waits)
		return SQLITE_NOMEM;
	r = own->xOpen(own, name, real_of(l), flags, ret_flags);
	if (real_of(l)->pMethods)
		l->base.pMethods = &methods;
	else
		free(TAKE_PTR(l->waits));
	return r;
}

void frames_forget(void *db)
{
	sqlite3_file *f = NULL;
	struct log *l;

	if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &f) != SQLITE_OK || !f ||
	    f->pMethods != &methods)
		return;
	l = log_of(f);
	l->size = 0;
	l->wrote = l->lost = false;
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
