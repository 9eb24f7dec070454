/* Every object is read by its table; a member that the table does not have is refused by its name, so that what we do
 * not do is never silently left out. */
#include "domain/build/recipe.h"

#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env_name.h"
#include "protocol/json/json_shape.h"

/* ---- pieces ---- */

static int check_members(const json_t *object, const struct json_field *fields, struct error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        const struct json_field *field = fields;

        while (field->name && strcmp(field->name, key) != 0)
            field++;
        if (!field->name)
            return error_set(err, ERROR_INVALID, "unknown member '%.60s'", key);
        if (json_string_length(value) > RECIPE_TEXT_MAX)
            return error_set(err, ERROR_INVALID, "'%.60s' is longer than %d bytes", key,
                             RECIPE_TEXT_MAX);
    }
    return 0;
}

static int read_object(const struct json_field *fields, const json_t *object, const char *what,
                       void *out, struct error *err)
{
    if (!json_is_object(object))
        return error_set(err, ERROR_INVALID, "%s must be an object", what);
    if (check_members(object, fields, err) < 0)
        return -1;
    return json_read(fields, object, out, err);
}

static struct str text_of(const json_t *value)
{
    return str_n(json_string_value(value), json_string_length(value));
}

static int read_words(const json_t *array, const char *what, struct arena *arena,
                      struct recipe_words *out, struct error *err)
{
    size_t count = json_array_size(array);
    struct str *items;

    *out = (struct recipe_words){0};
    if (!array || json_is_null(array))
        return 0;
    if (!json_is_array(array) || count > RECIPE_ARGS_MAX)
        return error_set(err, ERROR_INVALID, "'%s' must be at most %d strings", what,
                         RECIPE_ARGS_MAX);
    items = arena_alloc(arena, (count + 1) * sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(array, i);

        if (!json_is_string(item) || json_string_length(item) > RECIPE_TEXT_MAX)
            return error_set(err, ERROR_INVALID, "'%s' must be strings of at most %d bytes", what,
                             RECIPE_TEXT_MAX);
        items[i] = text_of(item);
    }
    *out = (struct recipe_words){items, count};
    return 0;
}

static int read_pairs(const json_t *object, const char *what, struct arena *arena,
                      struct recipe_pairs *out, struct error *err)
{
    struct pair *items;
    const char *key;
    size_t count = 0;
    json_t *value;

    *out = (struct recipe_pairs){0};
    if (!object || json_is_null(object))
        return 0;
    if (!json_is_object(object) || json_object_size(object) > RECIPE_PAIRS_MAX)
        return error_set(err, ERROR_INVALID, "'%s' must be an object of at most %d strings", what,
                         RECIPE_PAIRS_MAX);
    items = arena_alloc(arena, (json_object_size(object) + 1) * sizeof(*items));
    json_object_foreach ((json_t *)(uintptr_t)object, key, value) {
        if (env_name_check(what, str_of(key), err) < 0)
            return -1;
        if (!json_is_string(value) || json_string_length(value) > RECIPE_TEXT_MAX)
            return error_set(err, ERROR_INVALID, "'%s' has a bad member '%.60s'", what, key);
        items[count++] = (struct pair){str_of(key), text_of(value)};
    }
    *out = (struct recipe_pairs){items, count};
    return 0;
}

/* ---- steps ---- */

struct mount_body {
    struct str type, target, id, from, source;
    bool readonly, required;
};

static const struct json_field mount_fields[] = {
    JSON_FIELD(struct mount_body, type, "type", JSON_REQUIRED),
    JSON_FIELD(struct mount_body, target, "target", 0),
    JSON_FIELD(struct mount_body, id, "id", 0),
    JSON_FIELD(struct mount_body, from, "from", 0),
    JSON_FIELD(struct mount_body, source, "source", 0),
    JSON_FIELD(struct mount_body, readonly, "readonly", 0),
    JSON_FIELD(struct mount_body, required, "required", 0),
    JSON_END,
};

