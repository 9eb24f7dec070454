#include "dockerfile/translate.h"

#include <stdarg.h>
#include <sys/utsname.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/near.h"
#include "dockerfile/translate_internal.h"
#include "protocol/json/json_shape.h"

int translate_where(struct translate_work *work)
{
    return error_prefix(work->err, "%s:%d", work->docker.file, work->in->line);
}

int translate_fault(struct translate_work *work, const char *fmt, ...)
{
    char text[sizeof(work->err->message)];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)error_set(work->err, ERROR_INVALID, "%s", text);
    return translate_where(work);
}

/* ---- variables ---- */

struct translate_variable *translate_find(const struct translate_variables *all, struct str name,
                                          bool is_env)
{
    for (size_t i = all->count; i-- > 0;)
        if (all->items[i].is_env == is_env && str_eq(all->items[i].name, name))
            return &all->items[i];
    return NULL;
}

void translate_set(struct translate_work *work, struct translate_variables *variables,
                   struct translate_variable variable)
{
    struct translate_variable *there = translate_find(variables, variable.name, variable.is_env);

    if (there) {
        *there = variable;
        return;
    }
    if (variables->count == variables->room) {
        size_t room = variables->room ? variables->room * 2 : 16;
        struct translate_variable *grown = arena_alloc(work->arena, room * sizeof(*grown));

        if (variables->count)
            memcpy(grown, variables->items, variables->count * sizeof(*grown));
        variables->items = grown;
        variables->room = room;
    }
    variables->items[variables->count++] = variable;
}

static enum words_known find_value(void *arg, struct str name, struct str *out_value)
{
    struct translate_work *work = arg;
    const struct translate_variables *in = work->stage ? &work->stage->variables : &work->globals;
    const struct translate_variable *variable = translate_find(in, name, true);

    if (!variable)
        variable = translate_find(in, name, false);
    if (!variable)
        return work->stage ? WORDS_LATER : WORDS_UNSET;
    if (variable->is_later)
        return WORDS_LATER;
    *out_value = variable->value;
    return variable->value.p ? WORDS_SET : WORDS_UNSET;
}

static int expand_text(struct translate_work *work, struct str text, struct str *out, bool defer,
                       bool *out_later)
{
    struct words_lookup lookup = {
        .find = find_value, .arg = work, .escape = work->docker.escape, .defer = defer};
    auto_buf struct buf expanded = {0};

    buf_init(&expanded, TRANSLATE_VALUE_MAX);
    if (words_expand(text, &lookup, &expanded, out_later, work->err) < 0)
        return translate_where(work);
    *out = arena_str(work->arena, buf_str(&expanded));
    return 0;
}

int translate_text(struct translate_work *work, struct str text, struct str *out, bool *out_later)
{
    if (out_later && expand_text(work, text, out, true, out_later) < 0)
        return -1;
    return out_later && *out_later ? 0 : expand_text(work, text, out, false, NULL);
}

int translate_lines(struct translate_work *work, struct str text, struct str *out)
{
    struct words_lookup lookup = {.find = find_value, .arg = work, .escape = work->docker.escape};
    auto_buf struct buf expanded = {0};

    buf_init(&expanded, (size_t)2 * DOCKERFILE_MAX);
    if (words_expand_plain(text, &lookup, &expanded, work->err) < 0)
        return translate_where(work);
    *out = arena_str(work->arena, buf_str(&expanded));
    return 0;
}

const struct pair *translate_given(struct translate_work *work, struct str name)
{
    for (size_t i = work->source->arg_count; i-- > 0;)
        if (str_eq(work->source->args[i].name, name)) {
            work->arg_used[i] = true;
            return &work->source->args[i];
        }
    return NULL;
}

bool translate_bool(struct str value, bool *out)
{
    *out = !value.p || str_is(value, "true") || str_is(value, "1");
    return *out || str_is(value, "false") || str_is(value, "0");
}

/* ---- what instructions share ---- */

