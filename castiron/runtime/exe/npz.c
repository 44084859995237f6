#include "npz.h"

#include "inflate.h"
#include "npy.h"

#include <stdlib.h>
#include <string.h>

enum { LOCAL = 30, CENTRAL = 46, END = 22, END64 = 56, LOCATOR = 20 }; /* sizes of the records, without names */
enum { STORED = 0, DEFLATED = 8 };

static uint64_t get(const char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | (uint8_t)at[i];
    return value;
}

static bool is(const char *at, const char *signature)
{
    return !memcmp(at, signature, 4);
}

/* Reading ---------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    const char *name; /* without .npy */
    size_t name_length;
    uint64_t packed, size, offset; /* bytes in the file, bytes of the .npy, place of the local header */
    uint32_t method, crc, flags;
} entry;

/* The central directory. */
typedef struct directory {
    const ci_bytes *file;
    uint64_t at, end, count;
} directory;

static bool find_directory(const ci_bytes *file, directory *d)
{
    if (file->size < END) return false;
    size_t end = file->size - END, lowest = end > 65535 ? end - 65535 : 0;
    while (!is(file->data + end, "PK\5\6"))
        if (end-- == lowest) return false;
    const char *record = file->data + end;
    uint64_t size = get(record + 12, 4);
    *d = (directory){file, get(record + 16, 4), 0, get(record + 10, 2)};
    if (end >= LOCATOR && is(record - LOCATOR, "PK\6\7")) {
        uint64_t place = get(record - LOCATOR + 8, 8);
        if (place > file->size || file->size - place < END64 || !is(file->data + place, "PK\6\6")) return false;
        record = file->data + place;
        d->count = get(record + 32, 8);
        size = get(record + 40, 8);
        d->at = get(record + 48, 8);
    }
    d->end = d->at + size;
    return d->at <= file->size && size <= file->size - d->at;
}

/* 64-bit sizes stand in extra field 1, in this order, for those that are all ones in the record. */
static bool read_zip64(const char *extra, const char *end, entry *e)
{
    uint64_t *fields[] = {&e->size, &e->packed, &e->offset};
    while (end - extra >= 4) {
        uint64_t id = get(extra, 2), length = get(extra + 2, 2);
        extra += 4;
        if (length > (uint64_t)(end - extra)) return false;
        const char *at = extra;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*fields[i] != 0xffffffff) continue;
            if (extra + length - at < 8) return false;
            *fields[i] = get(at, 8);
            at += 8;
        }
        extra += length;
    }
    return true;
}

static bool next_entry(directory *d, entry *e)
{
    const char *at = d->file->data + d->at;
    uint64_t left = d->end - d->at;
    if (left < CENTRAL || !is(at, "PK\1\2")) return false;
    size_t name = get(at + 28, 2), extra = get(at + 30, 2), comment = get(at + 32, 2);
    if (left - CENTRAL < name + extra + comment) return false;
    *e = (entry){.name = at + CENTRAL, .name_length = name, .packed = get(at + 20, 4), .size = get(at + 24, 4),
                 .offset = get(at + 42, 4), .method = (uint32_t)get(at + 10, 2), .crc = (uint32_t)get(at + 16, 4),
                 .flags = (uint32_t)get(at + 8, 2)};
    if (name >= 4 && !memcmp(e->name + name - 4, ".npy", 4)) e->name_length -= 4;
    d->at += CENTRAL + name + extra + comment;
    return read_zip64(e->name + name, e->name + name + extra, e);
}

static int refuse(const entry *e, const char *where, const char *what, ci_error *error)
{
    return ci_refuse(error, CI_BAD_INPUT, "%s: array '%q' %s", where, e->name_length, e->name, what);
}

static int unpack(const ci_bytes *file, const entry *e, const char *where, ci_bytes *out, ci_error *error)
{
    if (e->flags & 1) return refuse(e, where, "is encrypted", error);
    if (e->method != STORED && e->method != DEFLATED)
        return refuse(e, where, "is compressed in a way that NumPy does not write", error);
    if (e->offset > file->size || file->size - e->offset < LOCAL || !is(file->data + e->offset, "PK\3\4"))
        return refuse(e, where, "is not where the .npz says", error);
    const char *local = file->data + e->offset;
    uint64_t data = e->offset + LOCAL + get(local + 26, 2) + get(local + 28, 2);
    if (data > file->size || e->packed > file->size - data) return refuse(e, where, "is cut off", error);
    /* DEFLATE cannot shrink more than 1032 times */
    if (e->method == STORED ? e->size != e->packed : e->size / 1032 > e->packed)
        return refuse(e, where, "has a wrong size", error);
    if (!ci_reserve(out, e->size + 1)) return ci_no_memory(error, (int64_t)e->size);
    out->size = e->size;
    bool whole = true;
    if (e->method == STORED)
        memcpy(out->data, file->data + data, e->size);
    else
        whole = ci_inflate((const uint8_t *)file->data + data, e->packed, (uint8_t *)out->data, e->size);
    if (whole && ci_crc32(0, out->data, out->size) == e->crc) return CI_OK;
    return refuse(e, where, "is damaged (checksum)", error);
}

static int read_entry(const ci_bytes *file, const entry *e, const char *where, ci_inputs *inputs, int index,
                      ci_error *error)
{
    ci_bytes bytes = {0};
    int status = unpack(file, e, where, &bytes, error);
    if (!status) status = ci_npy_read(&bytes, &inputs->model->inputs[index], where, &inputs->arrays[index], error);
    if (status)
        free(bytes.data);
    else
        inputs->memory[index] = bytes.data;
    return status;
}