static int read_mount(const json_t *object, struct recipe_mount *out, struct error *err)
{
    struct mount_body body = {0};

    if (read_object(mount_fields, object, "a mount", &body, err) < 0)
        return -1;
    *out = (struct recipe_mount){.target = body.target,
                                 .id = body.id,
                                 .from = body.from,
                                 .source = body.source,
                                 .readonly = body.readonly,
                                 .required = body.required};
    if (str_is(body.type, "cache"))
        out->kind = RECIPE_MOUNT_CACHE;
    else if (str_is(body.type, "secret"))
        out->kind = RECIPE_MOUNT_SECRET;
    else if (str_is(body.type, "bind"))
        out->kind = RECIPE_MOUNT_BIND;
    else
        return error_set(err, ERROR_INVALID,
                         "a mount is of type cache, secret or bind, not '%.40s'", body.type.p);
    if (out->kind == RECIPE_MOUNT_SECRET ? !out->id.len : !out->target.len)
        return error_set(err, ERROR_INVALID, "a mount needs '%s'",
                         out->kind == RECIPE_MOUNT_SECRET ? "id" : "target");
    return 0;
}

static int read_mounts(const json_t *array, struct arena *arena, struct recipe_step *out,
                       struct error *err)
{
    size_t count = json_array_size(array);
    struct recipe_mount *mounts;

    if (!array || json_is_null(array))
        return 0;
    if (!json_is_array(array) || count > RECIPE_MOUNTS_MAX)
        return error_set(err, ERROR_INVALID, "'mounts' must be at most %d", RECIPE_MOUNTS_MAX);
    mounts = arena_alloc(arena, (count + 1) * sizeof(*mounts));
    for (size_t i = 0; i < count; i++)
        if (read_mount(json_array_get(array, i), &mounts[i], err) < 0)
            return -1;
    out->mounts = mounts;
    out->mount_count = count;
    return 0;
}

struct step_body {
    struct str type, files_hash, from_stage, from_image, url, checksum, text;
    json_t *args, *exec, *shell, *env, *mounts, *excludes;
    json_t *gzip, *force_upload, *resolve_symlinks; /* what the client did already */
    bool force, extract, link, literal;
    int64_t line;
};

static const struct json_field step_fields[] = {
    JSON_FIELD(struct step_body, type, "type", JSON_REQUIRED),
    JSON_FIELD(struct step_body, args, "args", 0),
    JSON_FIELD(struct step_body, files_hash, "filesHash", 0),
    JSON_FIELD(struct step_body, force, "force", 0),
    JSON_FIELD(struct step_body, force_upload, "forceUpload", 0),
    JSON_FIELD(struct step_body, resolve_symlinks, "resolveSymlinks", 0),
    JSON_FIELD(struct step_body, gzip, "gzip", 0),
    JSON_FIELD(struct step_body, exec, "exec", 0),
    JSON_FIELD(struct step_body, shell, "shell", 0),
    JSON_FIELD(struct step_body, env, "env", 0),
    JSON_FIELD(struct step_body, mounts, "mounts", 0),
    JSON_FIELD(struct step_body, from_stage, "fromStage", 0),
    JSON_FIELD(struct step_body, from_image, "fromImage", 0),
    JSON_FIELD(struct step_body, url, "url", 0),
    JSON_FIELD(struct step_body, checksum, "checksum", 0),
    JSON_FIELD(struct step_body, excludes, "excludes", 0),
    JSON_FIELD(struct step_body, extract, "extract", 0),
    JSON_FIELD(struct step_body, link, "link", 0),
    JSON_FIELD(struct step_body, literal, "literal", 0),
    JSON_FIELD(struct step_body, line, "line", 0),
    JSON_FIELD(struct step_body, text, "text", 0),
    JSON_END,
};

static const struct {
    const char *name;
    enum recipe_step_kind kind;
    size_t args_min, args_max;
} step_kinds[] = {
    {"RUN", RECIPE_RUN, 0, 2},   {"COPY", RECIPE_COPY, 2, 4},       {"ENV", RECIPE_ENV, 2, 512},
    {"ARG", RECIPE_ENV, 2, 512}, {"WORKDIR", RECIPE_WORKDIR, 1, 1}, {"USER", RECIPE_USER, 1, 2},
};

static int check_run(const struct recipe_step *step, struct error *err)
{
    if (step->exec.count ? step->args.count != 0 : step->args.count < 1)
        return error_set(err, ERROR_INVALID, "RUN needs a command, in 'args' or in 'exec'");
    return 0;
}

static bool checksum_ok(struct str text)
{
    struct str hex = str_skip(text, sizeof("sha256:") - 1);

    for (size_t i = 0; i < hex.len; i++)
        if (!isxdigit((unsigned char)hex.p[i]))
            return false;
    return str_starts(text, STR("sha256:")) && hex.len == 64;
}

