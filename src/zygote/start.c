/* SPDX-License-Identifier: Apache-2.0 */
/*
 * start.c - the first process: from the end of the bootstrap to the fork that makes the zygote.
 *
 * It runs inside the deletion of __main__.__file__ (launch.h), in the interpreter's main thread, with no
 * Python frame below. It reads START, imports the modules, brings the interpreter into the state that all
 * children start from, and forks once: the fork has one thread, whatever the imported modules started,
 * and another pid than the one that OpenSSL and others remember. The first process then only waits, so
 * that whoever started it sees it live and end with the zygote.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

static char message[ZYGOTE_MESSAGE_MAX];

static _Noreturn void fail(uint32_t sequence, const struct err *e)
{
	int r = message_refuse(ZYGOTE_FD_REQUESTS, ZYGOTE_FAILED, sequence, e);

	_exit(r < 0 ? 2 : 1);
}

static int import_all(const char **names, int count, struct err *e)
{
	for (int i = 0; i < count; i++) {
		PyObject *module = PyImport_ImportModule(names[i]);
		char what[128];

		snprintf(what, sizeof what, "import %s", names[i]);
		if (!module)
			return interp_error(e, what);
		Py_DECREF(module);
	}
	return 0;
}

/* All of the operator's that runs. sys.path is without "" meanwhile, which python3 - puts first: no module
 * may come from the working directory, and the finder's memory of it must not outlive it. */
static int load(const char **names, int count, const char *warm, struct err *e)
{
	_cleanup_object_ PyObject *path = interp_ref(PySys_GetObject("path")), *first = NULL;

	if (!path || !PyList_Check(path) || PyList_Size(path) < 1)
		return err_set(e, 0, "sys.path is not a list of folders");
	first = PySequence_GetItem(path, 0);
	if (!first || PySequence_DelItem(path, 0) < 0)
		return interp_error(e, "sys.path");
	if (import_all(names, count, e) < 0 || run_prepare(e) < 0 || run_rehearse(warm, e) < 0)
		return -1;
	if (PySys_GetObject("path") != path)
		return err_set(e, 0, "an imported module has replaced sys.path");
	return PyList_Insert(path, 0, first) < 0 ? interp_error(e, "sys.path") : 0;
}

/* What the modules wrote must not be in the children's buffers. */
static int flush_all(struct err *e)
{
	static const char *const streams[] = {"stdout", "stderr"};

	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		PyObject *stream = PySys_GetObject(streams[i]);
		PyObject *done;

		if (!stream || stream == Py_None)
			return err_set(e, 0, "sys.%s is not there", streams[i]);
		done = PyObject_CallMethod(stream, "flush", NULL);
		if (!done)
			return interp_error(e, streams[i]);
		Py_DECREF(done);
	}
	fflush(NULL);
	return 0;
}

/* A child closes everything but its streams: a module that keeps a descriptor could not work there. */
static int check_descriptors(struct err *e)
{
	DIR *dir = opendir("/proc/self/fd");

	if (!dir)
		return err_set(e, errno, "/proc/self/fd");
	for (struct dirent *d; (d = readdir(dir));) {
		char path[64], target[128];
		long fd = strtol(d->d_name, NULL, 10);
		ssize_t n;

		if (d->d_name[0] == '.' || fd <= ZYGOTE_FD_MODULE || fd == dirfd(dir))
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%ld", fd);
		n = readlink(path, target, sizeof target - 1);
		target[n < 0 ? 0 : n] = '\0';
		closedir(dir);
		return err_set(
			e, 0,
			"an imported module keeps descriptor %ld open (%s), which children close",
			fd, target);
	}
	closedir(dir);
	return 0;
}

/* As if nothing had ever been taken out of it: a dictionary's size tells. */
static int rebuild(PyObject *dict)
{
	_cleanup_object_ PyObject *items = PyDict_Items(dict);
	Py_ssize_t n = items ? PyList_Size(items) : -1;

	PyDict_Clear(dict);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *pair = PyList_GetItem(items, i);

		if (PyDict_SetItem(dict, PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1)) < 0)
			return -1;
	}
	return n < 0 ? -1 : 0;
}

