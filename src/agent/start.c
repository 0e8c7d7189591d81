/*
 * The program's first instructions, and the few symbols that a newer glibc would give a newer version: the agent runs on
 * every glibc since 2.17, whatever it was built on. Linked with -nostartfiles, without the system's crt1.o, which asks
 * for __libc_start_main@GLIBC_2.34. Not part of sanitised builds.
 *
 * fcntl becomes fcntl64@GLIBC_2.28 where off_t is 64 bits wide by _FILE_OFFSET_BITS; on the machines we run on both are
 * the same call, so the old name serves. (dlopen and its like are pinned where they're used.)
 */
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define BASE_VERSION "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define BASE_VERSION "GLIBC_2.17"
#else
#error "The agent's start is written for x86-64 and aarch64 only."
#endif

__asm__(".symver pinned_start_main, __libc_start_main@" BASE_VERSION);
__asm__(".symver pinned_fcntl, fcntl@" BASE_VERSION);

typedef void hook(void);
typedef void init_hook(int argc, char **argv, char **env);

extern int pinned_start_main(int (*main_fn)(int, char **), int argc, char **argv, init_hook *init,
	hook *fini, hook *rtld_fini, void *stack_end);
extern int pinned_fcntl(int fd, int cmd, long arg);
int main(int argc, char **argv);

extern init_hook *__preinit_array_start[] __attribute__((visibility("hidden")));
extern init_hook *__preinit_array_end[] __attribute__((visibility("hidden")));
extern init_hook *__init_array_start[] __attribute__((visibility("hidden")));
extern init_hook *__init_array_end[] __attribute__((visibility("hidden")));
extern hook *__fini_array_start[] __attribute__((visibility("hidden")));
extern hook *__fini_array_end[] __attribute__((visibility("hidden")));

/* What atexit and its like name the program by. */
__attribute__((visibility("hidden"))) void *__dso_handle = &__dso_handle;

static void run_init(int argc, char **argv, char **env)
{
	size_t n = (size_t)(__preinit_array_end - __preinit_array_start);

	for (size_t i = 0; i < n; i++)
		__preinit_array_start[i](argc, argv, env);
	n = (size_t)(__init_array_end - __init_array_start);
	for (size_t i = 0; i < n; i++)
		__init_array_start[i](argc, argv, env);
}

static void run_fini(void)
{
	for (size_t i = (size_t)(__fini_array_end - __fini_array_start); i-- > 0;)
		__fini_array_start[i]();
}

/* The kernel's stack: argc, the arguments, NULL, the environment. */
__attribute__((used, visibility("hidden"))) void start_here(long *stack, hook *rtld_fini);

__attribute__((used, visibility("hidden"))) void start_here(long *stack, hook *rtld_fini)
{
	pinned_start_main(
		main, (int)stack[0], (char **)(stack + 1), run_init, run_fini, rtld_fini, stack);
	__builtin_trap();
}

#if defined(__x86_64__)
__asm__(".text\n"
	".globl _start\n"
	".type _start, @function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined rip\n"
	"	endbr64\n"
	"	xorl %ebp, %ebp\n"
	"	movq %rsp, %rdi\n"
	"	movq %rdx, %rsi\n"
	"	andq $-16, %rsp\n"
	"	call start_here\n"
	"	hlt\n"
	"	.cfi_endproc\n");
#else
__asm__(".text\n"
	".globl _start\n"
	".type _start, %function\n"
	"_start:\n"
	"	.cfi_startproc\n"
	"	.cfi_undefined x30\n"
	"	mov x29, #0\n"
	"	mov x30, #0\n"
	"	mov x1, x0\n"
	"	mov x0, sp\n"
	"	bl start_here\n"
	"	brk #0\n"
	"	.cfi_endproc\n");
#endif

int fcntl64(int fd, int cmd, ...);

__attribute__((visibility("hidden"))) int fcntl64(int fd, int cmd, ...)
{
	__builtin_va_list ap;
	long arg;

	/* Every argument fcntl takes is an int or a pointer, and arrives in one register either way. */
	__builtin_va_start(ap, cmd);
	arg = __builtin_va_arg(ap, long);
	__builtin_va_end(ap);
	return pinned_fcntl(fd, cmd, arg);
}
