/* Creates that may be repeated. The store has which sandbox a key made (written with its row, so a
 * crash cannot separate the two); a set in memory has the keys whose create is under way, so that a
 * repetition that comes meanwhile waits for the first one instead of making a second sandbox. */
#include <inttypes.h>
#include <stdlib.h>

#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_plan.h"
#include "store/platform/store_idempotency.h"

enum { KEY_MAX = 255 };

void idempotency_init(struct sandboxes *all)
{
    (void)pthread_mutex_init(&all->idempotency.lock, NULL);
    cond_init(&all->idempotency.ended);
    map_init(&all->idempotency.under_way);
}

void idempotency_done(struct sandboxes *all)
{
    map_done(&all->idempotency.under_way);
    (void)pthread_mutex_destroy(&all->idempotency.lock);
    (void)pthread_cond_destroy(&all->idempotency.ended);
}

static void enter(struct sandboxes *all, struct str name)
{
    struct idempotency *idempotency = &all->idempotency;

    (void)pthread_mutex_lock(&idempotency->lock);
    while (map_get(&idempotency->under_way, name))
        (void)pthread_cond_wait(&idempotency->ended, &idempotency->lock);
    (void)map_put(&idempotency->under_way, name, idempotency);
    (void)pthread_mutex_unlock(&idempotency->lock);
}

static void leave(struct sandboxes *all, struct str name)
{
    struct idempotency *idempotency = &all->idempotency;

    (void)pthread_mutex_lock(&idempotency->lock);
    (void)map_remove(&idempotency->under_way, name);
    (void)pthread_cond_broadcast(&idempotency->ended);
    (void)pthread_mutex_unlock(&idempotency->lock);
}

static struct str hash_of(struct str text, struct arena *arena)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.p[i]) * UINT64_C(0x100000001b3);
    return str_of(arena_printf(arena, "%016" PRIx64, hash));
}

/* 1 = it was made before, 0 = not, -1 = failed. */
static int find(struct sandboxes *all, const struct sandbox_new *request, struct str hash,
                struct arena *arena, struct sandbox_view *out, struct error *err)
{
    struct str id, known_hash = STR_NONE;

    if (store_idempotency_find(all->store, request->team_id, request->idempotency_key, arena, &id,
                               &known_hash, err) < 0)
        return -1;
    if (!id.p)
        return 0;
    if (!str_eq(known_hash, hash))
        return error_set(err, ERROR_INVALID,
                         "this Idempotency-Key was used for a different request");
    if (sandbox_get(all, request->team_id, id, arena, out, err) == 0)
        return 1;
    if (err->code != ERROR_NOT_FOUND)
        return -1;
    return error_set(err, ERROR_CONFLICT,
                     "the sandbox '%.*s' that was made with this Idempotency-Key has ended",
                     STR_ARG(id));
}

int create_once(struct sandboxes *all, const struct sandbox_new *request, struct arena *arena,
                struct sandbox_view *out, struct error *err)
{
    struct str hash = hash_of(request->request_text, arena), name;
    int found;

    if (request->idempotency_key.len > KEY_MAX ||
        memchr(request->idempotency_key.p, '\0', request->idempotency_key.len))
        return error_set(err, ERROR_INVALID, "Idempotency-Key has at most %d characters", KEY_MAX);
    name = str_of(arena_printf(arena, "%.*s/%.*s", STR_ARG(request->team_id),
                               STR_ARG(request->idempotency_key)));
    enter(all, name);
    found = find(all, request, hash, arena, out, err);
    if (found == 0)
        found = create_new(all, request, hash, arena, out, err);
    leave(all, name);
    return found < 0 ? -1 : 0;
}
