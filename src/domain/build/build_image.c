/* An image's layers unpacked into one tree, by a box without a network. */

#include "base/cleanup.h"
#include "domain/build/build_internal.h"
#include "protocol/json/json_shape.h"
#include "store/platform/store_event.h"

enum { LAYERS_MAX = 512 };

#define PROVISION_VERSION "2" /* another one: images are unpacked again */

/* ---- what is kept with a tree ---- */

static struct str note_of(const struct build_image *image, struct arena *arena)
{
    auto_json json_t *note = json_object();
    auto_free char *text = NULL;
    json_t *env = json_array();

    for (size_t i = 0; i < image->env_count; i++)
        (void)json_array_append_new(env, json_str(image->env[i]));
    (void)json_object_set_new(note, "env", env);
    (void)json_object_set_new(note, "user", json_str(image->user.p ? image->user : STR("")));
    (void)json_object_set_new(note, "workdir",
                              json_str(image->workdir.p ? image->workdir : STR("")));
    text = json_text(note);
    return arena_str(arena, str_of(text));
}

static int read_note(struct stage *stage, struct str text, struct image_tree *out,
                     struct error *err)
{
    auto_json json_t *note = NULL;
    struct pair *pairs;
    const json_t *env;
    size_t count;

    if (json_parse(text, &note, err) < 0)
        return -1;
    env = json_object_get(note, "env");
    count = json_array_size(env);
    pairs = arena_alloc(&stage->arena, (count + 1) * sizeof(*pairs));
    for (size_t i = 0; i < count; i++) {
        struct str rest = str_of(json_string_value(json_array_get(env, i)));

        pairs[i].name = arena_str(&stage->arena, str_split(&rest, '='));
        pairs[i].value = arena_str(&stage->arena, rest);
    }
    out->env = (struct recipe_pairs){pairs, count};
    out->user = arena_str(&stage->arena, json_get_str(note, "user"));
    out->workdir = arena_str(&stage->arena, json_get_str(note, "workdir"));
    return 0;
}

/* ---- filling a tree ---- */

static void on_line(void *arg, struct str line)
{
    struct build *build = arg;

    log_line(&build->log, STORE_LEVEL_INFO, BASE_STEP, "[base] %.*s", STR_ARG(line));
}

static int unpack_layers(struct stage *stage, struct build_box *box,
                         const struct build_image *image, struct error *err)
{
    const char **argv = arena_alloc(&stage->arena, (LAYERS_MAX + 10) * sizeof(*argv));
    const struct build *build = stage->build;
    int64_t bytes_max =
        (build->all->config.disk_mb > build->row.disk_mb ? build->all->config.disk_mb
                                                         : build->row.disk_mb) *
        1024 * 1024;
    size_t count = 0;

    argv[count++] = "/run/feed/unpack";
    argv[count++] = "apply";
    argv[count++] = "--into";
    argv[count++] = "/run/layer";
    argv[count++] = "--max-bytes";
    argv[count++] = arena_printf(&stage->arena, "%lld", (long long)bytes_max);
    for (size_t i = 0; i < image->layer_count; i++)
        argv[count++] = arena_printf(&stage->arena, "/run/feed/%zu", i);
    if (fill_run(stage, box, argv, "unpack the image", err) < 0)
        return -1;
    return fill_provision(stage, box, err);
}

static int fill_image(struct stage *stage, const struct build_image_source *source,
                      const struct build_image *image, const char *name, struct error *err)
{
    const struct build_images *images = stage->build->all->config.images;
    const struct build_watch watch = {stage->build, on_line, build_stopped, build_grow};
    struct build_box_wants wants = {.fill = name, .feed = true};
    struct build_box box = {0};
    char dir[400];
    int r;

    if (fill_base(stage, &wants.layers, err) < 0 || build_box_prepare(&box, stage->build, err) < 0)
        return -1;
    build_box_feed_dir(&box, dir, sizeof(dir));
    r = images->fetch(images->arg, source, image, dir, &watch, err);
    if (r == 0)
        r = build_box_open(&box, stage->build, &wants, err);
    if (r == 0)
        r = unpack_layers(stage, &box, image, err);
    build_box_close(&box);
    return r;
}

