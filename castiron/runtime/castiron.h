/* What generated code and the runtime promise each other.

   A model is: tables (names, shapes, weights), and for each instruction set two lists of steps, `prepare` and `forward`.
   The runtime maps or prepares weights, plans memory, runs the steps. Nothing here is for users: they see NAME.h.

   Generated code is compiled once an instruction set with -DCI_ISA=x86_64_v3 and the like; CI(f) is f's instance for it. */
#ifndef CASTIRON_H
#define CASTIRON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CI_MAX_RANK 16
#define CI_ALIGN 64 /* of every buffer in the arena, the packed weights and the constants, in bytes */

#define CI_PASTE_(a, b) a##_##b
#define CI_PASTE(a, b) CI_PASTE_(a, b)
#define CI(name) CI_PASTE(ci_##name, CI_ISA)

/* Element types, numbered as ONNX numbers them (TensorProto.DataType). Those of fewer than 8 bits take a byte. */
enum ci_type {
    CI_FLOAT = 1,
    CI_UINT8 = 2,
    CI_INT8 = 3,
    CI_UINT16 = 4,
    CI_INT16 = 5,
    CI_INT32 = 6,
    CI_INT64 = 7,
    CI_STRING = 8,
    CI_BOOL = 9,
    CI_FLOAT16 = 10,
    CI_DOUBLE = 11,
    CI_UINT32 = 12,
    CI_UINT64 = 13,
    CI_BFLOAT16 = 16,
    CI_FLOAT8E4M3FN = 17,
    CI_FLOAT8E4M3FNUZ = 18,
    CI_FLOAT8E5M2 = 19,
    CI_FLOAT8E5M2FNUZ = 20,
    CI_UINT4 = 21,
    CI_INT4 = 22,
    CI_FLOAT4E2M1 = 23,
    CI_UINT2 = 25,
    CI_INT2 = 26
};

/* Statuses; the executable exits with them. */
enum ci_status { CI_OK = 0, CI_BAD_INPUT = 2, CI_BAD_WEIGHTS = 3, CI_NO_MEMORY = 4 };

/* A message for the user: what is wrong, where, what to do. Cut off, never overrun. */
typedef struct ci_error {
    char text[512];
} ci_error;

/* Work that can be split: items begin..end-1 of a step. */
typedef struct ci_run ci_run;
typedef void ci_range(const ci_run *run, const void *argument, int64_t begin, int64_t end);

/* Memory that grows. */
typedef struct ci_block {
    char *data;
    size_t size;
} ci_block;

/* What a step sees. One `ci_run` belongs to one running call. */
struct ci_run {
    int64_t *sizes;               /* the sizes known at run time, in the order of the program; late ones last */
    char *arena;                  /* temporary buffers whose sizes are known when the run starts */
    int64_t *offsets;             /* of temporary buffers in their arena, where sizes are symbolic (else literals) */
    const void *const *inputs;    /* forward: the caller's arrays; prepare: the raw weights */
    void **outputs;               /* forward: the caller's arrays; prepare: none */
    ci_block *arenas;             /* of the later stages: temporary buffers whose sizes a step has told */
    ci_block *states;             /* what turns of loops and branches hand on */
    ci_block *results;            /* of the session: outputs whose sizes a step tells */
    const char *constants;        /* values nobody replaces */
    char *packed;                 /* prepare writes it, forward only reads it */
    struct ci_pool *pool;         /* threads; NULL: the calling thread alone */
    struct ci_fault *fault;       /* set by a step that met a value it must refuse */
};

/* An index outside its dimension: the first one met is kept. */
typedef struct ci_fault {
    int64_t index, extent;        /* extent 0: no fault */
    int32_t step;                 /* number of the step, set by the runtime */
    int32_t status;               /* of `reason` */
    const char *reason;           /* why a step ended the run; NULL: it did not */
} ci_fault;

/* `index` made non-negative. Outside [-extent, extent) it gives 0 and the run ends with an error that names the step. */
int64_t ci_index(const ci_run *run, int64_t index, int64_t extent);

/* What only data tell (core/late.c). Each gives false where the run has to end, after it has said why. */

