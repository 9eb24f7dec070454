/* The warden's table of engines. It is filled before the first channel is served and never changes after that. */
#include "host/warden/warden_internal.h"

#include <stdlib.h>

void warden_engine_add(struct warden *warden, struct box_engine *engine)
{
    if (warden->engine_count == WARDEN_ENGINES_MAX || warden_engine(warden, engine->kind))
        abort();
    warden->engines[warden->engine_count++] = engine;
}

struct box_engine *warden_engine(const struct warden *warden, uint32_t kind)
{
    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i]->kind == kind)
            return warden->engines[i];
    return NULL;
}

struct box_engine *warden_engine_of(const struct warden *warden, const char *id)
{
    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i]->ops->has(warden->engines[i], id))
            return warden->engines[i];
    return warden->engines[0];
}

size_t warden_list(const struct warden *warden, size_t offset, struct box_info *out, size_t max)
{
    size_t found = 0;

    for (size_t i = 0; i < warden->engine_count && found < max; i++) {
        struct box_engine *engine = warden->engines[i];
        size_t count = engine->ops->count(engine, false);

        if (offset < count)
            found += engine->ops->list(engine, offset, out + found, max - found);
        offset -= offset < count ? offset : count;
    }
    return found;
}

bool warden_runs_boxes(const struct warden *warden)
{
    for (size_t i = 0; i < warden->engine_count; i++)
        if (warden->engines[i]->ops->count(warden->engines[i], true) > 0)
            return true;
    return false;
}

size_t warden_end_all(const struct warden *warden, bool dead_only, struct error *err)
{
    size_t left = 0;

    for (size_t i = 0; i < warden->engine_count; i++) {
        struct error why = {0};
        size_t count = warden->engines[i]->ops->end_all(warden->engines[i], dead_only, &why);

        if (count && left == 0)
            *err = why;
        left += count;
    }
    return left;
}