/* Memory that is shared and can be written would be one for all siblings. */
static int check_mappings(struct err *e)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	char line[512], mapping[512] = "";
	bool shared = false;

	if (!file)
		return err_set(e, errno, "/proc/self/smaps");
	while (!shared && fgets(line, sizeof line, file)) {
		if (strncmp(line, "VmFlags:", 8) == 0)
			shared = strstr(line, " sh") && strstr(line, " mw");
		else if (strchr(line, '-') && strchr(line, '-') < line + 20)
			memcpy(mapping, line, sizeof mapping);
	}
	fclose(file);
	mapping[strcspn(mapping, "\n")] = '\0';
	return shared ? err_set(e, 0,
				"an imported module shares memory that all children could write: %s",
				mapping)
		      : 0;
}

static int prepare(struct zygote *z, const char **names, int count, const char *warm, struct err *e)
{
	PyObject *main_module = PyImport_AddModule("__main__");
	PyObject *dict = main_module ? PyModule_GetDict(main_module) : NULL;

	if (!dict)
		return interp_error(e, "__main__");
	if (PyDict_DelItemString(dict, "__cached__") < 0)
		PyErr_Clear(); /* 3.15 has none; run.c sets it again where it is set */
	if (rebuild(dict) < 0)
		return interp_error(e, "__main__");
	for (int i = 0; i < 3; i++)
		if (fstat(i, &z->streams[i]) < 0)
			return err_set(e, errno, "standard stream %d", i);
	if (load(names, count, warm, e) < 0 || fresh_prepare(e) < 0 || leave_prepare(e) < 0 ||
	    flush_all(e) < 0 || check_descriptors(e) < 0 || check_mappings(e) < 0)
		return -1;
	close(ZYGOTE_FD_MODULE);
	/* All that exists now is shared by the children, and out of the collector's sight. The free list
	 * of malloc() is put in order here, not in each of them: with pandas that copied 3 MiB. */
	if (leave_freeze(e) < 0)
		return -1;
	malloc_trim(0);
	return 0;
}

/* The zygote's life from its first line. */
static _Noreturn void second(struct zygote *z, uint32_t sequence, pid_t first)
{
	struct err e = {0};

	PyOS_AfterFork_Child();
	z->first = (int)syscall(SYS_pidfd_open, first, 0);
	if (getppid() != first)
		_exit(0);
	z->tasks = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (z->first < 0 || z->tasks < 0) {
		err_set(&e, errno, z->first < 0 ? "the first process" : "/proc/self/task");
		fail(sequence, &e);
	}
	if (huge_code(&e) < 0)
		fail(sequence, &e);
	pools_fill();
	zygote_serve(z, sequence);
}

/* End as the zygote ended. */
static _Noreturn void wait_for(pid_t zygote)
{
	int status;

	syscall(SYS_close_range, 3, ~0u, 0);
	while (waitpid(zygote, &status, 0) < 0)
		if (errno != EINTR)
			_exit(2);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

_Noreturn void zygote_begin(void)
{
	static struct zygote z;
	static const char *names[ZYGOTE_MODULES_MAX];
	const struct zygote_header *h = (const struct zygote_header *)message;
	int fds[ZYGOTE_FDS + ZYGOTE_JOIN_FDS_MAX], count;
	const char *warm;
	struct err e = {0};
	sigset_t all;
	size_t fd_count;
	ssize_t n;
	pid_t first = getpid(), pid;

	do
		n = message_receive(ZYGOTE_FD_REQUESTS, message, sizeof message, fds, &fd_count);
	while (n == -EINTR);
	if (n <= 0)
		_exit(n < 0 ? 2 : 0);
	count = message_start_split(message, (size_t)n, names, &warm, &e);
	if (count < 0 || fd_count != 0 || prepare(&z, names, count, warm, &e) < 0)
		fail(h->sequence, &e);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &z.mask);
	PyOS_BeforeFork();
	pid = fork();
	if (pid == 0)
		second(&z, h->sequence, first);
	if (pid < 0) {
		err_set(&e, errno, "fork");
		fail(h->sequence, &e);
	}
	sigprocmask(SIG_SETMASK, &z.mask, NULL);
	wait_for(pid);
}