json_t *translate_list(const struct words *words)
{
    json_t *list = json_array();

    for (size_t i = 0; i < words->count; i++)
        (void)json_array_append_new(list, json_str(words->items[i]));
    return list;
}

json_t *translate_step(struct translate_work *work, const char *type)
{
    json_t *step = json_object();

    (void)json_object_set_new(step, "type", json_string(type));
    (void)json_object_set_new(step, "line", json_integer(work->in->line));
    (void)json_object_set_new(step, "text", json_str(work->in->text));
    (void)json_array_append_new(json_object_get(work->stage->json, "steps"), step);
    return step;
}

void translate_literal(json_t *step, bool is_later)
{
    if (!is_later)
        (void)json_object_set_new(step, "literal", json_true());
}

struct dockerfile_files *translate_need_files(struct translate_work *work, json_t *step)
{
    struct dockerfile_recipe *out = work->out;

    if (out->file_count == work->files_room) {
        size_t room = work->files_room ? work->files_room * 2 : 16;
        struct dockerfile_files *grown = arena_alloc(work->arena, room * sizeof(*grown));

        if (out->file_count)
            memcpy(grown, out->files, out->file_count * sizeof(*grown));
        out->files = grown;
        work->files_room = room;
    }
    out->files[out->file_count] = (struct dockerfile_files){
        .step = step, .line = work->in->line, .stage = work->stage->index};
    return &out->files[out->file_count++];
}

/* No "." and ".." inside; what leads above the root ends there. */
static struct str clean_path(struct arena *arena, struct str path)
{
    char *clean = arena_alloc(arena, path.len + 2);
    bool ends = path.len > 1 && path.p[path.len - 1] == '/';
    struct str rest = path;
    size_t len = 0;

    while (rest.p) {
        struct str part = str_split(&rest, '/');

        if (!part.len || str_is(part, "."))
            continue;
        if (str_is(part, "..")) {
            while (len && clean[--len] != '/')
                continue;
            continue;
        }
        clean[len++] = '/';
        memcpy(clean + len, part.p, part.len);
        len += part.len;
    }
    if (len == 0 || ends)
        clean[len++] = '/';
    return str_n(clean, len);
}

struct str translate_path(struct translate_work *work, struct str path, bool is_later)
{
    struct str workdir = work->stage->workdir;

    if (is_later)
        return path;
    if (str_starts(path, STR("/")))
        return clean_path(work->arena, path);
    if (!workdir.p)
        return path;
    return clean_path(work->arena, str_of(arena_printf(work->arena, "%.*s/%.*s", STR_ARG(workdir),
                                                       STR_ARG(path))));
}

struct translate_stage *translate_find_stage(struct translate_work *work, struct str name)
{
    size_t above = work->stage ? work->stage->index : work->stage_count;
    uint64_t number;

    for (size_t i = above; i-- > 0;)
        if (str_eq_nocase(work->stages[i].name, name) && work->stages[i].is_named)
            return &work->stages[i];
    return str_to_u64(name, &number) && number < above ? &work->stages[number] : NULL;
}

/* "scheme://rest" of FROM and --from. */
static const struct {
    struct str scheme;
    const char *member;
} origins[] = {
    {STR_INIT("template://"), "fromTemplate"},
    {STR_INIT("bootstrap://"), "fromBootstrap"},
    {STR_INIT("docker://"), "fromImage"},
};

int translate_from(struct translate_work *work, json_t *json, struct str name)
{
    struct translate_stage *stage = translate_find_stage(work, name);

    if (stage && stage != work->stage) {
        work->stage->needs[stage->index] = true;
        (void)json_object_set_new(json, "fromStage", json_str(stage->name));
        return 0;
    }
    for (size_t i = 0; i < sizeof(origins) / sizeof(origins[0]); i++)
        if (str_starts(name, origins[i].scheme)) {
            struct str rest = str_skip(name, origins[i].scheme.len);

            if (!rest.len)
                return translate_fault(work, "'%.*s' names nothing", STR_ARG(name));
            (void)json_object_set_new(json, origins[i].member, json_str(rest));
            return 0;
        }
    if (!name.len || str_find(name, ' ') >= 0)
        return translate_fault(
            work, "'%.*s' is neither a stage above this line nor an image's name", STR_ARG(name));
    (void)json_object_set_new(json, "fromImage", json_str(name));
    return 0;
}

