/* The start of static executables, in place of the C library's: that one is four times as large, since it also serves
   programs with constructors, variables of threads and set-user-ID, and leaves pointers that need no change writable. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "start.h"

#include "thread_area.h"

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

extern Elf64_Ehdr __ehdr_start __attribute__((visibility("hidden"))); /* of this file, by the linker */

int main(int count, char **arguments, char **variables);
int __set_thread_area(void *self); /* the C library's: the system call or register of this machine */

/* The kernel starts with the arguments on the stack and no frame above. */
#if defined __x86_64__
__asm__(".globl _start\n_start: xor %ebp, %ebp\nmov %rsp, %rdi\nand $-16, %rsp\ncall ci_start");
#elif defined __aarch64__
__asm__(".globl _start\n_start: mov x29, #0\nmov x30, #0\nmov x0, sp\nbl ci_start");
#else
#error "no start for this machine"
#endif

/* Pointers in data are relative to the file's beginning until here. An even word is the address of one, an odd word tells
   with its other 63 bits which of the words that follow the last one are. */
static void relocate(char *base, const Elf64_Dyn *dynamic)
{
    const size_t *packed = NULL;
    size_t size = 0, *next = NULL;
    for (; dynamic->d_tag; ++dynamic) {
        if (dynamic->d_tag == DT_RELR) packed = (const size_t *)(base + dynamic->d_un.d_ptr);
        if (dynamic->d_tag == DT_RELRSZ) size = dynamic->d_un.d_val;
    }
    for (const size_t *end = packed + size / sizeof *packed; packed < end; ++packed) {
        if (*packed % 2 == 0) {
            next = (size_t *)(base + *packed);
            *next++ += (size_t)base;
            continue;
        }
        size_t *at = next;
        for (size_t bits = *packed; bits >>= 1; ++at)
            if (bits & 1) *at += (size_t)base;
        next += 63;
    }
}

__attribute__((noreturn, used, visibility("hidden"))) void ci_start(char **stack)
{
    static ci_thread_area own;
    char *base = (char *)&__ehdr_start;
    const Elf64_Phdr *segment = (const Elf64_Phdr *)(base + __ehdr_start.e_phoff);
    const Elf64_Phdr *end = segment + __ehdr_start.e_phnum, *fixed = NULL;
    for (; segment < end; ++segment) {
        if (segment->p_type == PT_DYNAMIC) relocate(base, (const Elf64_Dyn *)(base + segment->p_vaddr));
        if (segment->p_type == PT_GNU_RELRO) fixed = segment;
    }
    int count = (int)(intptr_t)stack[0];
    char **variables = stack + count + 2, **rest = variables;
    own.self = &own.self;
    __set_thread_area(own.self);
    environ = variables;
    while (*rest) ++rest;
    for (const Elf64_auxv_t *known = (const Elf64_auxv_t *)(rest + 1); known->a_type; ++known) {
        size_t value = known->a_un.a_val;
        if (known->a_type == AT_SYSINFO_EHDR) ci_kernel_functions = (const char *)value;
        if (known->a_type != AT_PAGESZ || !fixed) continue;
        size_t from = ((size_t)base + fixed->p_vaddr) & -value;
        size_t to = ((size_t)base + fixed->p_vaddr + fixed->p_memsz) & -value;
        syscall(SYS_mprotect, from, to - from, PROT_READ); /* the C library's rounds to the largest pages there are */
    }
    _exit(main(count, stack + 1, variables));
}