/* Ends the run behind this step. */
void ci_stop(const ci_run *run, int status, const char *reason);
/* Sets late size `number`; a negative one ends the run. */
bool ci_set_size(const ci_run *run, int32_t number, int64_t value);
/* Copies `bytes` from `source` into a state, which grows for it. */
bool ci_move(const ci_run *run, int32_t state, const void *source, int64_t bytes);
/* The same as row `row` of the state, whose rows before it stay. */
bool ci_append(const ci_run *run, int32_t state, const void *source, int64_t bytes, int64_t row);
/* Memory for an output; for `n` temporary buffers of a later stage, whose offsets start at `slot`. */
bool ci_output(const ci_run *run, int32_t output, int64_t bytes);
struct ci_life;
bool ci_stage(const ci_run *run, int32_t stage, const struct ci_life *lives, const int64_t *bytes, int32_t n, int32_t slot);

/* Runs `range` over 0..count-1 in one static split: the same items give the same bits with any number of threads.
   `work` is the rough number of cycles an item costs; small jobs stay on the calling thread. */
void ci_parallel(const ci_run *run, ci_range *range, const void *argument, int64_t count, int64_t work);

/* One step: a name for messages and profiles, the ONNX operator(s) it comes from, its code. A border of a branch or loop
   has no code but `jump`, the step that is next unless `test` holds. */
typedef struct ci_step {
    const char *name, *op;
    void (*run)(const ci_run *run);
    bool (*test)(const ci_run *run);
    int32_t jump;                 /* 0: none */
} ci_step;

/* The code of a model for one instruction set. */
typedef struct ci_code {
    const char *isa;              /* "x86-64-v3", as CASTIRON_CPU names it */
    const ci_step *prepare, *forward;
    int32_t prepare_count, forward_count;
} ci_code;

/* An input, output or weight. dims[i] >= 0 is a fixed extent, -1-k is size k of the program. */
typedef struct ci_port {
    const char *name;
    int32_t type, rank;
    const int64_t *dims;
} ci_port;

/* A size known at run time: dimension `dim` of input `input`; input -1: `derive` computes it from earlier ones, or a step
   tells it. */
typedef struct ci_size {
    const char *name;
    int32_t input, dim;
} ci_size;

/* A temporary buffer's life, first to last step that touches it. Buffers of overlapping lives never overlap in the arena. */
typedef struct ci_life {
    int32_t first, last;
} ci_life;

/* Places n buffers of the given sizes (bytes) in an arena: best fit, larger first. Gives the arena's size in bytes. */
int64_t ci_plan(const ci_life *lives, const int64_t *bytes, int32_t n, int64_t *offsets);

/* A model. Everything is constant and lives in the file; one a generated NAME_api.c. */
typedef struct ci_model {
    const char *name;             /* the prefix of its symbols */
    const char *hash;             /* 64 hex digits: graph, constants, layout of the packed weights; not their values */
    const char *version;          /* of castiron */
    const char *info;             /* what --info prints beyond the tables, as JSON object members without braces, or "" */
    const ci_port *inputs, *outputs, *weights;
    int32_t input_count, output_count, weight_count;
    const ci_size *sizes;
    int32_t size_count, offset_count;
    int32_t late_count;           /* sizes at the end of the list that only a run tells */
    int32_t stage_count, state_count; /* later stages (ci_run.arenas) */
    double (*largest)(const int64_t *sizes); /* no integer computed of these sizes exceeds it; NULL: none can overflow */
    void (*derive)(int64_t *sizes);                              /* fills the derived sizes; NULL where there are none */
    const char *(*misfit)(const int64_t *sizes); /* what keeps sizes from fitting the model, or NULL; NULL: all fit */
    int64_t (*plan)(const int64_t *sizes, int64_t *offsets);     /* offsets and bytes of the forward arena */
    int64_t prepare_arena;        /* bytes that prepare needs for temporaries */
    int64_t packed_bytes, constant_bytes;
    const char *constants;        /* embedded, always; NULL where there are none */
    const char *packed;           /* embedded weights; NULL: they come from a file */
    const char *weights_file;     /* NAME.weights: looked for beside the executable, where nothing is embedded */
    const char *selftest;         /* recorded inputs and outputs (selftest.h), or NULL */
    int64_t selftest_bytes;
    const ci_code *const *codes;  /* best instruction set first, NULL last */
} ci_model;

