/* SPDX-License-Identifier: Apache-2.0 */
/* hold - a vfork child that never goes on keeps its parent in uninterruptible sleep. */
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	puts("held");
	fflush(stdout);
	if (vfork() == 0) {
		for (;;)
			pause();
	}
	return 0;
}
