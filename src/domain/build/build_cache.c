/* What a step gave is found again by a key over all that it came from: the team, what it began from, what it says, who it runs
 * as and where, the variables, and the content it copies. Parts are added with their lengths, so that no two
 * lists of parts are the same bytes. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "domain/build/build_internal.h"
#include "domain/sandbox/sandbox_layers.h"
#include "domain/sandbox/sandbox_plan.h"

enum { PRUNE_MAX = 256, MEGABYTE = 1024 * 1024 };
#define DAY_US (INT64_C(86400) * 1000000)

struct key_maker {
    EVP_MD_CTX *digest;
};

struct key_maker *key_new(const char *what)
{
    struct key_maker *maker = xcalloc(1, sizeof(*maker));

    maker->digest = EVP_MD_CTX_new();
    (void)EVP_DigestInit_ex(maker->digest, EVP_sha256(), NULL);
    key_add(maker, str_of(what));
    return maker;
}

void key_add(struct key_maker *maker, struct str part)
{
    char head[32];
    int len = snprintf(head, sizeof(head), "%zu:", part.len);

    (void)EVP_DigestUpdate(maker->digest, head, (size_t)len);
    if (part.len)
        (void)EVP_DigestUpdate(maker->digest, part.p, part.len);
}

static void key_add_int(struct key_maker *maker, int64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRId64, value);
    key_add(maker, str_of(text));
}

void key_add_words(struct key_maker *maker, const struct recipe_words *words)
{
    key_add_int(maker, (int64_t)words->count);
    for (size_t i = 0; i < words->count; i++)
        key_add(maker, words->items[i]);
}

void key_add_pairs(struct key_maker *maker, const struct pair *pairs, size_t count)
{
    key_add_int(maker, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        key_add(maker, pairs[i].name);
        key_add(maker, pairs[i].value);
    }
}

void key_take(struct key_maker *maker, char out[KEY_SIZE])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    (void)EVP_DigestFinal_ex(maker->digest, sum, &len);
    hex_encode(out, sum, len);
    EVP_MD_CTX_free(maker->digest);
    free(maker);
}

/* The body of an upload: names are the client's. */
static int add_upload(struct key_maker *maker, struct stage *stage, struct str hash, struct str of,
                      struct error *err)
{
    const struct build *build = stage->build;
    struct str body = STR("");
    char *path;

    if (hash.len &&
        files_path(build->all, build->row.team_id, hash, &stage->arena, &body, &path, err) < 0)
        return err->code == ERROR_NOT_FOUND
                   ? error_set(err, ERROR_INVALID, "the files of '%.*s' were not uploaded",
                               STR_ARG(of))
                   : -1;
    key_add(maker, body);
    return 0;
}

/* What another stage gave (its layers: it may have been made anew from the same), or what an image is now, whatever it was when
 * it was copied from. */
static int add_root(struct key_maker *maker, struct stage *stage, struct str from_stage,
                    struct str from_image, struct error *err)
{
    struct str digest = STR("");
    ptrdiff_t at =
        from_stage.len ? recipe_find_stage(&stage->build->recipe, from_stage, stage->index) : -1;

    key_add(maker, at >= 0 ? stage->build->stages[at].layers : STR(""));
    if (from_image.len && image_digest(stage, from_image, &digest, err) < 0)
        return -1;
    key_add(maker, digest);
    return 0;
}

static int add_source(struct key_maker *maker, struct stage *stage, const struct recipe_step *step,
                      struct error *err)
{
    struct str of = step->args.count ? step->args.items[0] : STR("");

    if (add_upload(maker, stage, step->files_hash, of, err) < 0 ||
        add_root(maker, stage, step->from_stage, step->from_image, err) < 0)
        return -1;
    key_add(maker, step->url);
    key_add(maker, step->checksum);
    return 0;
}

static int add_bind(struct key_maker *maker, struct stage *stage, const struct recipe_mount *mount,
                    struct error *err)
{
    bool is_stage =
        mount->from.len && recipe_find_stage(&stage->build->recipe, mount->from, stage->index) >= 0;

    if (!mount->from.len)
        return add_upload(maker, stage, mount->id, mount->target, err);
    return add_root(maker, stage, is_stage ? mount->from : STR_NONE,
                    is_stage ? STR_NONE : mount->from, err);
}