/* Kernels, for each instruction set; strides count elements. -------------------------------------------------- */

/* Called once for each finished tile, while it is in L1: `tile` holds rows x cols sums, `stride` floats from row to row.
   `outer` holds the indices of all axes but the last two (rows, columns); rows start at `row`, columns at `col`. */
typedef void ci_tile(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                     const float *tile, int64_t stride);

/* acc[b0][b1][b2][m][n] = sum over k of a * b. b is packed in panels [n/16][k][16], the last one filled with zeros. */
typedef struct ci_matmul {
    int64_t b0, b1, b2, m, n, k;
    const float *a;
    int64_t a_b0, a_b1, a_b2, a_m, a_k;
    const float *b;
    int64_t b_b0, b_b1, b_b2;
    ci_tile *tile;
} ci_matmul;

/* The same of sums of integers. */
typedef void ci_integer_tile(const ci_run *run, const int64_t *outer, int64_t row, int64_t rows, int64_t col, int64_t cols,
                             const int32_t *tile, int64_t stride);

/* acc[b0][b1][b2][m][n] = sum over k of rows * panels, modulo 2^32. k is a multiple of 4; a row's terms are neighbours; panels
   are packed [n/16][k/4][16][4], the last one filled up. */
typedef struct ci_matmul_integer {
    int64_t b0, b1, b2, m, n, k;
    const uint8_t *rows;
    int64_t rows_b0, rows_b1, rows_b2, rows_m;
    const int8_t *panels;
    int64_t panels_b0, panels_b1, panels_b2;
    ci_integer_tile *tile;
} ci_matmul_integer;

/* acc[n][g][d][h][w][o] = sum over kd, kh, kw, c of x * filter, filter packed [g][o/16][kd][kh][kw][c][16]. */
typedef struct ci_conv {
    int64_t n, g, d, h, w, o, kd, kh, kw, c;
    const float *x;
    int64_t x_n, x_g, x_d, x_h, x_w, x_kd, x_kh, x_kw, x_c;
    const float *filter;
    int64_t filter_g;
    ci_tile *tile;
    float *scratch;               /* of the Winograd forms: CI_WINOGRAD_SCRATCH floats */
} ci_conv;

/* The forms of kernels/winograd.c for 3 x 3 kernels, stride and dilation 1, one group: m is 2 or 4, points (m + 2) * (m + 2).
   Their filter is transformed, packed [points][o/16][c][16]. Tiles of a block: their points stay in the second cache. */
#define CI_WINOGRAD_DEPTH(c) (((c) + 15) / 16 * 16)
#define CI_WINOGRAD_TILES(points, c) (16 + 147456 / ((points) * CI_WINOGRAD_DEPTH(c) + 1))
#define CI_WINOGRAD_SCRATCH(points, c) ((points) * (CI_WINOGRAD_TILES(points, c) * CI_WINOGRAD_DEPTH(c) + 16))

/* Activations of recurrent layers. */
enum ci_activation {
    CI_SIGMOID,
    CI_TANH,
    CI_RELU,
    CI_AFFINE,
    CI_LEAKY_RELU,
    CI_THRESHOLDED_RELU,
    CI_SCALED_TANH,
    CI_HARD_SIGMOID,
    CI_ELU,
    CI_SOFTSIGN,
    CI_SOFTPLUS
};
typedef struct ci_activation_of {
    int32_t kind;
    float alpha, beta;
} ci_activation_of;

/* One direction of a recurrent layer (see program/kernels.py). Absent operands are NULL. y: [steps][directions][batch]
   [hidden] whole; yh, yc, h0, c0: [directions][batch][hidden] whole; `direction` picks. clip 0: none.
   lengths: [batch] int32, steps of each sequence. recurrent: this direction's panels. gates: [steps][batch][G*hidden]. */
