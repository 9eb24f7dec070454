#include "provider/envd/envd_machine.h"

#include <errno.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/list.h"
#include "protocol/fetch/rest.h"

#define auto_place __attribute__((cleanup(place_done)))

static void place_done(struct envd_place *place)
{
    arena_done(&place->arena);
}

int envd_place_token(struct provider *provider, const struct provider_ref *ref,
                     struct envd_place *place, struct error *err)
{
    struct provider_sandbox sandbox = {0};

    if (ref->token.len)
        return 0;
    if (provider->ops->get(provider, ref, &place->arena, &sandbox, err) < 0)
        return -1;
    place->address.token = sandbox.token;
    return 0;
}

static int find_place(struct provider *provider, const struct provider_ref *ref,
                      struct envd_place *place, struct error *err)
{
    const char *who = arena_printf(&place->arena, "provider '%s'", provider->name);

    place->address = (struct envd_address){
        .fetch = provider->fetch, .who = who, .base = place->base, .token = ref->token};
    if (!rest_id_valid(ref->id))
        return error_set(err, ERROR_INVALID, "%s: this is not the id of a sandbox", who);
    return provider->ops->envd(provider, ref, place, err);
}

/* Whether envd may have got the request: a proxy tells it by its words only. */
static bool may_have_begun(const struct error *err)
{
    return err->errnum == ECONNABORTED || strstr(err->message, "before it answered") ||
           strstr(err->message, "closed the connection");
}

/* "Not there" of a proxy or of a socket: only the API knows whether it is paused or gone. It may also
 * have been paused just then and run again by now. */