/* Not the values of secrets: a new password does not make another result. */
static int add_mounts(struct key_maker *maker, struct stage *stage, const struct recipe_step *step,
                      struct error *err)
{
    key_add_int(maker, (int64_t)step->mount_count);
    for (size_t i = 0; i < step->mount_count; i++) {
        const struct recipe_mount *mount = &step->mounts[i];

        key_add_int(maker, mount->kind);
        key_add(maker, mount->target);
        key_add(maker, mount->id);
        key_add(maker, mount->source);
        if (mount->kind == RECIPE_MOUNT_BIND && add_bind(maker, stage, mount, err) < 0)
            return -1;
    }
    return 0;
}

int key_of_step(struct stage *stage, const struct recipe_step *step, char out[KEY_SIZE],
                struct error *err)
{
    struct key_maker *maker = key_new("step");
    int r;

    key_add(maker, stage->build->row.team_id);
    key_add(maker, str_of(stage->key));
    key_add_int(maker, step->kind);
    key_add_words(maker, &step->args);
    key_add_words(maker, &step->exec);
    key_add_words(maker, step->shell.count ? &step->shell : &stage->build->recipe.shell);
    key_add_pairs(maker, step->env.items, step->env.count);
    key_add_words(maker, &step->excludes);
    key_add_int(maker, step->extract * 2 + step->literal);
    key_add_int(maker, stage->build->recipe.docker);
    key_add(maker, stage->user);
    key_add(maker, stage->workdir);
    key_add_pairs(maker, stage->env, stage->env_count);
    r = add_mounts(maker, stage, step, err);
    if (r == 0)
        r = add_source(maker, stage, step, err);
    key_take(maker, out);
    return r;
}

/* ---- the rows ---- */

/* All of them; what the operator installed is not looked at. */
static int check_layers(struct build *build, const struct box_spec *spec, struct error *err)
{
    struct engine *engine = build->all->config.engine;

    for (uint32_t i = 0; i < spec->layer_count; i++) {
        struct str name = str_of(spec->layers[i]);

        if ((str_starts(name, STR("snap")) || str_starts(name, STR("tree"))) &&
            engine->ops->layer_check(engine, spec->layers[i], err) < 0)
            return -1;
    }
    return 0;
}

static void forget(struct builds *all, const char *key)
{
    struct error err = {0};
    bool freed = false;

    if (store_cache_delete(all->config.store, str_of(key), &freed, &err) < 0)
        log_warn("build", "forget what a step gave: %s", err.message);
    if (freed)
        layers_collect_soon(all->config.sandboxes);
}

int cache_find(struct build *build, const char *key, struct arena *arena, struct store_cached *out,
               struct box_spec *pin, bool *out_found, struct error *err)
{
    struct error why = {0};

    if (store_cache_find(build->all->config.store, str_of(key), clock_wall_us(), arena, out,
                         out_found, err) < 0)
        return -1;
    if (!*out_found)
        return 0;
    *pin = (struct box_spec){0};
    if (spec_set_layers(out->layers, pin, err) < 0)
        return -1;
    layers_pin(build->all->config.sandboxes, pin);
    if (check_layers(build, pin, &why) == 0)
        return 0;
    layers_unpin(build->all->config.sandboxes, pin);
    *out_found = false;
    if (why.code != ERROR_NOT_FOUND && why.code != ERROR_INTERNAL) {
        *err = why;
        return -1;
    }
    log_warn("build", "layers=%.*s: %s; made again", STR_ARG(out->layers), why.message);
    forget(build->all, key);
    return 0;
}

int cache_put(struct build *build, const char *key, struct str layers, struct str note,
              int64_t bytes, struct error *err)
{
    int64_t now_us = clock_wall_us();

    return store_cache_put(build->all->config.store,
                           &(struct store_cached){.key = str_of(key),
                                                  .team_id = build->row.team_id,
                                                  .layers = layers,
                                                  .note = note.p ? note : STR("{}"),
                                                  .bytes = bytes,
                                                  .made_at_us = now_us,
                                                  .used_at_us = now_us},
                           err);
}

void cache_prune(struct builds *all)
{
    auto_arena struct arena arena = {0};
    struct error err = {0};
    struct str *keys;
    size_t count = 0;

    if (store_cache_old(all->config.store, clock_wall_us() - all->config.cache_days * DAY_US,
                        all->config.cache_mb * MEGABYTE, PRUNE_MAX, &arena, &keys, &count,
                        &err) < 0) {
        log_warn("build", "find what is old: %s", err.message);
        return;
    }
    for (size_t i = 0; i < count; i++)
        forget(all, keys[i].p);
    if (count)
        log_info("build", "forgot %zu results of steps", count);
}