static int make_tree(struct stage *stage, const struct build_image_source *source,
                     const struct build_image *image, const char *key, struct image_tree *out,
                     struct error *err)
{
    char name[LAYER_NAME_SIZE];
    int64_t bytes = 0;

    if (image->layer_count > LAYERS_MAX)
        return error_set(err, ERROR_INVALID, "the image has %zu layers, at most %d",
                         image->layer_count, LAYERS_MAX);
    if (layer_new(stage->build, "tree", name, err) < 0)
        return -1;
    if (fill_image(stage, source, image, name, err) < 0 ||
        fill_seal(stage, name, &bytes, err) < 0 ||
        cache_put(stage->build, key, str_of(name), note_of(image, &stage->arena), bytes, err) < 0) {
        layer_drop(stage->build, name);
        return -1;
    }
    if (fill_take(stage, name, &out->layers, err) < 0)
        return -1;
    return read_note(stage, note_of(image, &stage->arena), out, err);
}

/* Whoever writes FROM and the name of a template has an image looked for that nobody has. */
static int not_resolved(struct stage *stage, const struct build_image_source *source,
                        struct error *err)
{
    struct store_template template;
    struct str name = source->reference;
    struct error ignored;

    if (!name.p || store_template_find(stage->build->all->config.store, source->team_id, name,
                                       &stage->arena, &template, &ignored) < 0)
        return -1;
    return error_prefix(err,
                        "'%.*s' is a template here: that is FROM template://%.*s in a Dockerfile, "
                        "fromTemplate in a recipe",
                        STR_ARG(name), STR_ARG(name));
}

int image_digest(struct stage *stage, struct str reference, struct str *out, struct error *err)
{
    const struct build_images *images = stage->build->all->config.images;
    const struct build_watch watch = {stage->build, on_line, build_stopped, build_grow};
    const struct build_image_source source = {.team_id = stage->build->row.team_id,
                                              .reference = reference};
    struct build_image image = {0};

    if (!images)
        return error_set(err, ERROR_UNSUPPORTED, "this server knows no registries of images");
    if (images->resolve(images->arg, &source, &watch, &stage->arena, &image, err) < 0)
        return not_resolved(stage, &source, err);
    *out = image.digest;
    return 0;
}

int image_tree(struct stage *stage, const struct build_image_source *source, struct image_tree *out,
               struct error *err)
{
    const struct build_images *images = stage->build->all->config.images;
    const struct build_watch watch = {stage->build, on_line, build_stopped, build_grow};
    struct build_image image = {0};
    struct store_cached cached;
    struct key_maker *maker;
    bool found = false;
    struct box_spec pin;
    char key[KEY_SIZE];

    if (!images)
        return error_set(err, ERROR_UNSUPPORTED, "this server knows no registries of images");
    if (images->resolve(images->arg, source, &watch, &stage->arena, &image, err) < 0)
        return not_resolved(stage, source, err);
    out->digest = image.digest;
    maker = key_new("image " PROVISION_VERSION);
    key_add(maker, stage->build->row.team_id);
    key_add(maker, image.digest);
    key_take(maker, key);
    if (!stage->build->recipe.force &&
        cache_find(stage->build, key, &stage->arena, &cached, &pin, &found, err) < 0)
        return -1;
    log_line(&stage->build->log, STORE_LEVEL_INFO, BASE_STEP, "%s[base] FROM %.*s [%.*s]",
             found ? "CACHED " : "", STR_ARG(image.name), STR_ARG(image.digest));
    if (!found)
        return make_tree(stage, source, &image, key, out, err);
    out->layers = cached.layers;
    stage_keep(stage, &pin);
    return read_note(stage, cached.note, out, err);
}
