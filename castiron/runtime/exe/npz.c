#include "npz.h"

#include "inflate.h"
#include "npy.h"

#include <stdlib.h>
#include <string.h>

/* Records as they are in the file: without padding, little-endian like all targets. */
#define PACKED __attribute__((packed, may_alias))
enum { LOCAL = 0x04034b50, CENTRAL = 0x02014b50, END = 0x06054b50, END64 = 0x06064b50, LOCATOR = 0x07064b50 };
enum { STORED = 0, DEFLATED = 8 };
enum { SIZE, PACKED_SIZE, OFFSET, COUNT };

typedef struct PACKED entry_fields {
    uint16_t version, flags, method;
    uint32_t date, crc, packed, size; /* all ones in the sizes: see zip64 */
    uint16_t name, extra;             /* lengths of what follows the header */
} entry_fields;

typedef struct PACKED local_header {
    uint32_t signature;
    entry_fields fields;
} local_header;

typedef struct PACKED central_header {
    uint32_t signature;
    uint16_t made_by;
    entry_fields fields;
    uint16_t comment, disk, internal;
    uint32_t external, offset;
} central_header;

typedef struct PACKED zip64 {
    uint16_t id, length;
    uint64_t size, packed, offset; /* the offset in central headers only */
} zip64;

typedef struct PACKED end_record {
    uint32_t signature;
    uint16_t disk, first_disk, count_here, count;
    uint32_t size, offset;
    uint16_t comment;
} end_record;

typedef struct PACKED end64_record {
    uint32_t signature;
    uint64_t rest; /* bytes of the record behind this field */
    uint16_t made_by, version;
    uint32_t disk, first_disk;
    uint64_t count_here, count, size, offset;
} end64_record;

typedef struct PACKED locator {
    uint32_t signature, disk;
    uint64_t offset;
    uint32_t disks;
} locator;

/* Reading ---------------------------------------------------------------------------------------------------------- */

typedef struct entry {
    ci_slice name; /* without .npy */
    uint64_t wide[3]; /* by the following names: bytes of the .npy, bytes in the file, place of the local header */
    uint32_t method, crc, flags;
} entry;

/* The central directory. */
typedef struct directory {
    const ci_bytes *file;
    uint64_t at, size, count;
} directory;

/* The record of `size` bytes at `offset`, or NULL where it is not there. */
static const void *record_at(const ci_bytes *file, uint64_t offset, size_t size, uint32_t signature)
{
    if (offset > file->size || file->size - offset < size) return NULL;
    const char *at = file->data + offset;
    return memcmp(at, &signature, 4) ? NULL : at;
}

static bool find_directory(const ci_bytes *file, directory *d)
{
    const uint64_t longest_comment = 65535;
    uint64_t place = file->size, lowest = place - sizeof(end_record) - longest_comment;
    if (lowest > place) lowest = 0;
    const end_record *end = NULL;
    while (!end && place > lowest) end = record_at(file, --place, sizeof *end, END);
    if (!end) return false;
    *d = (directory){file, end->offset, end->size, end->count};
    const locator *l = record_at(file, place - sizeof *l, sizeof *l, LOCATOR);
    if (l) {
        const end64_record *wide = record_at(file, l->offset, sizeof *wide, END64);
        if (!wide) return false;
        *d = (directory){file, wide->offset, wide->size, wide->count};
    }
    return d->at <= file->size && d->size <= file->size - d->at;
}

/* 64-bit sizes stand in extra field 1, in this order, for those that are all ones in the record. */
static bool read_zip64(const char *extra, const char *end, entry *e)
{
    while (end - extra >= 4) {
        const zip64 *field = (const void *)extra;
        extra += 4;
        if (field->length > end - extra) return false;
        const char *at = extra;
        extra += field->length;
        for (int i = 0; field->id == 1 && i < COUNT; i++) {
            if (e->wide[i] != UINT32_MAX) continue;
            if (extra - at < 8) return false;
            memcpy(&e->wide[i], at, 8);
            at += 8;
        }
    }
    return true;
}

static bool next_entry(directory *d, entry *e)
{
    const central_header *c = (const void *)(d->file->data + d->at);
    if (d->size < sizeof *c || c->signature != CENTRAL) return false;
    const entry_fields *f = &c->fields;
    size_t size = sizeof *c + f->name + f->extra + c->comment;
    if (d->size < size) return false;
    d->at += size;
    d->size -= size;
    *e = (entry){{(const char *)(c + 1), f->name}, {f->size, f->packed, c->offset}, f->method, f->crc, f->flags};
    const char *extra = e->name.at + f->name;
    if (f->name >= 4 && !memcmp(extra - 4, ".npy", 4)) e->name.size -= 4;
    return read_zip64(extra, extra + f->extra, e);
}

/* Gives what is wrong with the entry, or NULL. */
static const char *unpack(const ci_bytes *file, const entry *e, ci_bytes *out)
{
    uint64_t size = e->wide[SIZE], packed = e->wide[PACKED_SIZE], offset = e->wide[OFFSET];
    if (e->flags & 1) return "is encrypted";
    if (e->method != STORED && e->method != DEFLATED) return "is compressed in a way that NumPy does not write";
    const local_header *local = record_at(file, offset, sizeof *local, LOCAL);
    if (!local) return "is not where the .npz says";
    offset += sizeof *local + local->fields.name + local->fields.extra;
    if (offset > file->size || packed > file->size - offset) return "is cut off";
    /* DEFLATE cannot shrink more than 1032 times */
    if (e->method == STORED ? size != packed : size / 1032 > packed) return "has a wrong size";
    if (!ci_reserve(out, size + 1)) return "is larger than the memory there is";
    const char *data = file->data + offset;
    out->size = size;
    bool whole = true;
    if (e->method == STORED) memcpy(out->data, data, size);
    else whole = ci_inflate((const uint8_t *)data, packed, (uint8_t *)out->data, size);
    return whole && ci_crc32(0, out->data, size) == e->crc ? NULL : "is damaged (checksum)";
}

