/*
 * dlopen and its like, bound to their oldest versions: the agent's ELF runs on glibc 2.17. To be included by each file
 * that opens a library, for the binding holds for one translation unit.
 */
#pragma once

#include <dlfcn.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
	__has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
	__has_feature(memory_sanitizer)
#define HAS_INTERCEPTORS 1
#else
#define HAS_INTERCEPTORS 0
#endif

/* These moved to libc in glibc 2.34; the old versions work on every glibc that the agent meets. */
#if defined(__x86_64__) && !HAS_INTERCEPTORS
__asm__(".symver dlopen,dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym,dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror,dlerror@GLIBC_2.2.5");
__asm__(".symver dlclose,dlclose@GLIBC_2.2.5");
#elif defined(__aarch64__) && !HAS_INTERCEPTORS
__asm__(".symver dlopen,dlopen@GLIBC_2.17");
__asm__(".symver dlsym,dlsym@GLIBC_2.17");
__asm__(".symver dlerror,dlerror@GLIBC_2.17");
__asm__(".symver dlclose,dlclose@GLIBC_2.17");
#endif
