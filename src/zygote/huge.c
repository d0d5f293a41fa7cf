/* SPDX-License-Identifier: Apache-2.0 */
/*
 * huge.c - the interpreter's code in huge pages, for its children's sake.
 *
 * A child maps a thousand pages of the interpreter's file, and at its end the kernel lets go of them one by one while somebody
 * waits for the answer: 0.15 us each. Of a huge page it has one entry, which fork copies. No file system here has code in huge
 * pages, so each stretch of 2 MiB that lies in what is never written is copied into one, and the copy moved over it. What lies
 * between functions there, tables and texts, can be executed then as well. Where the kernel has no huge page to give, or is
 * older than 6.1, all stays as it was.
 */
#include <errno.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zygote/interp.h"
#include "zygote/zygote.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

enum {
	HUGE = 2 << 20, /* of x86-64, and of arm64 with pages of 4 KiB */
	MOST = 8,       /* so many in one zygote: CPython has 2 or 3 */
};

struct range {
	uintptr_t from, to;
};

static uintptr_t up(uintptr_t address, uintptr_t step)
{
	return (address + step - 1) / step * step;
}

/* What can never be written of the object that has the interpreter's code: its segments before the first that can, as far as
 * they leave no gap. */
static int find_code(struct dl_phdr_info *info, size_t size, void *ret)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t wanted = (uintptr_t)PyImport_ImportModule;
	struct range found = {0};
	bool is_it = false;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + p->p_vaddr, to = from + p->p_memsz;

		if (p->p_type != PT_LOAD)
			continue;
		from = from / page * page;
		if (p->p_flags & PF_W) {
			found.to = found.to < from ? found.to : from;
			break;
		}
		if (found.to && from != found.to)
			break;
		is_it |= wanted >= from && wanted < to;
		found.from = found.to ? found.from : from;
		found.to = up(to, page);
	}
	if (is_it)
		*(struct range *)ret = found;
	return is_it;
}

/* At an address of its own. NULL: there is no huge page. */
static void *copy_huge(const void *of)
{
	char *room =
		mmap(NULL, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *copy = (char *)up((uintptr_t)room, HUGE);

	if (room == MAP_FAILED)
		return NULL;
	if (copy > room)
		munmap(room, (size_t)(copy - room));
	munmap(copy + HUGE, (size_t)(room + HUGE - copy));
	madvise(copy, HUGE, MADV_HUGEPAGE);
	memcpy(copy, of, HUGE);
	if (madvise(copy, HUGE, MADV_COLLAPSE) == 0 &&
	    mprotect(copy, HUGE, PROT_READ | PROT_EXEC) == 0)
		return copy;
	munmap(copy, HUGE);
	return NULL;
}

int huge_code(struct err *e)
{
	struct range code = {0};
	uintptr_t at;

	dl_iterate_phdr(find_code, &code);
	at = up(code.from, HUGE);
	for (int i = 0; i < MOST && at + HUGE <= code.to; i++, at += HUGE) {
		void *copy = copy_huge((void *)at);

		if (!copy)
			return 0;
		/* What was there may be gone when it fails. */
		if (mremap(copy, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)at) ==
		    MAP_FAILED)
			return err_set(e, errno, "move the interpreter's code");
	}
	return 0;
}
