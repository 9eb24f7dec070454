/* Commands: RUN with its mounts; CMD, ENTRYPOINT and HEALTHCHECK, which become the start and the ready command. */
#include "base/cleanup.h"
#include "dockerfile/translate_internal.h"
#include "protocol/json/json_shape.h"

/* ---- mounts ---- */

struct mount {
    struct str type, target, source, from, id, env, size;
    bool writable, readonly, required;
};

static int mount_option(struct translate_work *work, struct mount *mount, struct str name,
                        struct str value)
{
    const struct {
        const char *name;
        struct str *text;
        bool *flag;
    } known[] = {
        {"type", &mount->type, NULL},
        {"target", &mount->target, NULL},
        {"dst", &mount->target, NULL},
        {"destination", &mount->target, NULL},
        {"source", &mount->source, NULL},
        {"src", &mount->source, NULL},
        {"from", &mount->from, NULL},
        {"id", &mount->id, NULL},
        {"env", &mount->env, NULL},
        {"size", &mount->size, NULL},
        {"readonly", NULL, &mount->readonly},
        {"ro", NULL, &mount->readonly},
        {"readwrite", NULL, &mount->writable},
        {"rw", NULL, &mount->writable},
        {"required", NULL, &mount->required},
    };
    static const char *const without_effect[] = {"sharing", "mode", "uid", "gid"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!str_is(name, known[i].name))
            continue;
        if (known[i].text)
            return translate_text(work, value, known[i].text, NULL);
        if (!translate_bool(value, known[i].flag))
            return translate_fault(work, "--mount: '%.*s' is true or false", STR_ARG(name));
        return 0;
    }
    for (size_t i = 0; i < sizeof(without_effect) / sizeof(without_effect[0]); i++)
        if (str_is(name, without_effect[i]))
            return 0;
    return translate_fault(work, "--mount does not know '%.*s'", STR_ARG(name));
}

static int read_mount(struct translate_work *work, struct str text, struct mount *out)
{
    *out = (struct mount){.type = STR("bind")};
    while (text.p) {
        struct str value = str_split(&text, ','), name = str_split(&value, '=');

        if (mount_option(work, out, str_trim(name), value) < 0)
            return -1;
    }
    return 0;
}

static int secret_mount(struct translate_work *work, struct mount *mount, json_t *json)
{
    struct str id = mount->id;

    if (!id.len) {
        const char *slash =
            mount->target.len ? memrchr(mount->target.p, '/', mount->target.len) : NULL;

        id = slash ? str_n(slash + 1, (size_t)(mount->target.p + mount->target.len - slash) - 1)
                   : mount->target;
    }
    if (!id.len)
        return translate_fault(work, "--mount=type=secret needs an id");
    (void)json_object_set_new(json, "id", json_str(id));
    if (mount->env.len)
        return translate_fault(work,
                               "--mount=type=secret: 'env' is not supported: read the file "
                               "/run/secrets/%.*s",
                               STR_ARG(id));
    if (mount->required)
        (void)json_object_set_new(json, "required", json_true());
    if (!mount->target.len)
        mount->target = str_of(arena_printf(work->arena, "/run/secrets/%.*s", STR_ARG(id)));
    return 0;
}

static int mount_from(struct translate_work *work, struct str name, json_t *json)
{
    struct translate_stage *stage = translate_find_stage(work, name);

    if (!stage && str_find_str(name, STR("://")) >= 0)
        return translate_fault(work, "--mount: give '%.*s' a stage of its own (FROM … AS name)",
                               STR_ARG(name));
    if (stage)
        work->stage->needs[stage->index] = true;
    (void)json_object_set_new(json, "from", json_str(stage ? stage->name : name));
    return 0;
}

static int bind_mount(struct translate_work *work, const struct mount *mount, json_t *json)
{
    struct dockerfile_files *files;

    if (!mount->writable)
        (void)json_object_set_new(json, "readonly", json_true());
    if (mount->from.len) {
        (void)json_object_set_new(json, "source",
                                  json_str(mount->source.len ? mount->source : STR("/")));
        return mount_from(work, mount->from, json);
    }
    files = translate_need_files(work, json);
    files->is_mount = true;
    files->sources.items = arena_alloc(work->arena, sizeof(struct str));
    files->sources.items[0] = mount->source.len ? mount->source : STR(".");
    files->sources.count = 1;
    return 0;
}

static int cache_mount(struct translate_work *work, const struct mount *mount, json_t *json)
{
    if (mount->from.len || mount->source.len)
        return translate_fault(work, "--mount=type=cache begins empty: 'from' and 'source' are not "
                                     "supported");
    (void)json_object_set_new(json, "id", json_str(mount->id.len ? mount->id : mount->target));
    if (mount->readonly)
        (void)json_object_set_new(json, "readonly", json_true());
    return 0;
}

