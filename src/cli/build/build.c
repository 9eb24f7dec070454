#include "cli/build/build.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/build/context.h"
#include "cli/build/follow.h"
#include "cli/build/image.h"
#include "cli/build/upload.h"
#include "cli/core/cli_print.h"
#include "dockerfile/dockerfile.h"
#include "protocol/json/json_shape.h"

enum { SECRET_MAX = 512 * 1024 };

struct build {
    struct cli *cli;
    const struct build_wish *wish;
    struct arena arena;
    struct build_settings settings;
    const char *name, *file;
    struct dockerfile_recipe recipe;
    struct context context;
    struct pack *packs; /* as recipe.files */
    struct image image; /* of --from-archive */
    char *template_id, *build_id;
    json_t *made; /* answer to POST /v3/templates */
    int64_t start_ms;
    struct error err;
};

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

/* Ctrl-C and the like cancel the build; the second time they end us at once. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};

    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
}

/* ---- what is to be built ---- */

static int read_settings(struct build *build)
{
    const struct build_wish *wish = build->wish;
    auto_free char *usual = xasprintf("%s/e2b.toml", wish->context);
    const char *file = wish->config ? wish->config : usual;
    auto_buf struct buf text = {0};
    int rc;

    if (wish->shipped)
        return settings_parse(str_of(wish->shipped->settings), wish->shipped->name, &build->arena,
                              &build->settings, &build->err);
    buf_init(&text, SETTINGS_MAX + 1);
    rc = fd_read_file_at(AT_FDCWD, file, &text);
    if (rc == -ENOENT && !wish->config)
        return 0;
    if (rc < 0)
        return error_set_errno(&build->err, -rc, "'%s'", file);
    return settings_parse(arena_str(&build->arena, buf_str(&text)), file, &build->arena,
                          &build->settings, &build->err);
}

static int choose_name(struct build *build)
{
    build->name = build->wish->name ? build->wish->name : build->settings.name.p;
    if (build->name)
        return 0;
    return error_set(&build->err, ERROR_INVALID,
                     "the template needs a name: give one, or 'template_name' in e2b.toml");
}

static int read_dockerfile(struct build *build, struct str *out)
{
    const struct build_wish *wish = build->wish;
    auto_buf struct buf text = {0};
    int rc;

    if (wish->shipped) {
        build->file = arena_printf(&build->arena, "templates/%s/Dockerfile", wish->shipped->name);
        *out = str_of(wish->shipped->dockerfile);
        return 0;
    }
    build->file =
        wish->file ? wish->file
        : build->settings.dockerfile.p
            ? arena_printf(&build->arena, "%s/%s", wish->context, build->settings.dockerfile.p)
            : arena_printf(&build->arena, "%s/Dockerfile", wish->context);
    buf_init(&text, DOCKERFILE_MAX + 1);
    if (strcmp(build->file, "-") == 0)
        rc = fd_read_file_at(AT_FDCWD, "/dev/stdin", &text);
    else
        rc = fd_read_file_at(AT_FDCWD, build->file, &text);
    if (rc < 0)
        return error_set_errno(&build->err, -rc, "'%s'", build->file);
    if (strncmp(build->file, "./", 2) == 0)
        build->file += 2;
    *out = arena_str(&build->arena, buf_str(&text));
    return 0;
}

/* "NAME=value", or "NAME" for what our own environment says. */
static void read_args(struct build *build, struct dockerfile_source *source)
{
    const struct cli_list *list = &build->wish->args;
    struct pair *args = arena_alloc(&build->arena, (list->count + 1) * sizeof(*args));

    for (size_t i = 0; i < list->count; i++) {
        struct str value = str_of(list->items[i]), name = str_split(&value, '=');

        args[i].name = arena_str(&build->arena, name);
        args[i].value = value.p ? value : str_of(getenv(args[i].name.p));
    }
    source->args = args;
    source->arg_count = list->count;
}