typedef struct ci_recurrent {
    int64_t steps, batch, hidden, directions, direction;
    bool reverse, input_forget, linear_before_reset;
    float clip;
    ci_activation_of activations[3];
    const float *gates, *recurrent, *recurrent_bias, *h0, *c0, *peephole;
    const int32_t *lengths;
    float *y, *yh, *yc;
    float *scratch;               /* CI_RECURRENT_SCRATCH floats */
} ci_recurrent;
#define CI_RECURRENT_SCRATCH(gates, batch, hidden) ((gates) * (batch) * (hidden) + 2 * (batch) * (hidden))

/* Walks of decision trees. nodes: [.][4] feature, where a comparison that fails leads, where one that holds does, and the
   comparison (ci_comparison), CI_NAN_HOLDS added where NaN holds; a leaf is written as ~ its number, in roots too.
   x: [rows][features] and split: [.] are double where `wide`, else float. leaf: [rows][trees] numbers of leaves. */
typedef enum ci_comparison { CI_AT_MOST, CI_BELOW, CI_AT_LEAST, CI_ABOVE, CI_SAME, CI_OTHER, CI_NAN_HOLDS = 8 } ci_comparison;
typedef struct ci_trees_of {
    int64_t rows, features, trees;
    bool wide;
    const void *x, *split;
    const int32_t *nodes, *roots;
    int32_t *leaf;
} ci_trees_of;
void ci_trees(const ci_run *run, const ci_trees_of *p);

/* positions: where the n flags (0 or 1) are set, in order; one more may be written. count: how many there are. */
typedef struct ci_select_of {
    int64_t n;
    const uint8_t *flags;
    int64_t *positions, *count;
} ci_select_of;
void ci_select(const ci_run *run, const ci_select_of *p);

/* boxes [batch][n][4], scores [batch][classes][n]. most, overlap, threshold: one number each, or NULL. selected: up to
   batch * classes * n times (batch, class, box), of which `count` are told. gone: n bytes to work in. */
typedef struct ci_nms {
    int64_t batch, classes, n;
    bool centered; /* boxes are (x, y, width, height), else two corners (y, x) */
    const float *boxes, *scores, *overlap, *threshold;
    const int64_t *most;
    int64_t *selected, *count;
    uint8_t *gone;
} ci_nms;
void ci_nms_run(const ci_run *run, const ci_nms *p);

/* What an instruction set brings to matmul and convolution (kernels/tile.h); the rest of them is common to all. */
typedef struct ci_tiles ci_tiles;
typedef struct ci_integer_tiles ci_integer_tiles;
void ci_matmul_tiled(const ci_run *run, const ci_matmul *p, const ci_tiles *tiles);
void ci_conv_tiled(const ci_run *run, const ci_conv *p, const ci_tiles *tiles);
void ci_matmul_integer_tiled(const ci_run *run, const ci_matmul_integer *p, const ci_integer_tiles *tiles);

#define CI_DECLARE_KERNELS(isa)                                                                                             \
    extern const ci_tiles ci_tiles_##isa;                                                                                   \
    extern const ci_integer_tiles ci_integer_tiles_##isa;                                                                   \
    static inline void ci_matmul_integer_##isa(const ci_run *run, const ci_matmul_integer *p)                               \
    {                                                                                                                       \
        ci_matmul_integer_tiled(run, p, &ci_integer_tiles_##isa);                                                           \
    }                                                                                                                       \
    static inline void ci_matmul_##isa(const ci_run *run, const ci_matmul *p) { ci_matmul_tiled(run, p, &ci_tiles_##isa); } \
    static inline void ci_conv_##isa(const ci_run *run, const ci_conv *p) { ci_conv_tiled(run, p, &ci_tiles_##isa); }       \
    void ci_winograd2_##isa(const ci_run *, const ci_conv *);                                                               \
    void ci_winograd4_##isa(const ci_run *, const ci_conv *);                                                               \
    void ci_lstm_##isa(const ci_run *, const ci_recurrent *);                                                               \
    void ci_gru_##isa(const ci_run *, const ci_recurrent *);                                                                \
    void ci_rnn_##isa(const ci_run *, const ci_recurrent *);
CI_DECLARE_KERNELS(generic)
CI_DECLARE_KERNELS(x86_64_v2)
CI_DECLARE_KERNELS(x86_64_v3)
CI_DECLARE_KERNELS(x86_64_v4)
CI_DECLARE_KERNELS(arm64)

#endif
