/* SPDX-License-Identifier: Apache-2.0 */
/*
 * raw - one system call in a form that libc cannot make, and what it answered.
 *
 *	raw i386 NR [A B C]	int 0x80: the table of another architecture
 *	raw x32 NR [A B C]	the x32 half of the table
 *	raw x86 NR [A B C]	NR as a 64-bit number, so that high bits reach the entry code
 *
 * Prints "ok" or the errno's name. Arguments are numbers, or "buf": a zeroed buffer below 4 GiB,
 * or "vsock" and "alg": the arguments of socketcall(2) for such a socket.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define X32_BIT 0x40000000L

static long low_buffer(const char *kind)
{
	uint32_t *b = mmap((void *)0x20000000, 65536, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	if (b == MAP_FAILED)
		b = (uint32_t *)0x20000000; /* the second argument of its kind */
	if (strcmp(kind, "vsock") == 0)
		b[0] = 40, b[1] = 1;
	else if (strcmp(kind, "alg") == 0)
		b[0] = 38, b[1] = 5;
	return (long)b;
}

static long number(const char *text)
{
	if (strcmp(text, "buf") == 0 || strcmp(text, "vsock") == 0 || strcmp(text, "alg") == 0)
		return low_buffer(text);
	return (long)strtoull(text, NULL, 0);
}

static long call32(long nr, long a, long b, long c)
{
	long r;

	__asm__ volatile("push %%rbx\n\tmov %2, %%rbx\n\tint $0x80\n\tpop %%rbx"
			 : "=a"(r)
			 : "a"(nr), "r"(a), "c"(b), "d"(c)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)r;
}

static long call64(long nr, long a, long b, long c)
{
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return r;
}

int main(int argc, char **argv)
{
	long v[4] = {0}, r;

	if (argc < 3 || argc > 6)
		return 2;
	for (int i = 2; i < argc; i++)
		v[i - 2] = number(argv[i]);
	if (strcmp(argv[1], "i386") == 0)
		r = call32(v[0], v[1], v[2], v[3]);
	else
		r = call64(strcmp(argv[1], "x32") == 0 ? v[0] | X32_BIT : v[0], v[1], v[2], v[3]);
	if (r < 0 && r > -4096)
		puts(strerrorname_np((int)-r) ? strerrorname_np((int)-r) : "unknown errno");
	else
		puts("ok");
	return 0;
}
