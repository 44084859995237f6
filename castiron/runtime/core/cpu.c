#include "cpu.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

#if defined __x86_64__
#include <cpuid.h>

static uint64_t enabled_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* The level of the x86-64 psABI: what the processor can do and the operating system saves on a switch of threads. */
static CI_APART int x86_64_level(void)
{
    const uint32_t v2 = bit_SSE3 | bit_SSSE3 | bit_SSE4_1 | bit_SSE4_2 | bit_POPCNT | bit_CMPXCHG16B;
    const uint32_t v3 = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C | bit_MOVBE;
    const uint32_t v3_leaf7 = bit_AVX2 | bit_BMI | bit_BMI2;
    const uint32_t v4_leaf7 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    const uint32_t lahf = 1u << 0, lzcnt = 1u << 5;
    uint32_t a, b, c, d, leaf1, leaf7;
    __cpuid(0x80000001, a, b, c, d);
    const uint32_t extended = c;
    __cpuid(1, a, b, leaf1, d);
    if ((leaf1 & v2) != v2 || !(extended & lahf)) return 1;
    if ((leaf1 & v3) != v3 || !(extended & lzcnt)) return 2;
    __cpuid_count(7, 0, a, leaf7, c, d); /* processors with OSXSAVE have this leaf, the others have the two above */
    if ((leaf7 & v3_leaf7) != v3_leaf7) return 2;
    uint64_t states = enabled_states();
    const uint64_t avx = 0x6, avx512 = 0xe6; /* XCR0: SSE and AVX registers; masks and the upper halves */
    if ((states & avx) != avx) return 2;
    return (leaf7 & v4_leaf7) == v4_leaf7 && (states & avx512) == avx512 ? 4 : 3;
}
#endif

static bool supported(const char *isa)
{
    if (!strcmp(isa, "generic")) return true;
#if defined __x86_64__
    return !strncmp(isa, "x86-64-v", 8) && isa[8] >= '1' && isa[8] <= '4' && !isa[9] && isa[8] - '0' <= x86_64_level();
#elif defined __aarch64__
    return !strcmp(isa, "arm64");
#else
    return false;
#endif
}

static void list(ci_text *text, const ci_code *const *codes)
{
    for (const ci_code *const *code = codes; *code; ++code) ci_put(text, "%s%s", code == codes ? "" : ", ", (*code)->isa);
}

int ci_pick_code(const ci_model *model, const ci_code **picked, ci_error *error)
{
    const char *forced = getenv("CASTIRON_CPU");
    if (forced && !*forced) forced = NULL;
    char names[128];
    ci_text text = ci_text_in(names, sizeof names);
    list(&text, model->codes);
    for (const ci_code *const *code = model->codes; *code; ++code) {
        if (forced && strcmp(forced, (*code)->isa)) continue;
        if (supported((*code)->isa)) {
            *picked = *code;
            return CI_OK;
        }
        if (forced) return ci_fail(error, CI_BAD_INPUT, "CASTIRON_CPU=%s: this processor does not have it", forced);
    }
    if (forced)
        return ci_fail(error, CI_BAD_INPUT, "CASTIRON_CPU=%s: model '%s' has code for %s only", forced, model->name, names);
    return ci_fail(error, CI_BAD_INPUT,
                   "model '%s' has code for %s only, and this processor has none of these; "
                   "build it with a lower --cpu",
                   model->name, names);
}
