#!/bin/sh
# Writes an assembler file that puts the bytes of FILE into read-only data between SYMBOL and SYMBOL_end, and their SHA-256
# in hexadecimal, with a zero behind it, at SYMBOL_sha256.
# usage: embed.sh FILE OUT SYMBOL
set -eu
file=$(realpath "$1")
hash=$(sha256sum <"$file")
cat >"$2" <<EOF
	.section .rodata
	.global $3
	.global ${3}_end
	.global ${3}_sha256
	.balign 16
$3:
	.incbin "$file"
${3}_end:
	.byte 0
${3}_sha256:
	.asciz "${hash%% *}"
	.section .note.GNU-stack,"",%progbits
EOF
