/* NonMaxSuppression: boxes in the order of their scores, without those that overlap a better one of their class. */
#include "../castiron.h"

typedef struct box {
    float y0, x0, y1, x1;
} box;

static float less(float a, float b) { return a < b ? a : b; }
static float more(float a, float b) { return a < b ? b : a; }

static box box_of(const float *at, bool centered)
{
    if (centered) return (box){at[1] - at[3] / 2, at[0] - at[2] / 2, at[1] + at[3] / 2, at[0] + at[2] / 2};
    return (box){less(at[0], at[2]), less(at[1], at[3]), more(at[0], at[2]), more(at[1], at[3])};
}

static float area(box b) { return (b.y1 - b.y0) * (b.x1 - b.x0); }

static bool overlaps(box a, box b, float most)
{
    float height = less(a.y1, b.y1) - more(a.y0, b.y0), width = less(a.x1, b.x1) - more(a.x0, b.x0);
    if (!(height > 0) || !(width > 0)) return false;
    float both = height * width, either = area(a) + area(b) - both;
    return either > 0 && both / either > most;
}

/* The best box that is neither taken nor dropped, the first of equals; -1: none is left. */
static int64_t best(const ci_nms *p, const float *scores, const uint8_t *gone)
{
    int64_t found = -1;
    for (int64_t i = 0; i < p->n; ++i)
        if (!gone[i] && (found < 0 || scores[i] > scores[found])) found = i;
    return found;
}

void ci_nms_run(const ci_run *run, const ci_nms *p)
{
    (void)run;
    const int64_t most = p->most ? *p->most : 0;
    int64_t count = 0;
    for (int64_t row = 0; row < p->batch * p->classes; ++row) {
        const int64_t batch = row / p->classes;
        const float *boxes = p->boxes + batch * p->n * 4, *scores = p->scores + row * p->n;
        for (int64_t i = 0; i < p->n; ++i) p->gone[i] = p->threshold && !(scores[i] > *p->threshold);
        for (int64_t taken = 0, at; taken < most && (at = best(p, scores, p->gone)) >= 0; ++taken) {
            int64_t *out = p->selected + 3 * count++;
            out[0] = batch, out[1] = row % p->classes, out[2] = at;
            const box kept = box_of(boxes + 4 * at, p->centered);
            for (int64_t i = 0; i < p->n; ++i)
                if (!p->gone[i] && overlaps(kept, box_of(boxes + 4 * i, p->centered), p->overlap ? *p->overlap : 0))
                    p->gone[i] = 1;
            p->gone[at] = 1;
        }
    }
    *p->count = count;
}