static int check_copy(const struct recipe_step *step, struct error *err)
{
    int sources =
        !!step->files_hash.len + !!step->from_stage.len + !!step->from_image.len + !!step->url.len;

    if (sources != 1)
        return error_set(err, ERROR_INVALID,
                         "COPY needs one of 'filesHash', 'fromStage', 'fromImage' and 'url'");
    if (!step->args.items[0].len || !step->args.items[1].len)
        return error_set(err, ERROR_INVALID, "COPY needs a source and a destination");
    if (step->checksum.len && !checksum_ok(step->checksum))
        return error_set(err, ERROR_INVALID, "a checksum is 'sha256:' and 64 hex digits");
    return 0;
}

static int check_env(const struct recipe_step *step, struct error *err)
{
    if (step->args.count % 2)
        return error_set(err, ERROR_INVALID, "ENV needs a name and a value each");
    for (size_t i = 0; i < step->args.count; i += 2)
        if (env_name_check("ENV", step->args.items[i], err) < 0)
            return -1;
    return 0;
}

static int check_step(const struct recipe_step *step, struct error *err)
{
    switch (step->kind) {
    case RECIPE_RUN:
        return check_run(step, err);
    case RECIPE_COPY:
        return check_copy(step, err);
    case RECIPE_ENV:
        return check_env(step, err);
    case RECIPE_WORKDIR:
    case RECIPE_USER:
        break;
    }
    return step->args.items[0].len ? 0 : error_set(err, ERROR_INVALID, "the argument is empty");
}

/* "RUN a b": how the log shows it. */
static struct str show(const char *type, const struct recipe_step *step, struct arena *arena)
{
    const struct recipe_words *words = step->exec.count ? &step->exec : &step->args;
    auto_buf struct buf text = {0};

    buf_init(&text, 4096);
    (void)buf_printf(&text, "%s", type);
    for (size_t i = 0; i < words->count; i++)
        if (words->items[i].len)
            (void)buf_printf(&text, " %.*s",
                             (int)(words->items[i].len < 1000 ? words->items[i].len : 1000),
                             words->items[i].p);
    return arena_str(arena, buf_str(&text));
}

static int set_kind(struct str type, struct recipe_step *out, const char **out_name,
                    struct error *err)
{
    for (size_t i = 0; i < sizeof(step_kinds) / sizeof(step_kinds[0]); i++) {
        if (!str_eq_nocase(type, str_of(step_kinds[i].name)))
            continue;
        out->kind = step_kinds[i].kind;
        *out_name = step_kinds[i].name;
        if (out->args.count < step_kinds[i].args_min || out->args.count > step_kinds[i].args_max)
            return error_set(err, ERROR_INVALID, "%s has %zu arguments", step_kinds[i].name,
                             out->args.count);
        return 0;
    }
    return error_set(err, ERROR_INVALID, "command type '%.40s' is not implemented", type.p);
}

static int read_step(const json_t *object, struct arena *arena, struct recipe_step *out,
                     struct error *err)
{
    struct step_body body = {0};
    const char *type = "";

    if (read_object(step_fields, object, "it", &body, err) < 0)
        return -1;
    out->files_hash = body.files_hash;
    out->from_stage = body.from_stage;
    out->from_image = body.from_image;
    out->url = body.url;
    out->checksum = body.checksum;
    out->force = body.force;
    out->extract = body.extract;
    out->link = body.link;
    out->literal = body.literal;
    out->line = body.line;
    if (read_words(body.args, "args", arena, &out->args, err) < 0 ||
        read_words(body.exec, "exec", arena, &out->exec, err) < 0 ||
        read_words(body.shell, "shell", arena, &out->shell, err) < 0 ||
        read_words(body.excludes, "excludes", arena, &out->excludes, err) < 0 ||
        read_pairs(body.env, "env", arena, &out->env, err) < 0 ||
        read_mounts(body.mounts, arena, out, err) < 0 || set_kind(body.type, out, &type, err) < 0 ||
        check_step(out, err) < 0)
        return -1;
    out->text = body.text.len ? body.text : show(type, out, arena);
    return 0;
}

static int read_steps(const json_t *array, struct arena *arena, struct recipe *recipe,
                      struct recipe_stage *out, struct error *err)
{
    size_t count = json_array_size(array);
    struct recipe_step *steps;

    if (!array || json_is_null(array))
        return 0;
    if (!json_is_array(array))
        return error_set(err, ERROR_INVALID, "'steps' must be an array");
    if (count > RECIPE_STEPS_MAX - recipe->step_count)
        return error_set(err, ERROR_INVALID, "more than %d steps", RECIPE_STEPS_MAX);
    steps = arena_alloc(arena, (count + 1) * sizeof(*steps));
    for (size_t i = 0; i < count; i++) {
        steps[i].number = ++recipe->step_count;
        if (read_step(json_array_get(array, i), arena, &steps[i], err) < 0)
            return error_prefix(err, "step %zu", steps[i].number);
    }
    out->steps = steps;
    out->step_count = count;
    return 0;
}

