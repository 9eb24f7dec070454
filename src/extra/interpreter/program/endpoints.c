/* What is answered: five things for clients, and /health for whoever waits until there is an interpreter. Errors are plain texts, as
 * the clients expect them. */
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/env_name.h"
#include "extra/interpreter/program/interpreter.h"
#include "protocol/http/http_errors.h"
#include "protocol/json/json_shape.h"

static void reply(struct http_exchange *ex, int status, const char *type, struct str body)
{
    struct pair headers[] = {
        {STR("content-type"), str_of(type)},
        {STR("access-control-allow-origin"), STR("*")},
    };

    http_reply(ex, status, headers, sizeof(headers) / sizeof(headers[0]), body);
}

static void reply_text(struct http_exchange *ex, int status, const char *text)
{
    reply(ex, status, "text/plain; charset=utf-8", str_of(text));
}

static void reply_json(struct http_exchange *ex, const json_t *json)
{
    auto_free char *text = json_text(json);

    reply(ex, 200, "application/json", str_of(text));
}

static void reply_failure(struct http_exchange *ex, const struct error *err)
{
    reply_text(ex, http_error_status(err->code), err->message);
}

static void reply_no_context(struct http_exchange *ex, struct str id)
{
    reply_text(ex, 404, arena_printf(http_arena(ex), "Context %.*s not found", STR_ARG(id)));
}

static void reply_null(struct http_exchange *ex)
{
    reply(ex, 200, "application/json", STR("null"));
}

/* ---- bodies ---- */

/* A member that is a string, absent or null. */
static bool text_member(const json_t *request, const char *name, struct str *out)
{
    const json_t *value = json_object_get(request, name);

    *out = json_get_str(request, name);
    return !value || json_is_null(value) || json_is_string(value);
}

/* NULL: answered. */
static json_t *read_object(struct http_exchange *ex, struct str body)
{
    struct error err = {0};
    json_t *json = NULL;

    if (json_parse(body, &json, &err) == 0 && json_is_object(json))
        return json;
    json_decref(json);
    reply_text(ex, 422, err.message[0] ? err.message : "the body is no object");
    return NULL;
}

static const struct language *read_language(struct interpreter *ip, struct http_exchange *ex,
                                            struct str name)
{
    const struct language *language = language_find(name);
    auto_buf struct buf text = {0};

    if (language && language_here(language, ip->kernels))
        return language;
    buf_init(&text, 1024);
    (void)buf_add_str(&text, STR(LANGUAGE_REFUSED));
    language_refusal(name, ip->kernels, &text);
    /* Of all refusals, the SDKs show the text of this one only. */
    reply(ex, 404, "text/plain; charset=utf-8", buf_str(&text));
    return NULL;
}

/* ---- /execute ---- */

static struct context *choose_context(struct interpreter *ip, struct http_exchange *ex,
                                      const struct language *language, struct str id)
{
    struct error err = {0};
    struct context *context = id.len ? context_find(ip, id) : context_default(ip, language, &err);

    if (context)
        return context;
    if (id.len)
        reply_no_context(ex, id);
    else
        reply_failure(ex, &err);
    return NULL;
}

static bool check_names(struct http_exchange *ex, const json_t *envs)
{
    struct error err = {0};
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)envs, name, value)
        if (env_name_check("env_vars", str_of(name), &err) < 0) {
            reply_text(ex, 422, err.message);
            return false;
        }
    return true;
}

static bool check_cell(struct http_exchange *ex, const json_t *request, struct str *language,
                       struct str *id)
{
    const json_t *envs = json_object_get(request, "env_vars");

    if (!json_is_string(json_object_get(request, "code"))) {
        reply_text(ex, 422, "code must be a string");
        return false;
    }
    if (!text_member(request, "language", language) || !text_member(request, "context_id", id) ||
        (envs && !json_is_null(envs) && !json_is_object(envs))) {
        reply_text(ex, 422, "language and context_id are strings, env_vars is an object");
        return false;
    }
    if (id->len && language->len) {
        reply_text(ex, 400, "Only one of context_id or language can be provided");
        return false;
    }
    return check_names(ex, envs);
}

