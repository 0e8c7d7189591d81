/*
 * System calls without libc: for a process that shares its parent's memory (clone with CLONE_VM), where errno, the heap and
 * everything else of libc are the parent's, who goes on at the same time. What is called between such a clone and exec is RAW
 * and calls nothing but RAW functions: not instrumented either, for the stack is none that a sanitizer knows.
 */
#pragma once

#define RAW __attribute__((no_sanitize("address", "undefined")))

/* What the kernel returned: negative is -errno. */
RAW static inline long raw_call(long number, long a, long b, long c, long d)
{
#if defined(__x86_64__)
	long ret;
	register long fourth __asm__("r10") = d;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long number_in __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;

	__asm__ volatile("svc 0"
			 : "+r"(first)
			 : "r"(number_in), "r"(second), "r"(third), "r"(fourth)
			 : "memory");
	return first;
#else
#error "System calls are written for x86-64 and aarch64 only."
#endif
}