static int translate(struct build *build)
{
    struct dockerfile_source source = {.target = str_of(build->wish->target)};

    if (read_dockerfile(build, &source.text) < 0)
        return -1;
    source.file = build->file;
    read_args(build, &source);
    if (dockerfile_translate(&source, &build->arena, &build->recipe, &build->err) < 0)
        return -1;
    for (size_t i = 0; i < build->recipe.unused.count; i++)
        (void)fprintf(stderr, "quicksand: --build-arg %.*s: no ARG in %s names it\n",
                      STR_ARG(build->recipe.unused.items[i]), build->file);
    return 0;
}

static int read_secret(struct build *build, const char *text, json_t *into)
{
    struct str rest = str_of(text), id = STR_NONE, from = STR_NONE, env = STR_NONE;
    auto_buf struct buf value = {0};
    auto_free char *name = NULL;
    const char *found;
    int rc = 0;

    while (rest.p) {
        struct str part = str_split(&rest, ','), key = str_split(&part, '=');

        if (str_is(key, "id"))
            id = part;
        else if (str_is(key, "src") || str_is(key, "source"))
            from = part;
        else if (str_is(key, "env"))
            env = part;
        else if (!str_is(key, "type"))
            return error_set(&build->err, ERROR_INVALID,
                             "--secret is id=NAME,src=FILE or id=NAME,env=VARIABLE");
    }
    if (!id.len)
        return error_set(&build->err, ERROR_INVALID, "--secret needs an id");
    name = str_dup(from.len ? from : env.len ? env : id);
    buf_init(&value, SECRET_MAX);
    if (from.len)
        rc = fd_read_file_at(AT_FDCWD, name, &value);
    else if ((found = getenv(name)))
        (void)buf_add_str(&value, str_of(found));
    else
        return error_set(&build->err, ERROR_INVALID, "--secret: the variable %s is not set", name);
    if (rc < 0)
        return error_set_errno(&build->err, -rc, "--secret: '%s'", name);
    if (!str_valid_utf8(buf_str(&value)))
        return error_set(&build->err, ERROR_INVALID, "--secret: '%s' is not a text", name);
    free(take_ptr(&name));
    name = str_dup(id);
    (void)json_object_set_new(into, name, json_str(buf_str(&value)));
    return 0;
}

/* What the recipe says besides its steps. Flags win over settings, settings over the Dockerfile. */
static int complete_recipe(struct build *build)
{
    const struct build_wish *wish = build->wish;
    json_t *json = build->recipe.json;

    settings_apply(&build->settings, json);
    if (wish->no_cache)
        (void)json_object_set_new(json, "force", json_true());
    if (!wish->secrets.count)
        return 0;
    (void)json_object_set_new(json, "buildSecrets", json_object());
    for (size_t i = 0; i < wish->secrets.count; i++)
        if (read_secret(build, wish->secrets.items[i], json_object_get(json, "buildSecrets")) < 0)
            return -1;
    return 0;
}

/* ---- its files ---- */

/* The server begins nothing from nothing: an image without files is sent. */
static int replace_scratch(struct build *build, json_t *stage)
{
    if (!json_object_get(stage, "fromScratch"))
        return 0;
    if (!build->image.count && image_empty(&build->image, &build->err) < 0)
        return -1;
    (void)json_object_del(stage, "fromScratch");
    (void)json_object_set_new(stage, "fromBlobs", json_string(build->image.digest));
    return 0;
}

static int replace_scratches(struct build *build)
{
    json_t *stages = json_object_get(build->recipe.json, "stages");

    for (size_t i = 0; i < json_array_size(stages); i++)
        if (replace_scratch(build, json_array_get(stages, i)) < 0)
            return -1;
    return replace_scratch(build, build->recipe.json);
}

static int open_context(struct build *build)
{
    const char *path = build->wish->shipped ? shipped_context(&build->arena) : build->wish->context;

    return context_open(&build->context, path, build->file, &build->err);
}