/* ---- stages ---- */

struct registry_body {
    struct str type, username, password;
    struct str service_account;            /* of Google's */
    struct str key_id, access_key, region; /* of Amazon's */
};

static const struct json_field registry_fields[] = {
    JSON_FIELD(struct registry_body, type, "type", JSON_REQUIRED),
    JSON_FIELD(struct registry_body, username, "username", 0),
    JSON_FIELD(struct registry_body, password, "password", 0),
    JSON_FIELD(struct registry_body, service_account, "serviceAccountJson", 0),
    JSON_FIELD(struct registry_body, key_id, "awsAccessKeyId", 0),
    JSON_FIELD(struct registry_body, access_key, "awsSecretAccessKey", 0),
    JSON_FIELD(struct registry_body, region, "awsRegion", 0),
    JSON_END,
};

struct stage_body {
    struct str name, from_image, from_template, from_bootstrap, from_blobs, from_stage;
    json_t *registry, *steps;
};

static const struct json_field stage_fields[] = {
    JSON_FIELD(struct stage_body, name, "name", 0),
    JSON_FIELD(struct stage_body, from_image, "fromImage", 0),
    JSON_FIELD(struct stage_body, from_template, "fromTemplate", 0),
    JSON_FIELD(struct stage_body, from_bootstrap, "fromBootstrap", 0),
    JSON_FIELD(struct stage_body, from_blobs, "fromBlobs", 0),
    JSON_FIELD(struct stage_body, from_stage, "fromStage", 0),
    JSON_FIELD(struct stage_body, registry, "fromImageRegistry", 0),
    JSON_FIELD(struct stage_body, steps, "steps", 0),
    JSON_END,
};

/* Google takes a service account's key file as a password. Amazon's passwords must be asked for with its access keys;
 * that fails with the image, whose line in the client's program is then told. */
static int read_registry(const json_t *object, struct recipe_stage *out, struct error *err)
{
    struct registry_body body = {0};

    if (!object || json_is_null(object))
        return 0;
    if (read_object(registry_fields, object, "'fromImageRegistry'", &body, err) < 0)
        return error_prefix(err, "fromImageRegistry");
    out->username = body.username;
    out->password = body.password;
    if (str_is(body.type, "gcp")) {
        out->username = STR("_json_key");
        out->password = body.service_account;
    }
    out->amazon = str_is(body.type, "aws");
    if (!out->amazon && !str_is(body.type, "gcp") && !str_is(body.type, "registry"))
        return error_set(err, ERROR_INVALID,
                         "fromImageRegistry: type '%.*s' is none of registry, gcp and aws",
                         (int)(body.type.len < 40 ? body.type.len : 40), body.type.p);
    return 0;
}

/* What the SDKs call their own base image, in the ways that Docker knows to say it. */
static bool is_base_image(struct str name)
{
    static const char *const prefixes[] = {"docker.io/", "index.docker.io/"};

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (str_starts(name, str_of(prefixes[i])))
            name = str_skip(name, strlen(prefixes[i]));
    return str_is(name, "e2bdev/base") || str_is(name, "e2bdev/base:latest");
}

/* "debian:bookworm": the name goes to a shell and into URLs, and every release has one of letters. */
static int check_bootstrap(struct str name, struct error *err)
{
    struct str release = name;
    bool good = str_eq(str_split(&release, ':'), STR("debian")) && release.len > 0 &&
                release.len <= RECIPE_RELEASE_MAX;

    for (size_t i = 0; good && i < release.len; i++)
        good = release.p[i] >= 'a' && release.p[i] <= 'z';
    return good ? 0
                : error_set(err, ERROR_INVALID,
                            "fromBootstrap is debian:RELEASE, with a release's name such as "
                            "bookworm, not '%.*s'",
                            (int)(name.len < 60 ? name.len : 60), name.p);
}