static int fill_mount(struct translate_work *work, struct mount *mount, json_t *json)
{
    if (str_is(mount->type, "secret"))
        return secret_mount(work, mount, json);
    if (str_is(mount->type, "bind"))
        return bind_mount(work, mount, json);
    if (str_is(mount->type, "cache"))
        return cache_mount(work, mount, json);
    return translate_fault(work,
                           "--mount=type=%.*s is not supported: there are cache, secret "
                           "and bind",
                           STR_ARG(mount->type));
}

static int add_mount(struct translate_work *work, json_t *step, struct str text)
{
    json_t *mounts = json_object_get(step, "mounts"), *json = json_object();
    struct mount mount;

    if (!mounts) {
        mounts = json_array();
        (void)json_object_set_new(step, "mounts", mounts);
    }
    (void)json_array_append_new(mounts, json);
    if (read_mount(work, text, &mount) < 0)
        return -1;
    (void)json_object_set_new(json, "type", json_str(mount.type));
    if (fill_mount(work, &mount, json) < 0)
        return -1;
    if (!mount.target.len)
        return translate_fault(work, "--mount needs a target");
    mount.target = translate_path(work, mount.target, false);
    if (mount.target.p[0] != '/')
        return translate_fault(work, "--mount: 'target' begins with '/' where no WORKDIR was set");
    (void)json_object_set_new(json, "target", json_str(mount.target));
    return 0;
}

/* ---- RUN ---- */

static int run_flags(struct translate_work *work, json_t *step, struct str *rest)
{
    struct str flag, value;

    while (words_flag(rest, work->docker.escape, &flag, &value)) {
        if (str_is(flag, "mount")) {
            if (add_mount(work, step, value) < 0)
                return -1;
        } else if (str_is(flag, "network")) {
            if (!str_is(value, "default"))
                return translate_fault(work,
                                       "RUN --network=%.*s is not supported: a build's boxes "
                                       "have the network of sandboxes",
                                       STR_ARG(value));
        } else {
            return translate_fault(work, "RUN knows --mount and --network, not --%.*s",
                                   STR_ARG(flag));
        }
    }
    return 0;
}

static const char *const proxies[] = {"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy",
                                      "FTP_PROXY",  "ftp_proxy",  "NO_PROXY",    "no_proxy",
                                      "ALL_PROXY",  "all_proxy",  NULL};

/* What ARG has set, and --build-arg of what needs no ARG. */
static void run_env(struct translate_work *work, json_t *step)
{
    const struct translate_variables *all = &work->stage->variables;
    json_t *env = json_object();

    for (const char *const *name = proxies; *name; name++) {
        const struct pair *given = translate_given(work, str_of(*name));

        if (given && given->value.p)
            (void)json_object_set_new(env, *name, json_str(given->value));
    }
    for (size_t i = 0; i < all->count; i++)
        if (!all->items[i].is_env && all->items[i].value.p) {
            auto_free char *name = str_dup(all->items[i].name);

            (void)json_object_set_new(env, name, json_str(all->items[i].value));
        }
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].is_env) {
            auto_free char *name = str_dup(all->items[i].name);

            (void)json_object_del(env, name);
        }
    if (json_object_size(env))
        (void)json_object_set(step, "env", env);
    json_decref(env);
}

/* A script that says itself what runs it. */
static void run_script(json_t *step, struct str script)
{
    static const char run[] =
        "file=$(mktemp) && printf %s \"$1\" >\"$file\" && chmod 700 \"$file\" || exit 1\n"
        "\"$file\"; status=$?; rm -f \"$file\"; exit $status";

    (void)json_object_set_new(
        step, "exec", json_pack("[s,s,s,s,o]", "/bin/sh", "-c", run, "sh", json_str(script)));
}

static void run_text(struct translate_work *work, json_t *step, struct str command)
{
    (void)json_object_set_new(step, "args", json_pack("[o]", json_str(command)));
    (void)json_object_set_new(step, "shell", translate_list(&work->stage->shell));
}

static void run_heredocs(struct translate_work *work, json_t *step, struct str rest)
{
    const struct dockerfile_instruction *in = work->in;
    auto_buf struct buf command = {0};

    if (in->heredoc_count == 1 && str_eq(rest, in->heredocs[0].word)) {
        struct str script = in->heredocs[0].content;

        if (str_starts(script, STR("#!")))
            run_script(step, script);
        else
            run_text(work, step, script);
        return;
    }
    /* The shell reads them itself. */
    buf_init(&command, (size_t)2 * DOCKERFILE_MAX);
    (void)buf_add_str(&command, rest);
    for (size_t i = 0; i < in->heredoc_count; i++) {
        (void)buf_add_char(&command, '\n');
        (void)buf_add_str(&command, in->heredocs[i].raw);
    }
    (void)buf_add_char(&command, '\n');
    run_text(work, step, buf_str(&command));
}

int translate_run(struct translate_work *work)
{
    json_t *step = translate_step(work, "RUN");
    struct str rest = work->in->rest;
    struct words argv;

    if (run_flags(work, step, &rest) < 0)
        return -1;
    if (!rest.len)
        return translate_fault(work, "RUN needs a command");
    run_env(work, step);
    if (work->in->heredoc_count) {
        run_heredocs(work, step, rest);
        return 0;
    }
    if (!words_json(rest, work->arena, &argv)) {
        run_text(work, step, rest);
        return 0;
    }
    if (!argv.count)
        return translate_fault(work, "RUN needs a command");
    (void)json_object_set_new(step, "exec", translate_list(&argv));
    return 0;
}