static int explain(struct provider *provider, const struct provider_ref *ref, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct provider_sandbox sandbox = {0};
    bool begun = may_have_begun(err);
    struct error why = {0};

    if (err->code != ERROR_UNAVAILABLE && err->code != ERROR_CONFLICT)
        return -1;
    if (provider->ops->get(provider, ref, &arena, &sandbox, &why) < 0 &&
        why.code == ERROR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if ((!why.code && (sandbox.state == PROVIDER_PAUSED || sandbox.state == PROVIDER_PAUSING)) ||
        strstr(err->message, "The sandbox is paused") ||
        (!why.code && strstr(err->message, "paused or ended before it answered"))) {
        (void)error_set(err, ERROR_CONFLICT, "provider '%s': the sandbox '%.*s' %s", provider->name,
                        STR_ARG(ref->id), begun ? "was paused before it answered" : "is paused");
        err->errnum = EHOSTDOWN;
    }
    if (begun)
        err->errnum = ECONNABORTED;
    return -1;
}

/* ---- processes ---- */

struct machine_process {
    struct provider_process base;
    struct envd_process *process;
};

static struct envd_process *inner(struct provider_process *base)
{
    return container_of(base, struct machine_process, base)->process;
}

static int process_next(struct provider_process *base, uint32_t timeout_ms,
                        struct provider_event *out, struct error *err)
{
    static const enum provider_event_kind kinds[] = {[ENVD_STARTED] = PROVIDER_STARTED,
                                                     [ENVD_STDOUT] = PROVIDER_STDOUT,
                                                     [ENVD_STDERR] = PROVIDER_STDERR,
                                                     [ENVD_EXITED] = PROVIDER_EXITED};
    struct envd_event event;
    int r = envd_process_next(inner(base), timeout_ms, &event, err);

    if (r > 0)
        *out = (struct provider_event){.kind = kinds[event.kind],
                                       .data = event.data,
                                       .pid = event.pid,
                                       .exit_code = event.exit_code,
                                       .timed_out = event.timed_out,
                                       .out_of_memory = event.out_of_memory};
    return r;
}

static struct provider_wait process_wait(struct provider_process *base)
{
    struct provider_wait wait;

    wait.fd = envd_process_wait(inner(base), &wait.ms);
    return wait;
}

static int process_input(struct provider_process *base, struct str data, struct error *err)
{
    return envd_process_input(inner(base), data, err);
}

static int process_close_stdin(struct provider_process *base, struct error *err)
{
    return envd_process_close_stdin(inner(base), err);
}

static int process_resize(struct provider_process *base, uint16_t cols, uint16_t rows,
                          struct error *err)
{
    return envd_process_resize(inner(base), cols, rows, err);
}

static int process_signal(struct provider_process *base, int signal, struct error *err)
{
    return envd_process_signal(inner(base), signal, err);
}

static void process_cancel(struct provider_process *base)
{
    envd_process_cancel(inner(base));
}

static void process_free(struct provider_process *base)
{
    envd_process_free(inner(base));
    free(container_of(base, struct machine_process, base));
}

static const struct provider_process_ops process_ops = {
    .next = process_next,
    .wait = process_wait,
    .input = process_input,
    .close_stdin = process_close_stdin,
    .resize = process_resize,
    .signal = process_signal,
    .cancel = process_cancel,
    .free = process_free,
};

static struct provider_process *wrap(struct envd_process *process_consume)
{
    struct machine_process *process = xcalloc(1, sizeof(*process));

    process->base = (struct provider_process){.ops = &process_ops, .provider_name = ""};
    process->process = process_consume;
    return &process->base;
}

int envd_place_start(const struct envd_address *address, const struct provider_command *command,
                     struct provider_process **out, struct error *err)
{
    const struct envd_command start = {.argv = command->argv,
                                       .env = command->env,
                                       .env_count = command->env_count,
                                       .cwd = command->cwd,
                                       .user = command->user,
                                       .tag = command->tag,
                                       .open_stdin = command->open_stdin,
                                       .pty = command->pty,
                                       .cols = command->cols,
                                       .rows = command->rows,
                                       .timeout_ms = command->timeout_ms,
                                       .input_ms = command->input_ms};
    struct envd_process *process;

    if (envd_start(address, &start, &process, err) < 0)
        return -1;
    *out = wrap(process);
    return 0;
}

int envd_place_attach(const struct envd_address *address, const char *tag, int64_t pid,
                      struct provider_process **out, struct error *err)
{
    struct envd_process *process;

    if (envd_attach(address, tag, pid, &process, err) < 0)
        return -1;
    *out = wrap(process);
    return 0;
}

int envd_place_list(const struct envd_address *address, const char *path, struct arena *arena,
                    struct provider_file **out, size_t *out_count, struct error *err)
{
    struct envd_file *files;

    if (envd_list(address, path, arena, &files, out_count, err) < 0)
        return -1;
    *out = arena_alloc(arena, (*out_count + 1) * sizeof(**out));
    for (size_t i = 0; i < *out_count; i++)
        (*out)[i] = (struct provider_file){.name = files[i].name,
                                           .path = files[i].path,
                                           .directory = files[i].directory,
                                           .size = files[i].size,
                                           .mode = files[i].mode,
                                           .modified_at_us = files[i].modified_at_us};
    return 0;
}

/* ---- entries of the table ---- */

int envd_machine_start(struct provider *provider, const struct provider_ref *ref,
                       const struct provider_command *command, struct provider_process **out,
                       struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_place_start(&place.address, command, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_attach(struct provider *provider, const struct provider_ref *ref, const char *tag,
                        int64_t pid, struct provider_process **out, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_place_attach(&place.address, tag, pid, out, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                      provider_sink_fn *sink, void *arg, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_read(&place.address, path, sink, arg, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                       provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_write(&place.address, path, source, arg, length, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                      struct arena *arena, struct provider_file **out, size_t *out_count,
                      struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 ||
        envd_place_list(&place.address, path, arena, out, out_count, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

int envd_machine_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                        struct error *err)
{
    auto_place struct envd_place place = {0};

    if (find_place(provider, ref, &place, err) < 0 || envd_remove(&place.address, path, err) < 0)
        return explain(provider, ref, err);
    return 0;
}

/* ---- ports ---- */

/* "http://127.0.0.1:3000" and "example.org" make "http://8080-ID.example.org:3000": a server of ours
 * takes any name that begins so. */
static char *named_url(const char *server, const char *domain, struct str id, uint16_t port,
                       struct arena *arena)
{
    struct str rest = str_of(server), scheme, number = STR_NONE;
    ptrdiff_t colon;

    scheme = str_n(rest.p, (size_t)str_find_str(rest, STR("://")));
    rest = str_skip(rest, scheme.len + 3);
    rest = str_split(&rest, '/');
    colon = rest.len && rest.p[rest.len - 1] != ']' ? (ptrdiff_t)rest.len - 1 : -1;
    while (colon >= 0 && rest.p[colon] != ':')
        colon--;
    if (colon >= 0)
        number = str_skip(rest, (size_t)colon);
    return arena_printf(arena, "%.*s://%u-%.*s.%s%.*s", STR_ARG(scheme), port, STR_ARG(id), domain,
                        STR_ARG(number));
}

void envd_machine_address(const char *server, const char *domain, struct str id, uint16_t port,
                          struct arena *arena, struct provider_address *out)
{
    out->local_url = arena_str(arena, str_of(server));
    out->url = str_of(named_url(server, domain ? domain : "localhost", id, port, arena));
    out->headers = arena_alloc(arena, 3 * sizeof(*out->headers)); /* one more may be added */
    out->headers[0] = (struct pair){STR("E2b-Sandbox-Id"), arena_str(arena, id)};
    out->headers[1] =
        (struct pair){STR("E2b-Sandbox-Port"), str_of(arena_printf(arena, "%u", port))};
    out->header_count = 2;
}
