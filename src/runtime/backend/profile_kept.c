/* Profiles that were read, checked and filled in, kept beside the record that they were made of. The record is looked up
 * each time, because another process on the same store may have changed it; only when it is the same to the byte is the
 * work not done again. Nobody changes a kept profile's tree: those who have it share it.
 *
 * Only of backends that are configured: those stay, with what they can do, as long as the runtime. A runner of the team may
 * have taken the name since. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "runtime/backend/backend_internal.h"
#include "runtime/backend/profile_parts.h"

enum { KEPT_MAX = 256, RECORD_MAX = 4096 /* bytes of a record that is kept */ };

struct kept {
    struct profile_source source; /* its texts are our own */
    struct profile profile;       /* its tree is our own reference, its texts are our own */
};

struct profiles_kept {
    pthread_mutex_t lock;
    struct map all; /* team and name -> struct kept */
};

void profiles_kept_open(struct runtime *runtime)
{
    runtime->kept = xcalloc(1, sizeof(*runtime->kept));
    (void)pthread_mutex_init(&runtime->kept->lock, NULL);
    map_init(&runtime->kept->all);
}

static void kept_free(struct kept *kept)
{
    if (!kept)
        return;
    json_decref(kept->profile.tree);
    free((char *)(uintptr_t)kept->source.text.p);
    free((char *)(uintptr_t)kept->source.provider.p);
    free((char *)(uintptr_t)kept->profile.image.p);
    free((char *)(uintptr_t)kept->profile.workspace_root.p);
    free((char *)(uintptr_t)kept->profile.settings.p);
    free(kept);
}

static void free_all(struct map *all)
{
    struct map_entry *entry;

    map_for_each (all, entry)
        kept_free(entry->value);
    map_done(all);
}

void profiles_kept_close(struct runtime *runtime)
{
    if (!runtime->kept)
        return;
    free_all(&runtime->kept->all);
    (void)pthread_mutex_destroy(&runtime->kept->lock);
    free(runtime->kept);
    runtime->kept = NULL;
}

static struct str key_of(const struct runtime_caller *caller, struct str name, struct arena *arena)
{
    return str_of(arena_printf(arena, "%.*s\n%.*s", STR_ARG(caller->team_id), STR_ARG(name)));
}

static bool same_source(const struct profile_source *a, const struct profile_source *b)
{
    return a->of_file == b->of_file && a->built_in == b->built_in && !a->text.p == !b->text.p &&
           str_eq(a->text, b->text);
}

/* With the lock held: the name still leads to that backend. */
static bool same_backend(struct runtime *runtime, const struct runtime_caller *caller,
                         const struct kept *kept)
{
    struct backend *now = NULL;
    struct error ignored = {0};

    return backend_peek(runtime, caller, kept->source.provider, &now, &ignored) == 0 &&
           now == kept->profile.backend;
}

bool profile_kept_get(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct profile_source *source, struct arena *arena, struct profile *out)
{
    struct profiles_kept *all = runtime->kept;
    struct str name = out->name, key = key_of(caller, name, arena);
    const struct kept *kept;
    bool same;

    (void)pthread_mutex_lock(&all->lock);
    kept = map_get(&all->all, key);
    same = kept && same_source(&kept->source, source) && same_backend(runtime, caller, kept);
    if (same) {
        *out = kept->profile;
        out->name = name;
        out->image = arena_str(arena, kept->profile.image);
        out->workspace_root = arena_str(arena, kept->profile.workspace_root);
        out->settings = arena_str(arena, kept->profile.settings);
        (void)json_incref(out->tree);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return same;
}

static struct str own(struct str text)
{
    return text.p ? str_n(str_dup(text), text.len) : STR_NONE;
}

void profile_kept_put(struct runtime *runtime, const struct runtime_caller *caller,
                      const struct profile_source *source, const struct profile *profile)
{
    auto_arena struct arena arena = {0};
    struct profiles_kept *all = runtime->kept;
    struct str key = key_of(caller, profile->name, &arena);
    struct kept *kept;

    if (!profile->backend->settings || profile->backend->origin || source->text.len > RECORD_MAX)
        return;
    kept = xcalloc(1, sizeof(*kept));
    *kept = (struct kept){.source = *source, .profile = *profile};
    kept->source.text = own(source->text);
    kept->source.provider = own(source->provider);
    kept->profile.name = STR_NONE;
    kept->profile.image = own(profile->image);
    kept->profile.workspace_root = own(profile->workspace_root);
    kept->profile.settings = own(profile->settings);
    (void)json_incref(kept->profile.tree);
    (void)pthread_mutex_lock(&all->lock);
    if (all->all.count >= KEPT_MAX) {
        free_all(&all->all);
        map_init(&all->all);
    }
    kept_free(map_put(&all->all, key, kept));
    (void)pthread_mutex_unlock(&all->lock);
}
