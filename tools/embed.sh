#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh FILE OUTPUT: assembler source that carries FILE as read-only data between the symbols
# cloche_init_begin and cloche_init_end. Its digest is in the text, so that a changed FILE is a changed
# source and is assembled again.
set -eu
cat > "$2" <<EOF
/* sha256 $(sha256sum < "$1") */
	.section .rodata
	.balign 16
	.globl cloche_init_begin
	.hidden cloche_init_begin
cloche_init_begin:
	.incbin "$(realpath "$1")"
	.globl cloche_init_end
	.hidden cloche_init_end
cloche_init_end:
	.byte 0
	.section .note.GNU-stack,"",@progbits
EOF
