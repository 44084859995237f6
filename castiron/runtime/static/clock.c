/* The clock for static executables, in place of the C library's: the kernel's function that needs no system call. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "start.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined __aarch64__
#define NAME "__kernel_clock_gettime"
#else
#define NAME "__vdso_clock_gettime"
#endif

const char *ci_kernel_functions;

typedef int clock_function(clockid_t clock, struct timespec *time);

static int by_system_call(clockid_t clock, struct timespec *time) { return (int)syscall(SYS_clock_gettime, clock, time); }

static const void *dynamic_entry(const Elf64_Dyn *entry, const char *base, Elf64_Sxword tag)
{
    for (; entry->d_tag; ++entry)
        if (entry->d_tag == tag) return base + entry->d_un.d_ptr;
    return NULL;
}

/* The library's addresses are relative to where it is, as it has one segment that begins with the file. */
static clock_function *find(const char *base)
{
    const Elf64_Ehdr *file = (const Elf64_Ehdr *)base;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(base + file->e_phoff);
    while (segment->p_type != PT_DYNAMIC) ++segment;
    const Elf64_Dyn *entries = (const Elf64_Dyn *)(base + segment->p_offset);
    const char *names = dynamic_entry(entries, base, DT_STRTAB);
    const Elf64_Sym *symbol = dynamic_entry(entries, base, DT_SYMTAB);
    const uint32_t *hashes = dynamic_entry(entries, base, DT_HASH); /* the second word is the number of symbols */
    for (uint32_t i = hashes ? hashes[1] : 0; i > 0; --i, ++symbol)
        if (!strcmp(names + symbol->st_name, NAME)) return (clock_function *)(base + symbol->st_value);
    return NULL;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    static clock_function *found;
    if (!found && ci_kernel_functions) found = find(ci_kernel_functions);
    if (!found) found = by_system_call;
    return found(clock, time);
}