static CI_APART int read_entry(const ci_bytes *file, const entry *e, const char *where, ci_inputs *inputs, int index,
                               ci_error *error)
{
    ci_bytes bytes = {0};
    const char *problem = unpack(file, e, &bytes);
    int status = problem ? ci_refuse(error, "%s: array '%.*s' %s", where, (int)e->name.size, e->name.at, problem)
                         : ci_npy_input(&bytes, where, inputs, index, error);
    free(bytes.data);
    return status;
}

int ci_npz_read(const ci_bytes *file, const char *where, ci_inputs *inputs, int index, ci_error *error)
{
    directory d;
    entry e;
    int status = CI_OK, found = index;
    if (!find_directory(file, &d)) return ci_refuse(error, "%s: not a .npz file, or cut off", where);
    const char *wanted = index < 0 || d.count == 1 ? NULL : inputs->model->inputs[index].name;
    for (uint64_t i = 0; i < d.count && !status; i++) {
        if (!next_entry(&d, &e)) return ci_refuse(error, "%s: the list of its arrays is damaged", where);
        if (wanted && !ci_same(e.name.at, e.name.size, wanted)) continue;
        if (index < 0) status = ci_inputs_find(inputs, e.name.at, e.name.size, where, &found, error);
        if (!status) status = read_entry(file, &e, where, inputs, found, error);
        if (index >= 0) return status;
    }
    if (status || index < 0) return status;
    return ci_refuse(error, "%s: holds no array '%s'", where, inputs->model->inputs[index].name);
}

/* Writing ---------------------------------------------------------------------------------------------------------- */

/* An array in the file. */
typedef struct place {
    uint64_t offset, size;
    uint32_t crc;
} place;

/* Sizes stand in a zip64 field: one layout, whatever the size. Dates are those of 1980. */
static entry_fields fields_of(const place *p, const char *name, size_t extra)
{
    return (entry_fields){
        45, 0x800, STORED, 0x210000, p->crc, UINT32_MAX, UINT32_MAX, (uint16_t)(strlen(name) + 4), (uint16_t)extra};
}

static void put_record(ci_text *out, const void *header, size_t size, const char *name, const place *p, size_t extra)
{
    zip64 wide = {1, (uint16_t)(extra - 4), p->size, p->size, p->offset};
    ci_put_bytes(out, header, size);
    ci_put(out, "%s.npy", name);
    ci_put_bytes(out, &wide, extra);
}

static int put_array(ci_text *out, const char *name, const ci_array *array, place *p, ci_error *error)
{
    const size_t extra = offsetof(zip64, offset);
    char header[CI_NPY_HEADER];
    size_t length = ci_npy_header(header, array);
    p->size = length + (size_t)ci_npy_bytes(array);
    p->crc = ci_crc32(0, header, length);
    int status = ci_npy_data(NULL, array, &p->crc, error);
    if (status) return status;
    local_header local = {LOCAL, fields_of(p, name, extra)};
    put_record(out, &local, sizeof local, name, p, extra);
    ci_put_bytes(out, header, length);
    return ci_npy_data(out, array, NULL, error);
}

static void put_central(ci_text *out, const char *name, const place *p)
{
    central_header central = {CENTRAL, 45, fields_of(p, name, sizeof(zip64)), 0, 0, 0, 0, UINT32_MAX};
    put_record(out, &central, sizeof central, name, p, sizeof(zip64));
}

static void put_end(ci_text *out, uint64_t count, uint64_t size, uint64_t offset)
{
    struct PACKED {
        end64_record wide;
        locator locator;
        end_record end;
    } records = {{END64, sizeof(end64_record) - 12, 45, 45, 0, 0, count, count, size, offset},
                 {LOCATOR, 0, offset + size, 1},
                 {END, 0, 0, UINT16_MAX, UINT16_MAX, UINT32_MAX, UINT32_MAX, 0}};
    ci_put_bytes(out, &records, sizeof records);
}

int ci_npz_write(ci_text *out, const ci_model *model, const ci_array *outputs, ci_error *error)
{
    size_t count = (size_t)model->output_count;
    uint64_t offset = 0, size = 0;
    place *places = malloc((count + 1) * sizeof *places);
    if (!places) return ci_no_memory(error, (int64_t)(count * sizeof *places));
    int status = CI_OK;
    for (size_t i = 0; i < count && !status; i++) {
        const char *name = model->outputs[i].name;
        places[i].offset = offset;
        status = put_array(out, name, &outputs[i], &places[i], error);
        offset += sizeof(local_header) + strlen(name) + 4 + offsetof(zip64, offset) + places[i].size;
    }
    for (size_t i = 0; i < count && !status; i++) {
        put_central(out, model->outputs[i].name, &places[i]);
        size += sizeof(central_header) + strlen(model->outputs[i].name) + 4 + sizeof(zip64);
    }
    if (!status) put_end(out, count, size, offset);
    free(places);
    return status;
}