static int gather(struct build *build)
{
    const struct dockerfile_recipe *recipe = &build->recipe;

    if (open_context(build) < 0)
        return -1;
    build->packs = xcalloc(recipe->file_count + 1, sizeof(*build->packs));
    for (size_t i = 0; i < recipe->file_count; i++) {
        if (pack_gather(&build->context, &recipe->files[i], &build->packs[i], &build->err) < 0)
            return -1;
        pack_name(&recipe->files[i], &build->packs[i]);
    }
    return 0;
}

static int send_pack(struct build *build, const struct pack *pack)
{
    auto_free char *url = NULL;
    auto_close int fd = -1;
    char what[48];

    if (upload_wanted(build->cli, build->template_id, pack->hash, &url, &build->err) < 0)
        return -1;
    if (!url)
        return 0;
    fd = upload_scratch(&build->err);
    if (fd < 0 || pack_write(&build->context, pack, fd, &build->err) < 0)
        return -1;
    (void)snprintf(what, sizeof(what), "%zu file%s", pack->count, pack->count == 1 ? "" : "s");
    return upload_put(build->cli, what, url, fd, &build->err);
}

static int send_files(struct build *build)
{
    for (size_t i = 0; i < build->recipe.file_count; i++) {
        bool again = false;

        for (size_t k = 0; k < i; k++)
            again = again || strcmp(build->packs[k].hash, build->packs[i].hash) == 0;
        if (stopped)
            return error_set(&build->err, ERROR_CONFLICT, "cancelled");
        if (!again && send_pack(build, &build->packs[i]) < 0)
            return -1;
    }
    return image_send(&build->image, build->cli, build->template_id, &build->err);
}

/* ---- the build ---- */

static void set_size(json_t *body, const char *member, int64_t flag, int64_t setting)
{
    if (flag || setting)
        (void)json_object_set_new(body, member, json_integer(flag ? flag : setting));
}

static int begin(struct build *build)
{
    const struct build_wish *wish = build->wish;
    auto_json json_t *body = json_pack("{s:s,s:[]}", "name", build->name, "tags");

    if (!body)
        return error_set(&build->err, ERROR_INVALID, "the name is not UTF-8");
    for (size_t i = 0; i < wish->tags.count; i++)
        (void)json_array_append_new(json_object_get(body, "tags"),
                                    json_str(str_of(wish->tags.items[i])));
    set_size(body, "cpuCount", wish->cpu, build->settings.cpu_count);
    set_size(body, "memoryMB", wish->memory_mb, build->settings.memory_mb);
    set_size(body, "diskSizeMB", wish->disk_mb, build->settings.disk_mb);
    if (cli_connect(build->cli, &build->err) < 0 ||
        cli_call(&build->cli->server, "POST", "/v3/templates", body, &build->made, NULL,
                 &build->err) < 0)
        return -1;
    build->template_id = str_dup(json_get_str(build->made, "templateID"));
    build->build_id = str_dup(json_get_str(build->made, "buildID"));
    return build->build_id[0]
               ? 0
               : error_set(&build->err, ERROR_UNAVAILABLE, "the server's answer has no buildID");
}

static int start(struct build *build)
{
    auto_free char *target =
        xasprintf("/v2/templates/%s/builds/%s", build->template_id, build->build_id);

    return cli_call(&build->cli->server, "POST", target, build->recipe.json, NULL, NULL,
                    &build->err);
}

/* What was begun and not started waits for nobody. */
static void give_up(struct build *build)
{
    auto_free char *target = NULL;
    struct error ignored = {0};

    if (!build->build_id || !build->build_id[0])
        return;
    target = xasprintf("/templates/%s/builds/%s", build->template_id, build->build_id);
    (void)cli_call(&build->cli->server, "DELETE", target, NULL, NULL, NULL, &ignored);
}

/* ---- its end ---- */

static const json_t *find_step(const json_t *recipe, uint64_t number)
{
    const json_t *stages = json_object_get(recipe, "stages");
    size_t count = stages ? json_array_size(stages) : 1;

    for (size_t i = 0; i < count; i++) {
        const json_t *steps = json_object_get(stages ? json_array_get(stages, i) : recipe, "steps");

        if (number >= 1 && number <= json_array_size(steps))
            return json_array_get(steps, number - 1);
        number -= json_array_size(steps);
    }
    return NULL;
}

