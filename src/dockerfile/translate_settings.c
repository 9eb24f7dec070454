/* Variables and settings: ARG, ENV, LABEL, WORKDIR, USER, and what needs nothing to be done. */
#include "dockerfile/translate_internal.h"
#include "protocol/json/json_shape.h"

static int arg_value(struct translate_work *work, struct str name, struct str text, struct str *out)
{
    const struct pair *given = translate_given(work, name);
    const struct translate_variable *global;

    if (given) {
        *out = given->value;
        return 0;
    }
    if (text.p)
        return translate_text(work, text, out, NULL);
    global = work->stage ? translate_find(&work->globals, name, false) : NULL;
    *out = global ? global->value : STR_NONE;
    return 0;
}

static bool name_valid(struct str name)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.p[i] == '$' || name.p[i] == '"' || name.p[i] == '\'')
            return false;
    return name.len > 0;
}

int translate_arg(struct translate_work *work)
{
    struct words words;

    if (words_split_quoted(work->in->rest, work->docker.escape, work->arena, &words, work->err) < 0)
        return translate_where(work);
    if (!words.count)
        return translate_fault(work, "ARG needs a name");
    for (size_t i = 0; i < words.count; i++) {
        struct str value = words.items[i], name = str_split(&value, '=');
        struct translate_variable variable = {.name = name};

        if (!name_valid(name))
            return translate_fault(work, "'%.*s' is no name of a variable", STR_ARG(name));
        if (arg_value(work, name, value, &variable.value) < 0)
            return -1;
        translate_set(work, work->stage ? &work->stage->variables : &work->globals, variable);
    }
    return 0;
}

/* "a=b c=d", or "a the rest" with `whole` as one value. */
static int pairs(struct translate_work *work, struct words *out)
{
    struct str rest = work->in->rest, first;
    size_t len = 0;

    if (words_split_quoted(rest, work->docker.escape, work->arena, out, work->err) < 0)
        return translate_where(work);
    if (!out->count)
        return translate_fault(work, "%.*s needs a name and a value", STR_ARG(work->in->keyword));
    if (str_find(out->items[0], '=') < 0) {
        while (len < rest.len && rest.p[len] != ' ' && rest.p[len] != '\t')
            len++;
        first = str_n(rest.p, len);
        rest = str_trim(str_skip(rest, len));
        if (!rest.len)
            return translate_fault(work, "%.*s %.*s has no value", STR_ARG(work->in->keyword),
                                   STR_ARG(first));
        out->items[0] =
            str_of(arena_printf(work->arena, "%.*s=%.*s", STR_ARG(first), STR_ARG(rest)));
        out->count = 1;
    }
    for (size_t i = 0; i < out->count; i++)
        if (str_find(out->items[i], '=') <= 0)
            return translate_fault(work, "'%.*s' is not name=value", STR_ARG(out->items[i]));
    return 0;
}

/* Which pairs a step has: those for the server to expand, those that are known, or all. */
enum env_part { ENV_LATER = 1, ENV_KNOWN = 2, ENV_ALL = 3 };

static void add_pairs(json_t *args, const struct translate_variables *all, bool is_later)
{
    for (size_t i = 0; i < all->count; i++)
        if (all->items[i].is_later == is_later) {
            (void)json_array_append_new(args, json_str(all->items[i].name));
            (void)json_array_append_new(args, json_str(all->items[i].value));
        }
}

/* All of an instruction see what was before it: those that the server expands go first. */
static void env_step(struct translate_work *work, const struct translate_variables *all,
                     enum env_part part)
{
    json_t *args = json_array(), *step;

    if (part & ENV_LATER)
        add_pairs(args, all, true);
    if (part & ENV_KNOWN)
        add_pairs(args, all, false);
    if (json_array_size(args)) {
        step = translate_step(work, "ENV");
        (void)json_object_set(step, "args", args);
        translate_literal(step, part & ENV_LATER);
    }
    json_decref(args);
}

/* One step when the server finds nothing to expand in what is known. */
static void env_steps(struct translate_work *work, const struct translate_variables *all)
{
    bool later = false, dollar = false;

    for (size_t i = 0; i < all->count; i++) {
        later = later || all->items[i].is_later;
        dollar = dollar || (!all->items[i].is_later && str_find(all->items[i].value, '$') >= 0);
    }
    if (later && !dollar) {
        env_step(work, all, ENV_ALL);
        return;
    }
    env_step(work, all, ENV_LATER);
    env_step(work, all, ENV_KNOWN);
}

