/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conversation.h - what is said on one connection to the init of a kept sandbox.
 *
 * A kept sandbox's init listens; whoever connects opens a conversation with one frame of 64-91, gets
 * the answers its row names in protocol.def, and is hung up on. FAILED ends any conversation instead
 * of DONE. Frames are those of protocol.h; from inside every byte is hostile. Structs are packed,
 * little endian, without padding. Strings are NUL-terminated inside the payload; paths are absolute
 * paths inside the sandbox, names are single bytes other than NUL.
 *
 * SERVE on the control stream makes the init of a made sandbox (READY was sent, no command runs) a kept
 * one. DONE there says that it listens; from then on the stream means nothing to it, nor does the life of
 * whoever holds it.
 *
 * Commands: init numbers them from 1 and keeps of each how it ended and what it wrote, bounded by
 * keep_bytes per stream, until FORGET. KEEP_HEAD keeps the first bytes, KEEP_TAIL the last; both read
 * the pipe as fast as the command writes and count all of it. KEEP_LOSSLESS keeps the last bytes but
 * stops reading while the conversation that started the command has not taken them; when that
 * conversation ends it is KEEP_TAIL. When a command ends, what is in its pipes then still counts
 * (FIONREAD), its streams are at their end, and what survivors write later is thrown away.
 *
 * A peer that closes the connection has hung up; one that only ends its direction still gets the rest.
 * What is wrong in itself (a frame that is none of a host's, another one than expected) is hung up on, and
 * so is an opening frame that is not complete after ten seconds. 256 conversations are open at most;
 * further connections wait in the listener's backlog.
 */
#ifndef PROTOCOL_CONVERSATION_H
#define PROTOCOL_CONVERSATION_H

#include "protocol/protocol.h"

enum { TAG_SIZE = 40, WATCH_NAME_MAX = 4096 };

/* Followed by NUL-terminated strings: workdir, then argc arguments, then envc entries. Answer: BEGUN;
 * with START_ATTACH then DATA (stream 1, 2), EOF per stream, ENDED; else hung up on. A DONE says that another
 * opening is taken on this conversation: without START_STDIN it comes behind ENDED, with START_WAITS behind BEGUN. Only what is kept is
 * sent: with KEEP_HEAD the first bytes, with KEEP_TAIL an OFFSET before DATA says what was missed. FAILED
 * with EPERM for another user than the sandbox's, EMFILE beyond 1024 commands; the stage is "exec" when
 * there is no such program, "cwd" for the working directory, "fork" when it has too many processes. */
struct start_record {
	char tag[TAG_SIZE]; /* the host's name for it, NUL-padded */
	uint32_t uid, gid;
	uint32_t argc, envc;
	uint32_t flags;
	uint32_t
		limit_ms; /* the command and its session are killed then: ENDED says timed_out; 0: never */
	uint16_t rows, columns; /* START_PTY */
	uint32_t zero;
	uint64_t keep_bytes; /* per stream, 8 MiB at most */
	uint64_t zero2;
};
enum start_flag {
	START_PTY = 1 << 0, /* one terminal for all three streams; output is stream 1 */
	START_STDIN =
		1
		<< 1, /* stdin stays open for DATA here (CREDIT answers) and INPUT; else at its end */
	START_ATTACH = 1 << 2, /* this conversation gets the output and the end */
	KEEP_HEAD = 1 << 3,    /* exactly one of the three */
	KEEP_TAIL = 1 << 4,
	KEEP_LOSSLESS = 1 << 5, /* needs START_ATTACH */
	START_WAITS = 1 << 6, /* prepared: it waits on stdin, without a clock, until it is taken */
	START_JOINED =
		1 << 7, /* without START_PTY: nothing is executed, what has joined becomes it */
	/* in COMMAND alone: its stdin has no end yet, and nobody is connected to say more */
	INPUT_IS_CUT = 1 << 8,
};

/* TAKE: a command that was started to wait is handed over. Its clocks begin, as if it had been started now;
 * then as a START with START_ATTACH and START_STDIN. Answer: BEGUN, or FAILED when it cannot be taken: it is
 * over, has written something, or was taken before. What is sent on this conversation has then not reached it. */
struct take_record {
	uint32_t number;
	uint32_t flags; /* exactly one KEEP_* */
	uint32_t limit_ms;
	uint32_t zero;
	uint64_t keep_bytes;
};

/* Answer: OFFSET per stream, DATA from there (what is no longer kept is skipped, OFFSET says so), and at
 * the command's end EOF per stream, ENDED. Without follow: what is there now, then EOF, ENDED or, when it
 * runs, DONE. An offset that has not been written yet is taken for the end of what has. */
struct attach_record {
	uint32_t number;
	uint32_t follow;  /* 0 or 1 */
	uint64_t from[2]; /* stdout, stderr: absolute offsets */
};

struct kill_record {
	uint32_t number;
	uint32_t signal;
	uint32_t session; /* 1: every process of the command's session, 0: the command itself */
};

struct resize_record {
	uint32_t number;
	uint16_t rows, columns;
};

struct begun_record {
	uint32_t number;
	uint32_t pid; /* inside */
};

struct offset_record {
	uint64_t offset;
	uint32_t stream; /* 1, 2 */
	uint32_t zero;
};

struct ended_record {
	uint32_t signaled, status, core; /* as exited_record */
	uint32_t survivors;              /* 1: processes of its session are still alive */
	uint32_t timed_out; /* 1: limit_ms ran out; how it then died is not its own doing */
	uint16_t alone;     /* 1: nothing but init was left in the sandbox when it ended */
	uint16_t full;      /* enum full: what was so in one of the tmpfs, when it was looked at */
	uint64_t wall_us;
	uint64_t cpu_us;   /* of the command and the children it waited for */
	uint64_t bytes[2]; /* written to stdout, stderr */
	uint64_t first[2]; /* of each, the offset of the first byte that is kept */
	uint64_t kept[2];  /* and how many are */
};

enum full { FULL_DISK = 1, FULL_INODES = 2 };

struct command_record {
	char tag[TAG_SIZE];
	uint32_t number, pid;
	uint32_t flags;            /* START_* and KEEP_* as started; INPUT_IS_CUT */
	uint32_t running;          /* 0 or 1 */
	uint64_t started_ms;       /* milliseconds the sandbox had lived */
	uint64_t bytes[2];         /* written so far */
	struct ended_record ended; /* when not running; else zero */
};

/* One process of the sandbox, init and its workers excluded, and those that have made themselves
 * undumpable: /proc hides them. Followed by its command line, arguments parted by spaces,
 * control characters as '?', cut at 510 bytes. */
struct process_record {
	uint32_t pid, parent;
	uint32_t uid;
	uint32_t state;  /* the letter of proc(5) */
	uint32_t number; /* the command whose session it is in, 0: none */
	uint32_t threads;
	uint64_t cpu_ms;
	uint64_t rss_bytes;
};

/* A TCP socket of the sandbox user's that listens; those that others hold outside are not its. Followed by the command
 * line of a process that has it open, as in PROCESS; "" when none can be seen (pid 0). */
struct listening_record {
	uint8_t address[16]; /* in network order; IPv4: the first four, the rest zero */
	uint32_t family;     /* 4, 6 */
	uint32_t port;
	uint32_t pid;    /* 0: not known */
	uint32_t number; /* the command whose session that process is in, 0: none */
};

/* Space in one writable place; followed by its path. */
struct room_record {
	uint64_t size_bytes, used_bytes;
	uint64_t inodes, used_inodes;
};

struct read_record {
	uint64_t offset;
	uint64_t length; /* UINT64_MAX: to the end */
};

/* WRITE replaces the file at once when all of it has come (a new file that is renamed; a link of that name
 * is replaced, not followed), unless WRITE_APPEND. MKDIR: mode and WRITE_PARENTS only, which lets the
 * folder be there already. */
struct write_record {
	uint32_t mode; /* permission bits, 0: 0644 for a file and 0755 for a folder */
	uint32_t flags;
};
enum write_flag { WRITE_PARENTS = 1, WRITE_APPEND = 2, WRITE_EXCLUSIVE = 4 };

/* A file, folder or link. ENTRY of STAT: its name; of READDIR: name in the folder; of WALK and MEMBER:
 * path below the folder. A link's target follows the name, else an empty string. WALK sends files,
 * folders and links of one file system only, a folder before what is in it; hard links are separate files.
 * What cannot be read is SKIPPED and told: a file without its ENTRY, a folder behind it, for what is in it.
 * Exactly size_bytes of DATA follow a file, also when it changes meanwhile. MEMBER replaces what is there,
 * except a folder, whose mode stays; new folders stay their owner's to write. */
struct entry_record {
	uint32_t mode; /* S_IFMT and permission bits */
	uint32_t uid, gid;
	uint32_t zero;
	uint64_t size_bytes;
	int64_t mtime; /* seconds of the epoch */
};

/* WATCH answers DONE when it watches, then EVENTs. A name of "." means the folder itself, which when it is
 * gone is the last; a renamed one is RENAME with the old name, CREATE with the new. A file that WRITE has
 * made or replaced is one CREATE. */
enum watch_event {
	WATCH_CREATE = 1,
	WATCH_MODIFY,
	WATCH_REMOVE,
	WATCH_RENAME,
	WATCH_ATTRIBUTES,
	WATCH_OVERFLOW, /* some were lost */
};

/* Checked answers: 0 or -EPROTO. Text comes out NUL-terminated; names and targets are bytes. */
int begun_record_decode(const void *payload, uint32_t size, struct begun_record *ret);
int offset_record_decode(const void *payload, uint32_t size, struct offset_record *ret);
int ended_record_decode(const void *payload, uint32_t size, struct ended_record *ret);
int command_record_decode(const void *payload, uint32_t size, struct command_record *ret);
int process_record_decode(const void *payload, uint32_t size, struct process_record *ret,
			  const char **ret_line);
int listening_record_decode(const void *payload, uint32_t size, struct listening_record *ret,
			    const char **ret_line);
int room_record_decode(const void *payload, uint32_t size, struct room_record *ret,
		       const char **ret_path);
/* A link has a target, nothing else has. Names: no empty, no NUL inside; below: relative, no "." or ".." component (WALK), else one component
 * (READDIR) or anything (STAT) by kind. */
enum entry_kind { ENTRY_STAT, ENTRY_CHILD, ENTRY_BELOW };
int entry_record_decode(const void *payload, uint32_t size, enum entry_kind kind,
			struct entry_record *ret, const char **ret_name, const char **ret_target);
int skipped_decode(const void *payload, uint32_t size, int *ret_errno, const char **ret_path);
int watch_event_decode(const void *payload, uint32_t size, enum watch_event *ret,
		       const char **ret_name);

#endif