static void tell_failure(struct build *build, const json_t *reason)
{
    auto_free char *message = cli_print_str(reason, "message"), *text = NULL;
    struct str step = json_get_str(reason, "step");
    const json_t *found;
    uint64_t number;

    found = str_to_u64(step, &number) ? find_step(build->recipe.json, number) : NULL;
    if (!found) {
        (void)fprintf(stderr, "quicksand: the build failed%s%.*s: %s\n", step.len ? " at " : "",
                      STR_ARG(step), message);
        return;
    }
    text = cli_print_str(found, "text");
    (void)fprintf(stderr, "quicksand: %s:%lld: %s\n  step %.*s failed: %s\n", build->file,
                  (long long)json_integer_value(json_object_get(found, "line")), text,
                  STR_ARG(step), message);
}

static void tell_success(struct build *build, const json_t *status)
{
    double seconds = (double)(clock_mono_ms() - build->start_ms) / 1000;
    auto_free char *tags = cli_print_text(json_object_get(build->made, "tags"));

    if (build->cli->json) {
        auto_json json_t *out = json_deep_copy(build->made);

        (void)json_object_set(out, "status", json_object_get(status, "status"));
        (void)json_object_set_new(out, "seconds", json_real(seconds));
        cli_print_json(out);
        return;
    }
    printf("%s is ready (%s, template %s, build %s) in %.1f s\n", build->name, tags,
           build->template_id, build->build_id, seconds);
}

static int watch(struct build *build)
{
    struct follow follow = {.cli = build->cli,
                            .template_id = build->template_id,
                            .build_id = build->build_id,
                            .stop = &stopped};
    int rc = follow_build(&follow, &build->err);

    if (rc < 0)
        rc = cli_fail(&build->err);
    else if (follow.cancelled && rc)
        (void)fprintf(stderr, "quicksand: the build was cancelled\n");
    else if (rc && build->cli->json)
        cli_print_json(follow.status);
    else if (rc)
        tell_failure(build, json_object_get(follow.status, "reason"));
    else
        tell_success(build, follow.status);
    json_decref(follow.status);
    return rc ? CLI_FAILED : CLI_OK;
}

static int prepare(struct build *build)
{
    if (read_settings(build) < 0 || choose_name(build) < 0)
        return -1;
    if (build->wish->archive) {
        build->file = build->wish->archive;
        if (image_open(&build->image, build->wish->archive, &build->err) < 0)
            return -1;
        build->recipe.json = json_pack("{s:s,s:[]}", "fromBlobs", build->image.digest, "steps");
        if (build->wish->recipe)
            (void)json_object_update(build->recipe.json, build->wish->recipe);
        return complete_recipe(build);
    }
    if (build->wish->recipe) {
        build->recipe.json = json_incref(build->wish->recipe);
        return complete_recipe(build);
    }
    if (translate(build) < 0 || complete_recipe(build) < 0 || replace_scratches(build) < 0)
        return -1;
    return gather(build);
}

int build_template(struct cli *cli, const struct build_wish *wish)
{
    struct build build = {
        .cli = cli, .wish = wish, .context = {.dir = -1}, .start_ms = clock_mono_ms()};
    int rc;

    stopped = 0;
    catch_signals();
    if (prepare(&build) < 0 || begin(&build) < 0 || send_files(&build) < 0 || start(&build) < 0) {
        give_up(&build);
        rc = cli_fail(&build.err);
    } else {
        rc = watch(&build);
    }
    for (size_t i = 0; build.packs && i < build.recipe.file_count; i++)
        pack_done(&build.packs[i]);
    free(build.packs);
    image_done(&build.image);
    context_done(&build.context);
    json_decref(build.recipe.json);
    json_decref(build.made);
    free(build.template_id);
    free(build.build_id);
    arena_done(&build.arena);
    return rc;
}
