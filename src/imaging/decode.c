/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decode.c - cloche-decode: an archive comes in on stdin, frames (entry.h) go out on stdout.
 *
 *	cloche-decode MAX_BYTES [check]		at most so many bytes of archive, decompressed; look at gzip's checksum,
 *						which libarchive passes over
 *
 * The only program here that lets libarchive read what others made, so it is held as something that may be taken
 * over: no rights, no user that owns anything, no memory to speak of, and after set-up no system calls but reading
 * stdin, writing stdout and memory. It opens nothing; it cannot lie to its reader about anything but the content of
 * the very archive it reads, and layers are kept by the digest of what came in, which it does not compute.
 *
 * Two readers of libarchive, one behind the other: the first takes off the compression, what it gives is hashed (the
 * diff id of the layer), and the second reads that as tar. Formats besides tar and filters that start programs are
 * not even registered.
 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <grp.h>
#include <inttypes.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <locale.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include "base/units.h"
#include "image/entry.h"

/* Besides what libarchive itself has, room for a window of 8 MiB, which the zstd specification recommends as the
 * limit for decoders, and for xz -6. Measured 14 MiB for gzip. */
#define MEMORY_MAX (56ull << 20)
#define CPU_MAX_S  3600
#define NOBODY     65534

/* AddressSanitizer needs more memory and other system calls. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

struct decoder {
	struct archive *raw, *tar;
	EVP_MD_CTX *hash;
	uint64_t bytes_in, bytes, bytes_max, entries;
	bool at_end; /* of the decompressed bytes */
	bool check;
	uLong crc;
	unsigned char last[8]; /* of the input: crc and length, if it is gzip */
	char input[128 << 10];
	char xattrs[ENTRY_XATTRS_MAX];
};

/* Say why, and end. */
__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...)
{
	char text[ENTRY_ERROR_MAX + 1];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	if (entry_write_error(1, text) < 0)
		_exit(3);
	_exit(1);
}

__attribute__((noreturn)) static void give_up_archive(const struct decoder *d, struct archive *a)
{
	const char *text = archive_error_string(a);

	if (archive_errno(a) == ENOMEM)
		give_up("it needs more than %llu MiB of memory to be decompressed (a window or dictionary that "
			"large: compress it with less)",
			MEMORY_MAX >> 20);
	/* Where it begins, libarchive only says that it knows no such format. */
	if (d->bytes_in == 0)
		give_up("it is empty");
	if (d->entries == 0 && text && strcmp(text, "Unrecognized archive format") == 0)
		give_up("it is no tar archive (compressed by gzip, zstd, xz or bzip2, or not at all)");
	give_up("%s", text ? text : "the archive cannot be read");
}

/* ---- what this process may do */

#define ALLOW(name)                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static void confine_calls(void)
{
	struct sock_filter rows[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read),
		ALLOW(write),
		ALLOW(writev),
		ALLOW(brk),
		ALLOW(mmap),
		ALLOW(munmap),
		ALLOW(mremap),
		ALLOW(madvise),
		ALLOW(futex),
		ALLOW(rt_sigreturn),
		ALLOW(exit),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog program = {ARRAY_SIZE(rows), rows};

	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		give_up("cannot confine the reader of archives: %m");
}

static void limit(int what, rlim_t value)
{
	const struct rlimit l = {value, value};

	if (setrlimit(what, &l) < 0)
		give_up("cannot limit the reader of archives: %m");
}

static void lose_rights(void)
{
	if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
			       setresuid(NOBODY, NOBODY, NOBODY) < 0))
		give_up("cannot give up root in the reader of archives: %m");
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, 0);
	limit(RLIMIT_NPROC, 0);
	limit(RLIMIT_CPU, CPU_MAX_S);
	if (!SANITIZED)
		limit(RLIMIT_DATA, MEMORY_MAX);
	if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    syscall(SYS_close_range, 3, ~0u, 0) < 0)
		give_up("cannot confine the reader of archives: %m");
	if (!SANITIZED)
		confine_calls();
}

/* ---- decompression */

static void keep_last(struct decoder *d, size_t n)
{
	const size_t room = sizeof d->last;

	if (n >= room) {
		memcpy(d->last, d->input + n - room, room);
	} else {
		memmove(d->last, d->last + n, room - n);
		memcpy(d->last + room - n, d->input, n);
	}
}