static int set_from(const struct stage_body *body, struct recipe_stage *out, struct error *err)
{
    const struct {
        struct str name;
        enum recipe_from from;
    } sources[] = {
        {body->from_image, RECIPE_FROM_IMAGE},         {body->from_template, RECIPE_FROM_TEMPLATE},
        {body->from_bootstrap, RECIPE_FROM_BOOTSTRAP}, {body->from_blobs, RECIPE_FROM_BLOBS},
        {body->from_stage, RECIPE_FROM_STAGE},
    };
    bool found = false;

    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        if (!sources[i].name.len)
            continue;
        if (found)
            return error_set(err, ERROR_INVALID, "it begins from more than one thing");
        found = true;
        out->from = sources[i].from;
        out->from_name = sources[i].name;
    }
    if (out->from == RECIPE_FROM_IMAGE && is_base_image(out->from_name))
        out->from = RECIPE_FROM_BASE;
    return out->from == RECIPE_FROM_BOOTSTRAP ? check_bootstrap(out->from_name, err) : 0;
}

ptrdiff_t recipe_find_stage(const struct recipe *recipe, struct str name, size_t count)
{
    uint64_t number;

    for (size_t i = count; i-- > 0;)
        if (recipe->stages[i].name.len && str_eq_nocase(recipe->stages[i].name, name))
            return (ptrdiff_t)i;
    return str_to_u64(name, &number) && number < count ? (ptrdiff_t)number : -1;
}

static int no_stage(struct str name, struct error *err)
{
    return error_set(err, ERROR_INVALID, "there is no stage '%.*s' before it",
                     (int)(name.len < 60 ? name.len : 60), name.p);
}

/* Stages that it takes files from come before it. */
static int check_sources(const struct recipe *recipe, size_t at, struct error *err)
{
    const struct recipe_stage *stage = &recipe->stages[at];

    for (size_t i = 0; i < stage->step_count; i++) {
        const struct recipe_step *step = &stage->steps[i];

        if (step->from_stage.len && recipe_find_stage(recipe, step->from_stage, at) < 0) {
            (void)no_stage(step->from_stage, err);
            return error_prefix(err, "step %zu", step->number);
        }
    }
    if (stage->from == RECIPE_FROM_STAGE && recipe_find_stage(recipe, stage->from_name, at) < 0)
        return no_stage(stage->from_name, err);
    return 0;
}

static int read_stage(const struct stage_body *body, struct arena *arena, struct recipe *recipe,
                      struct recipe_stage *out, struct error *err)
{
    *out = (struct recipe_stage){.name = body->name.p ? body->name : STR("")};
    if (set_from(body, out, err) < 0 || read_registry(body->registry, out, err) < 0)
        return -1;
    return read_steps(body->steps, arena, recipe, out, err);
}

static int read_stages(const json_t *array, struct arena *arena, struct recipe *out,
                       struct error *err)
{
    size_t count = json_array_size(array);
    struct recipe_stage *stages;

    if (!json_is_array(array) || count == 0 || count > RECIPE_STAGES_MAX)
        return error_set(err, ERROR_INVALID, "'stages' must be from 1 to %d", RECIPE_STAGES_MAX);
    stages = arena_alloc(arena, count * sizeof(*stages));
    out->stages = stages;
    for (size_t i = 0; i < count; i++) {
        struct stage_body body = {0};

        if (read_object(stage_fields, json_array_get(array, i), "it", &body, err) < 0 ||
            read_stage(&body, arena, out, &stages[i], err) < 0 || check_sources(out, i, err) < 0)
            return strncmp(err->message, "step ", 5) == 0 ? -1
                                                          : error_prefix(err, "stage %zu", i + 1);
    }
    out->stage_count = count;
    return 0;
}

/* ---- the whole ---- */

struct recipe_body {
    struct stage_body stage;
    struct str start_cmd, ready_cmd, target;
    bool force;
    json_t *stages, *defaults, *env, *labels, *secrets;
};

static const struct json_field recipe_fields[] = {
    JSON_FIELD(struct recipe_body, stage.from_image, "fromImage", 0),
    JSON_FIELD(struct recipe_body, stage.from_template, "fromTemplate", 0),
    JSON_FIELD(struct recipe_body, stage.from_bootstrap, "fromBootstrap", 0),
    JSON_FIELD(struct recipe_body, stage.from_blobs, "fromBlobs", 0),
    JSON_FIELD(struct recipe_body, stage.registry, "fromImageRegistry", 0),
    JSON_FIELD(struct recipe_body, stage.steps, "steps", 0),
    JSON_FIELD(struct recipe_body, start_cmd, "startCmd", 0),
    JSON_FIELD(struct recipe_body, ready_cmd, "readyCmd", 0),
    JSON_FIELD(struct recipe_body, force, "force", 0),
    JSON_FIELD(struct recipe_body, stages, "stages", 0),
    JSON_FIELD(struct recipe_body, target, "target", 0),
    JSON_FIELD(struct recipe_body, defaults, "defaults", 0),
    JSON_FIELD(struct recipe_body, env, "env", 0),
    JSON_FIELD(struct recipe_body, labels, "labels", 0),
    JSON_FIELD(struct recipe_body, secrets, "buildSecrets", 0),
    JSON_END,
};