/* ---- FROM ---- */

static int check_platform(struct translate_work *work, struct str value)
{
    struct str wanted;

    if (translate_text(work, value, &wanted, NULL) < 0)
        return -1;
    if (str_eq(wanted, work->source->platform))
        return 0;
    return translate_fault(work, "sandboxes here are %.*s: --platform=%.*s cannot be built",
                           STR_ARG(work->source->platform), STR_ARG(wanted));
}

static void begin_stage(struct translate_work *work, struct str name)
{
    static struct str default_shell[] = {STR_INIT("/bin/sh"), STR_INIT("-c")};
    struct translate_stage *stage = &work->stages[work->stage_count];

    *stage = (struct translate_stage){.index = work->stage_count++, .name = name};
    stage->is_named = name.len > 0;
    if (!stage->is_named)
        stage->name = str_of(arena_printf(work->arena, "%zu", stage->index));
    stage->shell = (struct words){default_shell, 2};
    stage->json = json_object();
    stage->labels = json_object();
    work->stage = stage;
}

/* What a stage has from the one it begins with: all but the values of ARG. */
static void inherit(struct translate_work *work, const struct translate_stage *from)
{
    struct translate_stage *stage = work->stage;

    for (size_t i = 0; i < from->variables.count; i++)
        if (from->variables.items[i].is_env)
            translate_set(work, &stage->variables, from->variables.items[i]);
    stage->workdir = from->workdir;
    stage->shell = from->shell;
    stage->entrypoint = from->entrypoint;
    stage->entrypoint_is_text = from->entrypoint_is_text;
    stage->cmd = from->cmd;
    stage->ready = from->ready;
    memcpy(stage->ports, from->ports, sizeof(stage->ports));
    stage->port_count = from->port_count;
    (void)json_object_update(stage->labels, from->labels);
}

static int begin_with(struct translate_work *work, struct str base)
{
    struct translate_stage *stage = work->stage;
    const struct translate_stage *parent = translate_find_stage(work, base);

    if (parent)
        inherit(work, parent);
    if (!parent && str_is(base, "scratch")) {
        stage->workdir = STR("/");
        (void)json_object_set_new(stage->json, "fromScratch", json_true());
    } else if (translate_from(work, stage->json, base) < 0) {
        return -1;
    }
    (void)json_object_set_new(stage->json, "steps", json_array());
    return 0;
}