static la_ssize_t read_input(struct archive *a, void *context, const void **ret)
{
	struct decoder *d = context;
	ssize_t n;

	do
		n = read(0, d->input, sizeof d->input);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		archive_set_error(a, errno, "read the archive");
	keep_last(d, n > 0 ? (size_t)n : 0);
	d->bytes_in += n > 0 ? (uint64_t)n : 0;
	*ret = d->input;
	return n;
}

/* The next piece of the decompressed archive. 0 at the end. */
static size_t next_piece(struct decoder *d, const void **ret)
{
	la_int64_t offset;
	size_t size = 0;
	int r = ARCHIVE_EOF;

	while (!d->at_end && size == 0) {
		r = archive_read_data_block(d->raw, ret, &size, &offset);
		if (r == ARCHIVE_EOF)
			d->at_end = true;
		else if (r < ARCHIVE_WARN)
			give_up_archive(d, d->raw);
	}
	if (d->at_end)
		return 0;
	d->bytes += size;
	if (d->bytes > d->bytes_max)
		give_up("more than %" PRIu64
			" bytes come out of it: a decompression bomb, or larger than allowed",
			d->bytes_max);
	if (EVP_DigestUpdate(d->hash, *ret, size) != 1)
		give_up("hash the archive");
	if (d->check)
		d->crc = crc32_z(d->crc, *ret, size);
	return size;
}

static la_ssize_t read_piece(struct archive *a, void *context, const void **ret)
{
	(void)a;
	return (la_ssize_t)next_piece(context, ret);
}

static void open_raw(struct decoder *d)
{
	struct archive_entry *entry;
	int r;

	d->raw = archive_read_new();
	if (!d->raw || archive_read_support_format_raw(d->raw) < ARCHIVE_WARN ||
	    archive_read_support_filter_gzip(d->raw) < ARCHIVE_WARN ||
	    archive_read_support_filter_zstd(d->raw) < ARCHIVE_WARN ||
	    archive_read_support_filter_xz(d->raw) < ARCHIVE_WARN ||
	    archive_read_support_filter_bzip2(d->raw) < ARCHIVE_WARN)
		give_up("set up libarchive");
	if (archive_read_open(d->raw, d, NULL, read_input, NULL) < ARCHIVE_WARN)
		give_up_archive(d, d->raw);
	r = archive_read_next_header(d->raw, &entry);
	if (r == ARCHIVE_EOF)
		give_up("it is empty");
	if (r < ARCHIVE_WARN)
		give_up_archive(d, d->raw);
	/* The last one is "none". */
	if (archive_filter_count(d->raw) > 2)
		give_up("it is compressed more than once");
}

/* ---- entries */

static void copy_xattrs(struct decoder *d, struct archive_entry *entry, struct entry_wire *w)
{
	const char *name;
	const void *value;
	size_t size;

	archive_entry_xattr_reset(entry);
	while (archive_entry_xattr_next(entry, &name, &value, &size) == ARCHIVE_OK) {
		size_t n = strlen(name);
		uint32_t length = (uint32_t)size;

		if (n == 0 || n > 255 || size > ENTRY_XATTRS_MAX ||
		    w->xattrs_size + n + 1 + sizeof length + size > sizeof d->xattrs)
			give_up("%s has extended attributes of more than %d bytes",
				archive_entry_pathname(entry), ENTRY_XATTRS_MAX);
		memcpy(d->xattrs + w->xattrs_size, name, n + 1);
		memcpy(d->xattrs + w->xattrs_size + n + 1, &length, sizeof length);
		memcpy(d->xattrs + w->xattrs_size + n + 1 + sizeof length, value, size);
		w->xattrs_size += (uint32_t)(n + 1 + sizeof length + size);
	}
}

static enum entry_kind kind_of(struct archive_entry *entry)
{
	if (archive_entry_hardlink(entry))
		return ENTRY_HARDLINK;
	switch (archive_entry_filetype(entry)) {
	case AE_IFREG:
		return ENTRY_FILE;
	case AE_IFDIR:
		return ENTRY_FOLDER;
	case AE_IFLNK:
		return ENTRY_SYMLINK;
	case AE_IFIFO:
		return ENTRY_FIFO;
	case AE_IFCHR:
	case AE_IFBLK:
		return ENTRY_DEVICE;
	default:
		return ENTRY_OTHER;
	}
}

static uint32_t name_size(const char *what, const char *name)
{
	size_t n = strlen(name);

	if (n > ENTRY_PATH_MAX)
		give_up("%s of %zu bytes: %.60s...", what, n, name);
	return (uint32_t)n;
}

