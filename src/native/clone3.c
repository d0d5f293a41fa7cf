/* SPDX-License-Identifier: Apache-2.0 */
#include "native/clone3.h"

#include <sys/syscall.h>

#ifndef __x86_64__
#error "clone3_call is written for x86-64; add this machine's calling convention here"
#endif

/* fn and argument wait in registers that the system call preserves; the child starts on its new stack
 * with nothing below it and never returns into the parent's frames. */
pid_t clone3_call(struct clone3_args *args, int (*fn)(void *), void *argument)
{
	long result;
	register int (*r12)(void *) __asm__("r12") = fn;
	register void *r13 __asm__("r13") = argument;

	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "mov %%r13, %%rdi\n\t"
			 "call *%%r12\n\t"
			 "mov %%eax, %%edi\n\t"
			 "mov %[exit], %%eax\n\t"
			 "syscall\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "0"((long)SYS_clone3), "D"(args), "S"(sizeof *args), "r"(r12),
			   "r"(r13), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	return (pid_t)result;
}
