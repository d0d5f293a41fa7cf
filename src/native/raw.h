/* SPDX-License-Identifier: Apache-2.0 */
/* raw.h - a system call that leaves errno alone: for code that shares its memory with another process
 * while both run. Returns the kernel's value: -errno on failure. */
#ifndef NATIVE_RAW_H
#define NATIVE_RAW_H

static inline long raw_call(long number, long a, long b, long c, long d)
{
	long result;
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static inline long raw_call5(long number, long a, long b, long c, long d, long e)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

#endif