static void send(int r)
{
	if (r < 0)
		_exit(2); /* nobody listens any more */
}

static void send_head(struct decoder *d, struct archive_entry *entry)
{
	const char *path = archive_entry_pathname(entry);
	const char *target = "";
	la_int64_t size = archive_entry_size(entry), uid = archive_entry_uid(entry),
		   gid = archive_entry_gid(entry);
	struct entry_wire w = {.kind = kind_of(entry), .mode = archive_entry_mode(entry) & 07777};

	if (!path)
		give_up("a name that cannot be read");
	if (w.kind == ENTRY_HARDLINK)
		target = archive_entry_hardlink(entry);
	else if (w.kind == ENTRY_SYMLINK)
		target = archive_entry_symlink(entry);
	if (!target)
		give_up("%s: a link whose target cannot be read", path);
	if (uid < 0 || gid < 0 || size < 0)
		give_up("%s: a negative size or owner", path);
	w.uid = (uint64_t)uid;
	w.gid = (uint64_t)gid;
	w.mtime = archive_entry_mtime(entry);
	w.mtime_ns = (uint32_t)archive_entry_mtime_nsec(entry);
	if (w.mtime_ns > 999999999)
		w.mtime_ns = 0;
	w.size = w.kind == ENTRY_FILE ? (uint64_t)size : 0;
	w.path_size = name_size("a name", path);
	w.target_size = name_size("a link", target);
	copy_xattrs(d, entry, &w);
	send(entry_write_head(1, &w, path, target, d->xattrs));
}

static void send_data(struct decoder *d)
{
	const void *data;
	la_int64_t offset;
	size_t size;
	int r;

	while ((r = archive_read_data_block(d->tar, &data, &size, &offset)) != ARCHIVE_EOF) {
		if (r < ARCHIVE_WARN)
			give_up_archive(d, d->tar);
		if (size > 0)
			send(entry_write_data(1, (uint64_t)offset, data, size));
	}
}

static void send_archive(struct decoder *d)
{
	struct archive_entry *entry;
	int r;

	d->tar = archive_read_new();
	if (!d->tar || archive_read_support_format_tar(d->tar) < ARCHIVE_WARN)
		give_up("set up libarchive");
	if (archive_read_open(d->tar, d, NULL, read_piece, NULL) < ARCHIVE_WARN)
		give_up_archive(d, d->tar);
	while ((r = archive_read_next_header(d->tar, &entry)) != ARCHIVE_EOF) {
		if (r < ARCHIVE_WARN)
			give_up_archive(d, d->tar);
		d->entries++;
		send_head(d, entry);
		if (kind_of(entry) == ENTRY_FILE)
			send_data(d);
	}
}

/* gzip ends with checksum and length. Several members behind each other have another length: of those only the last
 * checksum is there, and it is not looked at. */
static void check_sum(const struct decoder *d)
{
	uint32_t crc, length;

	memcpy(&crc, d->last, sizeof crc);
	memcpy(&length, d->last + sizeof crc, sizeof length);
	if (d->check && archive_filter_code(d->raw, 0) == ARCHIVE_FILTER_GZIP &&
	    le32toh(length) == (uint32_t)d->bytes && le32toh(crc) != d->crc)
		give_up("its checksum is wrong: it is damaged");
}

int main(int argc, char **argv)
{
	static struct decoder d;
	struct end_wire end = {0};
	const void *rest;

	/* Names in pax headers are UTF-8: in this locale they come out as they went in. */
	if (argc < 2 || parse_count(argv[1], 1, INT64_MAX, &d.bytes_max) < 0)
		return 64;
	d.check = argc > 2;
	setlocale(LC_CTYPE, "C.UTF-8");
	d.hash = EVP_MD_CTX_new();
	if (!d.hash || EVP_DigestInit_ex2(d.hash, EVP_sha256(), NULL) != 1)
		give_up("SHA-256: OpenSSL cannot provide it");
	lose_rights();
	open_raw(&d);
	send_archive(&d);
	while (next_piece(&d, &rest) > 0)
		; /* what stands behind the end belongs to the digest */
	check_sum(&d);
	end.bytes = d.bytes;
	if (EVP_DigestFinal_ex(d.hash, end.sha256, NULL) != 1)
		give_up("hash the archive");
	send(entry_write_end(1, &end));
	_exit(0);
}