static bool stage_name_valid(struct str name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.p[i];

        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
              (i && ((c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.'))))
            return false;
    }
    return name.len > 0;
}

static int from(struct translate_work *work)
{
    struct str rest = work->in->rest, flag, value, base, name = STR_NONE;
    struct words words;

    work->stage = NULL; /* only what stands before the first FROM is known here */
    while (words_flag(&rest, work->docker.escape, &flag, &value)) {
        if (!str_is(flag, "platform"))
            return translate_fault(work, "FROM knows --platform, not --%.*s", STR_ARG(flag));
        if (check_platform(work, value) < 0)
            return -1;
    }
    words_split(rest, work->arena, &words);
    if (words.count != 1 && !(words.count == 3 && str_eq_nocase(words.items[1], STR("as"))))
        return translate_fault(work, "FROM needs an image, and may have 'AS name' behind it");
    if (translate_text(work, words.items[0], &base, NULL) < 0)
        return -1;
    if (words.count == 3)
        name = words.items[2];
    if (name.p && !stage_name_valid(name))
        return translate_fault(work, "'%.*s' is no name of a stage", STR_ARG(name));
    if (!base.len)
        return translate_fault(
            work,
            "'%.*s' is empty: give it a value with --build-arg, or a default with "
            "ARG before the first FROM",
            STR_ARG(words.items[0]));
    if (name.p && translate_find_stage(work, name))
        return translate_fault(work, "there is a stage '%.*s' already", STR_ARG(name));
    if (work->stage_count == TRANSLATE_STAGES_MAX)
        return translate_fault(work, "more than %d stages", TRANSLATE_STAGES_MAX);
    begin_stage(work, name);
    return begin_with(work, base);
}

/* ---- the table ---- */

static const struct {
    const char *keyword;
    int (*translate)(struct translate_work *work);
} instructions[] = {
    {"FROM", from},
    {"ARG", translate_arg},
    {"RUN", translate_run},
    {"COPY", translate_copy},
    {"ADD", translate_copy},
    {"ENV", translate_env},
    {"WORKDIR", translate_workdir},
    {"USER", translate_user},
    {"CMD", translate_cmd},
    {"ENTRYPOINT", translate_entrypoint},
    {"LABEL", translate_label},
    {"EXPOSE", translate_expose},
    {"SHELL", translate_shell},
    {"VOLUME", translate_volume},
    {"HEALTHCHECK", translate_healthcheck},
    {"STOPSIGNAL", translate_stopsignal},
    {"MAINTAINER", translate_maintainer},
    {"ONBUILD", translate_onbuild},
};

enum { INSTRUCTIONS = sizeof(instructions) / sizeof(instructions[0]) };

static int unknown(struct translate_work *work)
{
    const char *known[INSTRUCTIONS + 1] = {NULL};
    const char *near;

    for (size_t i = 0; i < INSTRUCTIONS; i++)
        known[i] = instructions[i].keyword;
    near = near_word(work->in->keyword, known);
    return translate_fault(work, "'%.*s' is no instruction%s%s%s", STR_ARG(work->in->keyword),
                           near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int translate(struct translate_work *work)
{
    struct str keyword = work->in->keyword;

    for (size_t i = 0; i < INSTRUCTIONS; i++) {
        if (!str_is(keyword, instructions[i].keyword))
            continue;
        if (!work->stage && instructions[i].translate != from &&
            instructions[i].translate != translate_arg)
            return translate_fault(work, "only ARG may stand before the first FROM");
        return instructions[i].translate(work);
    }
    return unknown(work);
}

/* ---- the whole ---- */

/* What is known without an ARG before FROM, and to those ARGs in stages that name them. */
static void add_platform(struct translate_work *work)
{
    struct str arch = work->source->platform, os = str_split(&arch, '/');
    static const char *const sides[] = {"TARGET", "BUILD"};

    for (size_t i = 0; i < 2; i++) {
        struct translate_variable all[] = {
            {str_of(arena_printf(work->arena, "%sPLATFORM", sides[i])), work->source->platform},
            {str_of(arena_printf(work->arena, "%sOS", sides[i])), os},
            {str_of(arena_printf(work->arena, "%sARCH", sides[i])), arch},
            {str_of(arena_printf(work->arena, "%sVARIANT", sides[i])), STR("")},
        };

        for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
            translate_set(work, &work->globals, all[k]);
    }
}

static struct translate_stage *find_target(struct translate_work *work)
{
    struct str target = work->source->target;

    work->stage = NULL;
    return target.p ? translate_find_stage(work, target) : &work->stages[work->stage_count - 1];
}

static void mark_needed(struct translate_work *work, const struct translate_stage *stage,
                        bool *needed)
{
    needed[stage->index] = true;
    /* A stage needs only stages above it. */
    for (size_t i = stage->index + 1; i-- > 0;)
        for (size_t k = 0; needed[i] && k < i; k++)
            needed[k] |= work->stages[i].needs[k];
}

/* Files of stages that are not built are not wanted either. */
static void drop_files(struct translate_work *work, const bool *needed)
{
    struct dockerfile_recipe *out = work->out;
    size_t kept = 0;

    for (size_t i = 0; i < out->file_count; i++)
        if (needed[out->files[i].stage])
            out->files[kept++] = out->files[i];
    out->file_count = kept;
}

static json_t *assemble(struct translate_work *work, const struct translate_stage *target)
{
    bool needed[TRANSLATE_STAGES_MAX] = {false};
    auto_free char *start = translate_start(target), *ready = translate_ready(target);
    json_t *out = json_object(), *stages = json_array();

    mark_needed(work, target, needed);
    drop_files(work, needed);
    for (size_t i = 0; i < work->stage_count; i++)
        if (needed[i]) {
            (void)json_object_set_new(work->stages[i].json, "name", json_str(work->stages[i].name));
            (void)json_array_append(stages, work->stages[i].json);
        }
    if (json_array_size(stages) == 1) {
        (void)json_object_update(out, target->json);
        (void)json_object_del(out, "name");
    } else {
        (void)json_object_set(out, "stages", stages);
        (void)json_object_set_new(out, "target", json_str(target->name));
    }
    json_decref(stages);
    (void)json_object_set_new(
        out, "defaults",
        json_pack("{s:s,s:s,s:[s,s]}", "user", "root", "workdir", "/", "shell", "/bin/sh", "-c"));
    if (json_object_size(target->labels))
        (void)json_object_set(out, "labels", target->labels);
    if (start)
        (void)json_object_set_new(out, "startCmd", json_string(start));
    if (ready && (start || target->ready.p))
        (void)json_object_set_new(out, "readyCmd", json_string(ready));
    return out;
}

static void list_unused(struct translate_work *work)
{
    struct words *out = &work->out->unused;

    out->items = arena_alloc(work->arena, (work->source->arg_count + 1) * sizeof(*out->items));
    for (size_t i = 0; i < work->source->arg_count; i++)
        if (!work->arg_used[i])
            out->items[out->count++] = work->source->args[i].name;
}

static int translate_all(struct translate_work *work)
{
    const struct translate_stage *target;

    add_platform(work);
    for (size_t i = 0; i < work->docker.count; i++) {
        work->in = &work->docker.instructions[i];
        if (translate(work) < 0)
            return -1;
    }
    if (!work->stage_count)
        return error_set(work->err, ERROR_INVALID, "%s has no FROM", work->docker.file);
    target = find_target(work);
    if (!target)
        return error_set(work->err, ERROR_INVALID, "%s has no stage '%.*s'", work->docker.file,
                         STR_ARG(work->source->target));
    work->out->json = assemble(work, target);
    list_unused(work);
    return 0;
}

static struct str own_platform(struct arena *arena)
{
    struct utsname host;

    if (uname(&host) < 0)
        return STR("linux/amd64");
    if (strcmp(host.machine, "x86_64") == 0)
        return STR("linux/amd64");
    if (strcmp(host.machine, "aarch64") == 0)
        return STR("linux/arm64");
    return str_of(arena_printf(arena, "linux/%s", host.machine));
}

int dockerfile_translate(const struct dockerfile_source *source, struct arena *arena,
                         struct dockerfile_recipe *out, struct error *err)
{
    struct dockerfile_source whole = *source;
    auto_free struct translate_work *work = xcalloc(1, sizeof(*work));
    int rc;

    *out = (struct dockerfile_recipe){0};
    if (!whole.platform.p)
        whole.platform = own_platform(arena);
    *work = (struct translate_work){.source = &whole, .arena = arena, .out = out, .err = err};
    work->arg_used = arena_alloc(arena, source->arg_count + 1);
    if (dockerfile_parse(source->text, source->file, arena, &work->docker, err) < 0)
        return -1;
    rc = translate_all(work);
    for (size_t i = 0; i < work->stage_count; i++) {
        json_decref(work->stages[i].json);
        json_decref(work->stages[i].labels);
    }
    return rc;
}