static bool named(const entry *e, const char *name)
{
    return e->name_length == strlen(name) && !memcmp(e->name, name, e->name_length);
}

int ci_npz_read(const ci_bytes *file, const char *where, ci_inputs *inputs, int index, ci_error *error)
{
    directory d;
    entry e;
    int status = CI_OK, found = index;
    if (!find_directory(file, &d)) return ci_refuse(error, CI_BAD_INPUT, "%s: not a .npz file, or cut off", where);
    bool any = index < 0 || d.count == 1, done = false;
    for (uint64_t i = 0; i < d.count && !status && !done; i++) {
        if (!next_entry(&d, &e)) return ci_refuse(error, CI_BAD_INPUT, "%s: the list of its arrays is damaged", where);
        if (!any && !named(&e, inputs->model->inputs[index].name)) continue;
        done = index >= 0;
        if (!done) status = ci_inputs_find(inputs, e.name, e.name_length, where, &found, error);
        if (!status) status = read_entry(file, &e, where, inputs, found, error);
    }
    if (status || done || index < 0) return status;
    return ci_refuse(error, CI_BAD_INPUT, "%s: holds no array '%s'", where, inputs->model->inputs[index].name);
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

static char *set(char *at, uint64_t value, int bytes)
{
    for (; bytes; bytes--, value >>= 8) *at++ = (char)value;
    return at;
}

/* The fields that local and central headers share, from "version needed" to the lengths. Sizes stand in a zip64 field:
   one layout, whatever the size. Dates are those of 1980. */
static char *set_common(char *at, uint32_t crc, size_t name, size_t extra)
{
    at = set(at, 45, 2), at = set(at, 0x800, 2), at = set(at, STORED, 2), at = set(at, 0x210000, 4);
    at = set(at, crc, 4), at = set(at, UINT64_MAX, 8), at = set(at, name + 4, 2);
    return set(at, extra, 2);
}

static void put_name(ci_out *out, const char *name)
{
    ci_out_text(out, name);
    ci_out_text(out, ".npy");
}

static int put_local(ci_out *out, const char *name, const ci_array *array, uint32_t *crc, uint64_t *offset,
                     ci_error *error)
{
    char header[CI_NPY_HEADER], record[LOCAL + 20], *at;
    size_t length = ci_npy_header(header, array), size = length + (size_t)ci_npy_bytes(array);
    *crc = ci_crc32(0, header, length);
    int status = ci_npy_data(NULL, array, crc, error);
    if (status) return status;
    at = set(record, 0x04034b50, 4);
    at = set_common(at, *crc, strlen(name), 20);
    ci_out_put(out, record, LOCAL);
    put_name(out, name);
    at = set(at, 1, 2), at = set(at, 16, 2), at = set(at, size, 8), at = set(at, size, 8);
    ci_out_put(out, record + LOCAL, 20);
    ci_out_put(out, header, length);
    *offset += LOCAL + strlen(name) + 4 + 20 + size;
    return ci_npy_data(out, array, NULL, error);
}

static size_t put_central(ci_out *out, const char *name, const ci_array *array, uint32_t crc, uint64_t offset)
{
    char header[CI_NPY_HEADER], record[CENTRAL + 28], *at;
    size_t size = ci_npy_header(header, array) + (size_t)ci_npy_bytes(array);
    at = set(record, 0x02014b50, 4), at = set(at, 45, 2);
    at = set_common(at, crc, strlen(name), 28);
    at = set(at, 0, 8), at = set(at, 0, 2), at = set(at, UINT64_MAX, 4); /* no comment, disk 0, no attributes */
    ci_out_put(out, record, CENTRAL);
    put_name(out, name);
    at = set(at, 1, 2), at = set(at, 24, 2), at = set(at, size, 8), at = set(at, size, 8), at = set(at, offset, 8);
    ci_out_put(out, record + CENTRAL, 28);
    return CENTRAL + strlen(name) + 4 + 28;
}

static void put_end(ci_out *out, uint64_t count, uint64_t size, uint64_t offset)
{
    char record[END64 + LOCATOR + END], *at;
    at = set(record, 0x06064b50, 4), at = set(at, END64 - 12, 8), at = set(at, 45 | 45 << 16, 4), at = set(at, 0, 8);
    at = set(at, count, 8), at = set(at, count, 8), at = set(at, size, 8), at = set(at, offset, 8);
    at = set(at, 0x07064b50, 4), at = set(at, 0, 4), at = set(at, offset + size, 8), at = set(at, 1, 4);
    at = set(at, 0x06054b50, 4), at = set(at, 0, 4), at = set(at, UINT64_MAX, 8), at = set(at, UINT64_MAX, 4);
    set(at, 0, 2);
    ci_out_put(out, record, sizeof record);
}

int ci_npz_write(ci_out *out, const ci_model *model, const ci_array *outputs, ci_error *error)
{
    size_t count = (size_t)model->output_count;
    uint64_t offset = 0, size = 0;
    struct place {
        uint64_t offset;
        uint32_t crc;
    } *places = malloc((count + 1) * sizeof *places);
    if (!places) return ci_no_memory(error, (int64_t)(count * sizeof *places));
    int status = CI_OK;
    for (size_t i = 0; i < count && !status; i++) {
        places[i].offset = offset;
        status = put_local(out, model->outputs[i].name, &outputs[i], &places[i].crc, &offset, error);
    }
    for (size_t i = 0; i < count && !status; i++)
        size += put_central(out, model->outputs[i].name, &outputs[i], places[i].crc, places[i].offset);
    if (!status) put_end(out, count, size, offset);
    free(places);
    return status;
}