static void on_execute(struct http_exchange *ex, struct str body, void *arg)
{
    struct interpreter *ip = arg;
    json_t *request = read_object(ex, body);
    const struct language *language;
    struct str name, id;
    struct context *context;
    struct error err = {0};
    struct cell *cell;

    if (!request)
        return;
    if (!check_cell(ex, request, &name, &id) || !(language = read_language(ip, ex, name)) ||
        !(context = choose_context(ip, ex, language, id))) {
        json_decref(request);
        return;
    }
    cell = cell_new(ex, request);
    cell->language = id.len ? context->language : language;
    if (context_run(context, cell, &err) < 0) {
        cell_free(cell);
        reply_failure(ex, &err);
    }
}

/* ---- /contexts ---- */

static json_t *show(const struct context *context)
{
    json_t *json = json_object();

    (void)json_object_set_new(json, "id", json_string(context->id));
    (void)json_object_set_new(json, "language", json_string(context->language->name));
    (void)json_object_set_new(json, "cwd", json_str(str_of(context->cwd)));
    return json;
}

static void on_create(struct http_exchange *ex, struct str body, void *arg)
{
    auto_json json_t *request = read_object(ex, body.len ? body : STR("{}")), *shown = NULL;
    const struct language *language;
    struct context *context;
    struct error err = {0};
    struct str name, cwd;

    if (!request)
        return;
    if (!text_member(request, "language", &name) || !text_member(request, "cwd", &cwd)) {
        reply_text(ex, 422, "language and cwd must be strings");
        return;
    }
    if (!(language = read_language(arg, ex, name)))
        return;
    context = context_new(arg, language, cwd, &err);
    if (context && context_boot(context, &err) < 0) {
        context_remove(take_ptr(&context));
        error_prefix(&err, "Failed to create context");
    }
    if (!context) {
        reply_failure(ex, &err);
        return;
    }
    shown = show(context);
    reply_json(ex, shown);
}

static void list_contexts(struct interpreter *ip, struct http_exchange *ex)
{
    auto_json json_t *all = json_array();
    struct list *at;

    list_for_each (at, &ip->contexts)
        (void)json_array_append_new(all, show(container_of(at, struct context, node)));
    reply_json(ex, all);
}

/* "/contexts/ID" and "/contexts/ID/restart". False: neither, or not with this method. */
static bool handle_one(struct interpreter *ip, struct http_exchange *ex, struct str path)
{
    bool restart = str_ends(path, STR("/restart"));
    struct str id = restart ? str_n(path.p, path.len - strlen("/restart")) : path;
    struct context *context = context_find(ip, id);
    struct error err = {0};

    if (!str_is(http_request(ex)->method, restart ? "POST" : "DELETE"))
        return false;
    if (!context)
        reply_no_context(ex, id);
    else if (!restart)
        context_remove(context), reply_null(ex);
    else if (context_restart(context, &err) < 0)
        reply_failure(ex, &err);
    else
        reply_null(ex);
    return true;
}

/* ---- the rest ---- */

/* Kernels of Python begin at once: who gets the sandbox now does not wait. */
static void reply_health(struct interpreter *ip, struct http_exchange *ex)
{
    if (zygote_loads(ip))
        reply_text(ex, 503, "Python is being loaded");
    else
        reply(ex, 200, "application/json", STR("\"OK\""));
}

static void reply_preflight(struct http_exchange *ex)
{
    static const struct pair headers[] = {
        {STR_INIT("access-control-allow-origin"), STR_INIT("*")},
        {STR_INIT("access-control-allow-methods"), STR_INIT("GET, POST, DELETE")},
        {STR_INIT("access-control-allow-headers"), STR_INIT("*")},
        {STR_INIT("access-control-max-age"), STR_INIT("7200")},
    };

    http_reply(ex, 204, headers, sizeof(headers) / sizeof(headers[0]), STR(""));
}

void interpreter_handle(struct http_exchange *ex, void *arg)
{
    struct interpreter *ip = arg;
    const struct http_request *request = http_request(ex);
    bool get = str_is(request->method, "GET"), post = str_is(request->method, "POST");
    struct str path = request->path;

    if (str_is(request->method, "OPTIONS"))
        reply_preflight(ex);
    else if (str_is(path, "/health") && get)
        reply_health(ip, ex);
    else if (str_is(path, "/execute") && post)
        http_read_all(ex, BODY_MAX, on_execute, ip);
    else if (str_is(path, "/contexts") && post)
        http_read_all(ex, BODY_MAX, on_create, ip);
    else if (str_is(path, "/contexts") && get)
        list_contexts(ip, ex);
    else if (!str_starts(path, STR("/contexts/")) ||
             !handle_one(ip, ex, str_skip(path, strlen("/contexts/"))))
        reply_text(ex, 404, "Not Found");
}
