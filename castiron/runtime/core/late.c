/* Sizes that only data tell, and the memory that they make. */
#include "memory.h"

#include <string.h>

void ci_stop(const ci_run *run, int status, const char *reason)
{
    if (run->fault->reason) return;
    run->fault->status = status;
    run->fault->reason = reason;
}

bool ci_set_size(const ci_run *run, int32_t number, int64_t value)
{
    if (value < 0) ci_stop(run, CI_BAD_INPUT, "these inputs would give a value a negative size");
    run->sizes[number] = value < 0 ? 0 : value;
    return value >= 0;
}

/* The block with room for `bytes`, of which `kept` stay as they are; more than asked for where it has grown before. */
static bool grow(const ci_run *run, ci_block *block, int64_t bytes, int64_t kept)
{
    if (bytes < CI_ALIGN) bytes = CI_ALIGN; /* so that there is always an element to point at */
    if (bytes <= (int64_t)block->size) return true;
    ci_block larger = {0};
    if (ci_block_grow(&larger, block->size ? bytes + bytes / 2 : bytes)) {
        if (kept) memcpy(larger.data, block->data, (size_t)kept);
        ci_block_free(block);
        *block = larger;
        return true;
    }
    ci_stop(run, CI_NO_MEMORY, "no memory for values whose sizes these inputs tell");
    return false;
}

bool ci_move(const ci_run *run, int32_t state, const void *source, int64_t bytes)
{
    if (!grow(run, &run->states[state], bytes, 0)) return false;
    if (bytes) memcpy(run->states[state].data, source, (size_t)bytes);
    return true;
}

bool ci_append(const ci_run *run, int32_t state, const void *source, int64_t bytes, int64_t row)
{
    if (!grow(run, &run->states[state], bytes * (row + 1), bytes * row)) return false;
    if (bytes) memcpy(run->states[state].data + bytes * row, source, (size_t)bytes);
    return true;
}

bool ci_output(const ci_run *run, int32_t output, int64_t bytes)
{
    if (!grow(run, &run->results[output], bytes, 0)) return false;
    run->outputs[output] = run->results[output].data;
    return true;
}

bool ci_stage(const ci_run *run, int32_t stage, const ci_life *lives, const int64_t *bytes, int32_t n, int32_t slot)
{
    return grow(run, &run->arenas[stage], ci_plan(lives, bytes, n, run->offsets + slot), 0);
}
