#!/bin/sh
# Writes an assembler file that puts the bytes of FILE into read-only data between SYMBOL and SYMBOL_end.
# usage: embed.sh FILE OUT SYMBOL
set -eu
file=$(realpath "$1")
cat >"$2" <<EOF
	.section .rodata
	.global $3
	.global ${3}_end
	.balign 16
$3:
	.incbin "$file"
${3}_end:
	.byte 0
	.section .note.GNU-stack,"",%progbits
EOF