int translate_env(struct translate_work *work)
{
    struct translate_variables all = {0};
    struct words words;

    if (pairs(work, &words) < 0)
        return -1;
    for (size_t i = 0; i < words.count; i++) {
        struct str value = words.items[i], name = str_split(&value, '=');
        struct translate_variable variable = {.name = name, .is_env = true};

        if (!name_valid(name))
            return translate_fault(work, "'%.*s' is no name of a variable", STR_ARG(name));
        if (translate_text(work, value, &variable.value, &variable.is_later) < 0)
            return -1;
        translate_set(work, &all, variable);
    }
    env_steps(work, &all);
    for (size_t i = 0; i < all.count; i++)
        translate_set(work, &work->stage->variables, all.items[i]);
    return 0;
}

int translate_label(struct translate_work *work)
{
    struct words words;

    if (pairs(work, &words) < 0)
        return -1;
    for (size_t i = 0; i < words.count; i++) {
        struct str value = words.items[i], name = str_split(&value, '=');

        if (translate_text(work, name, &name, NULL) < 0 ||
            translate_text(work, value, &value, NULL) < 0)
            return -1;
        (void)json_object_set_new(work->stage->labels, name.p, json_str(value));
    }
    return 0;
}

int translate_maintainer(struct translate_work *work)
{
    (void)json_object_set_new(work->stage->labels, "maintainer", json_str(work->in->rest));
    return 0;
}

static void one_argument(struct translate_work *work, const char *type, struct str argument,
                         bool is_later)
{
    json_t *step = translate_step(work, type);

    (void)json_object_set_new(step, "args", json_pack("[o]", json_str(argument)));
    translate_literal(step, is_later);
}

int translate_workdir(struct translate_work *work)
{
    struct str path;
    bool later;

    if (translate_text(work, work->in->rest, &path, &later) < 0)
        return -1;
    if (!path.len)
        return translate_fault(work, "WORKDIR needs a directory");
    path = translate_path(work, path, later);
    if (path.len > 1 && path.p[path.len - 1] == '/')
        path.len--;
    work->stage->workdir = later || path.p[0] != '/' ? STR_NONE : path;
    one_argument(work, "WORKDIR", path, later);
    return 0;
}

int translate_user(struct translate_work *work)
{
    struct str name;
    bool later;

    if (translate_text(work, work->in->rest, &name, &later) < 0)
        return -1;
    if (!name.len || str_find(name, ' ') >= 0)
        return translate_fault(work, "USER needs one user");
    one_argument(work, "USER", name, later);
    return 0;
}

/* Every port of a sandbox is reached; which ones are meant is of use to know when the start command is ready. */
int translate_expose(struct translate_work *work)
{
    struct translate_stage *stage = work->stage;
    struct words words;

    words_split(work->in->rest, work->arena, &words);
    if (!words.count)
        return translate_fault(work, "EXPOSE needs a port");
    for (size_t i = 0; i < words.count; i++) {
        struct str protocol, text;
        uint64_t port;
        bool later;

        if (translate_text(work, words.items[i], &text, &later) < 0)
            return -1;
        protocol = text;
        text = str_split(&protocol, '/');
        if (later || (protocol.p && !str_eq_nocase(protocol, STR("tcp"))))
            continue;
        if (!str_to_u64(str_split(&text, '-'), &port) || port < 1 || port > 65535)
            return translate_fault(work, "EXPOSE needs a port, not '%.*s'",
                                   STR_ARG(words.items[i]));
        if (stage->port_count < READY_PORTS_MAX)
            stage->ports[stage->port_count++] = (uint16_t)port;
    }
    return 0;
}

int translate_stopsignal(struct translate_work *work)
{
    return work->in->rest.len ? 0 : translate_fault(work, "STOPSIGNAL needs a signal");
}

int translate_onbuild(struct translate_work *work)
{
    return translate_fault(work,
                           "ONBUILD is not supported: put the instruction into the Dockerfiles "
                           "that begin with this template");
}