/* ---- what runs in sandboxes ---- */

/* The list itself, or the shell and the text. */
static void command_of(struct translate_work *work, struct str rest, struct words *out,
                       bool *is_text)
{
    const struct words *shell = &work->stage->shell;

    *is_text = !words_json(rest, work->arena, out);
    if (!*is_text)
        return;
    out->items = arena_alloc(work->arena, (shell->count + 1) * sizeof(*out->items));
    memcpy(out->items, shell->items, shell->count * sizeof(*out->items));
    out->items[shell->count] = rest;
    out->count = shell->count + 1;
}

int translate_cmd(struct translate_work *work)
{
    bool is_text;

    if (!work->in->rest.len)
        return translate_fault(work, "CMD needs a command");
    command_of(work, work->in->rest, &work->stage->cmd, &is_text);
    work->stage->cmd_set = true;
    return 0;
}

int translate_entrypoint(struct translate_work *work)
{
    struct translate_stage *stage = work->stage;

    if (!work->in->rest.len)
        return translate_fault(work, "ENTRYPOINT needs a command");
    command_of(work, work->in->rest, &stage->entrypoint, &stage->entrypoint_is_text);
    /* The arguments of another program are not this one's. */
    if (!stage->cmd_set)
        stage->cmd = (struct words){0};
    return 0;
}

int translate_shell(struct translate_work *work)
{
    struct words argv;

    if (!words_json(work->in->rest, work->arena, &argv) || !argv.count)
        return translate_fault(work, "SHELL needs a list like [\"/bin/bash\", \"-c\"]");
    work->stage->shell = argv;
    return 0;
}

static void add_words(struct buf *out, const struct words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        if (out->len)
            (void)buf_add_char(out, ' ');
        words_quote(out, words->items[i]);
    }
}

/* A healthcheck's exit status says whether the start command is ready. */
int translate_healthcheck(struct translate_work *work)
{
    static const char *const without_effect[] = {"interval", "timeout", "start-period",
                                                 "start-interval", "retries"};
    struct str rest = work->in->rest, flag, value, word;
    auto_buf struct buf line = {0};
    struct words argv;
    bool is_text;

    while (words_flag(&rest, work->docker.escape, &flag, &value)) {
        bool known = false;

        for (size_t i = 0; i < sizeof(without_effect) / sizeof(without_effect[0]); i++)
            known = known || str_is(flag, without_effect[i]);
        if (!known)
            return translate_fault(work, "HEALTHCHECK does not know --%.*s", STR_ARG(flag));
    }
    word = str_split(&rest, ' ');
    if (str_eq_nocase(str_trim(word), STR("none")) && !str_trim(rest).len) {
        work->stage->ready = STR_NONE;
        return 0;
    }
    rest = str_trim(rest);
    if (!str_eq_nocase(word, STR("cmd")) || !rest.len)
        return translate_fault(work, "HEALTHCHECK is 'CMD command' or 'NONE'");
    command_of(work, rest, &argv, &is_text);
    buf_init(&line, DOCKERFILE_MAX);
    add_words(&line, &argv);
    work->stage->ready = arena_str(work->arena, buf_str(&line));
    return 0;
}

/* An interactive shell has nothing to do where nobody types. */
static bool is_only_shell(const struct translate_stage *stage)
{
    static const char *const shells[] = {"sh", "bash", "ash", "dash", "zsh", "fish"};
    struct str word;

    if (stage->entrypoint.count || !stage->cmd.count)
        return false;
    word = stage->cmd.items[stage->cmd.count - 1];
    if (stage->cmd.count != 1 && stage->cmd.count != stage->shell.count + 1)
        return false;
    while (str_find(word, '/') >= 0)
        (void)str_split(&word, '/');
    for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++)
        if (str_is(word, shells[i]))
            return true;
    return false;
}

char *translate_start(const struct translate_stage *stage)
{
    struct buf line;

    if ((!stage->entrypoint.count && !stage->cmd.count) || is_only_shell(stage))
        return NULL;
    buf_init(&line, (size_t)2 * DOCKERFILE_MAX);
    (void)buf_add_str(&line, STR("exec"));
    add_words(&line, &stage->entrypoint);
    if (!stage->entrypoint_is_text || !stage->entrypoint.count)
        add_words(&line, &stage->cmd);
    return buf_take(&line);
}

/* Without a healthcheck: a port of EXPOSE, which the server waits for as it does without a ready command. Without ports NULL:
 * the server waits for any port. */
char *translate_ready(const struct translate_stage *stage)
{
    struct buf out;

    if (stage->ready.p)
        return str_dup(stage->ready);
    if (!stage->port_count)
        return NULL;
    buf_init(&out, DOCKERFILE_MAX);
    ready_ports_write(&out, stage->ports, stage->port_count);
    return buf_take(&out);
}