struct defaults_body {
    struct str user, workdir;
    json_t *shell;
};

static const struct json_field defaults_fields[] = {
    JSON_FIELD(struct defaults_body, user, "user", 0),
    JSON_FIELD(struct defaults_body, workdir, "workdir", 0),
    JSON_FIELD(struct defaults_body, shell, "shell", 0),
    JSON_END,
};

static int read_defaults(const json_t *object, struct arena *arena, struct recipe *out,
                         struct error *err)
{
    struct defaults_body body = {0};

    if (!object || json_is_null(object))
        return 0;
    out->docker = true;
    if (read_object(defaults_fields, object, "'defaults'", &body, err) < 0 ||
        read_words(body.shell, "shell", arena, &out->shell, err) < 0)
        return error_prefix(err, "defaults");
    out->user = body.user;
    out->workdir = body.workdir;
    return 0;
}

/* One stage that is the recipe itself. */
static int read_single(const struct recipe_body *body, struct arena *arena, struct recipe *out,
                       struct error *err)
{
    struct recipe_stage *stage = arena_alloc(arena, sizeof(*stage));

    out->stages = stage;
    if (read_stage(&body->stage, arena, out, stage, err) < 0)
        return -1;
    out->stage_count = 1;
    return check_sources(out, 0, err);
}

static int choose_target(const struct recipe_body *body, struct recipe *out, struct error *err)
{
    ptrdiff_t found = (ptrdiff_t)out->stage_count - 1;

    if (body->target.len)
        found = recipe_find_stage(out, body->target, out->stage_count);
    if (found < 0)
        return error_set(err, ERROR_INVALID, "target: there is no stage '%.*s'",
                         (int)(body->target.len < 60 ? body->target.len : 60), body->target.p);
    out->target = (size_t)found;
    return 0;
}

static int read_recipe(const json_t *tree, struct arena *arena, struct recipe *out,
                       struct error *err)
{
    struct recipe_body body = {0};
    bool many;

    if (read_object(recipe_fields, tree, "the recipe", &body, err) < 0)
        return -1;
    many = body.stages && !json_is_null(body.stages);
    if (many && (body.stage.steps || body.stage.from_image.len || body.stage.from_template.len ||
                 body.stage.from_bootstrap.len || body.stage.from_blobs.len))
        return error_set(err, ERROR_INVALID, "'stages' and steps of their own exclude each other");
    out->force = body.force;
    out->start_cmd = body.start_cmd.len ? body.start_cmd : STR_NONE;
    out->ready_cmd = body.ready_cmd.len ? body.ready_cmd : STR_NONE;
    if (read_defaults(body.defaults, arena, out, err) < 0 ||
        read_pairs(body.env, "env", arena, &out->env, err) < 0 ||
        read_pairs(body.labels, "labels", arena, &out->labels, err) < 0 ||
        read_pairs(body.secrets, "buildSecrets", arena, &out->secrets, err) < 0 ||
        (many ? read_stages(body.stages, arena, out, err) : read_single(&body, arena, out, err)) <
            0)
        return -1;
    return choose_target(&body, out, err);
}

int recipe_parse(struct str text, struct arena *arena, json_t **out_tree, struct recipe *out,
                 struct error *err)
{
    *out = (struct recipe){0};
    if (json_parse(text, out_tree, err) < 0)
        return -1;
    return read_recipe(*out_tree, arena, out, err);
}

static void hide_password(json_t *object)
{
    json_t *registry = json_object_get(object, "fromImageRegistry");

    if (registry)
        (void)json_object_set_new(object, "fromImageRegistry",
                                  json_pack("{s:s}", "type", "registry"));
}

char *recipe_public_text(const json_t *tree)
{
    auto_json json_t *copy = json_deep_copy(tree);
    const json_t *stages = json_object_get(copy, "stages");

    (void)json_object_del(copy, "buildSecrets");
    hide_password(copy);
    for (size_t i = 0; i < json_array_size(stages); i++)
        hide_password(json_array_get(stages, i));
    return json_text(copy);
}
