/* Commands in a Daytona sandbox: a buffered bridge.
 *
 * How it works: the toolbox takes one request per command and answers when it has ended, with stdout
 * and stderr joined. The request runs on the provider's hub; the reader gets STARTED at once, then
 * waits for the answer and gets it as STDOUT and EXITED. There is no way to send input or signals;
 * the timeout is the toolbox's to enforce, and ours when it does not. */
#include "extra/daytona/daytona.h"

#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/cond.h"
#include "protocol/json/json_shape.h"

enum {
    OUTPUT_MAX = 8 * 1024 * 1024,
    COMMAND_MAX = 1024 * 1024,
    LIFE_MAX_S = 86400,
    LOOK_MS = 500, /* without a descriptor to wait for */
    GRACE_S = 30,  /* for the answer, beyond the command's own time */
};

struct process {
    struct provider_process base;
    struct daytona *daytona;
    struct fetch_hub_stream *stream;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int ended_fd; /* an eventfd, for those who wait elsewhere */
    struct buf body;
    int status;
    bool ended, broke, cancelled;
    struct error why;

    /* the reader's own */
    enum { TELL_START, TELL_OUTPUT, TELL_EXIT, TOLD } next;
    json_t *answer;
    int64_t timeout_ms;
    bool timed_out;
    int exit_code;
};

static struct process *process_of(struct provider_process *base)
{
    return (struct process *)base;
}

/* ---- on the hub's thread ---- */

static void on_head(void *arg, int status)
{
    struct process *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    p->status = status;
    (void)pthread_mutex_unlock(&p->lock);
}

static void on_data(void *arg, struct str data)
{
    struct process *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    (void)buf_add_str(&p->body, data);
    (void)pthread_mutex_unlock(&p->lock);
}

static void on_end(void *arg, const struct error *why)
{
    struct process *p = arg;

    (void)pthread_mutex_lock(&p->lock);
    p->ended = true;
    p->broke = why != NULL;
    if (why)
        p->why = *why;
    (void)pthread_cond_broadcast(&p->changed);
    (void)eventfd_write(p->ended_fd, 1);
    (void)pthread_mutex_unlock(&p->lock);
}

static const struct fetch_hub_events hub_events = {
    .on_head = on_head, .on_data = on_data, .on_end = on_end};

/* ---- reading ---- */

static int out_of_time(struct process *p)
{
    p->timed_out = true;
    p->exit_code = 137;
    p->next = TELL_EXIT;
    return 0;
}

/* The answer is complete. */
static int take_answer(struct process *p, struct error *err)
{
    const char *who = p->daytona->who;
    const json_t *code;

    if (p->broke && p->why.code == ERROR_TIMEOUT && p->timeout_ms > 0)
        return out_of_time(p);
    if (p->broke) {
        *err = p->why;
        return error_prefix(err, "%s", who);
    }
    if (p->status == 408 || p->status == 504)
        return out_of_time(p);
    if (p->body.overflowed)
        return error_set(err, ERROR_LIMIT, "%s: the command printed more than %d MiB", who,
                         OUTPUT_MAX >> 20);
    if (p->status >= 400)
        return rest_refused(who, "POST", p->status, -1, buf_str(&p->body), err);
    if (json_parse(buf_str(&p->body), &p->answer, err) < 0) {
        err->code = ERROR_UNAVAILABLE;
        return error_prefix(err, "%s", who);
    }
    code = json_object_get(p->answer, "exitCode");
    if (!json_is_integer(code))
        code = json_object_get(p->answer, "code");
    if (!json_is_integer(code))
        return error_set(err, ERROR_UNAVAILABLE, "%s: an answer without an exit code", who);
    p->exit_code = (int)json_integer_value(code);
    p->next = TELL_OUTPUT;
    return 0;
}

/* 1: ended, 0: not yet, -1: cancelled. */
static int wait_end(struct process *p, uint32_t timeout_ms, struct error *err)
{
    int64_t until_us = clock_mono_us() + (int64_t)timeout_ms * 1000;
    int result;

    (void)pthread_mutex_lock(&p->lock);
    while (!p->ended && !p->cancelled && cond_wait_until(&p->changed, &p->lock, until_us))
        ;
    result = p->cancelled ? -1 : p->ended;
    (void)pthread_mutex_unlock(&p->lock);
    if (result < 0)
        return error_set(err, ERROR_CONFLICT, "%s: cancelled", p->daytona->who);
    return result;
}

static int process_next(struct provider_process *base, uint32_t timeout_ms,
                        struct provider_event *out, struct error *err)
{
    struct process *p = process_of(base);
    struct str text;
    int got;

    if (p->next == TELL_START) {
        p->next = TELL_OUTPUT;
        *out = (struct provider_event){.kind = PROVIDER_STARTED};
        return 1;
    }
    if (p->next == TOLD)
        return error_set(err, ERROR_CONFLICT, "%s: the process has ended", p->daytona->who);
    got = wait_end(p, timeout_ms, err);
    if (got <= 0)
        return got;
    if (!p->answer && !p->timed_out && take_answer(p, err) < 0)
        return -1;
    text = json_get_str(p->answer, "result");
    if (p->next == TELL_OUTPUT) {
        p->next = TELL_EXIT;
        if (text.len > 0) {
            *out = (struct provider_event){.kind = PROVIDER_STDOUT, .data = text};
            return 1;
        }
    }
    p->next = TOLD;
    *out = (struct provider_event){
        .kind = PROVIDER_EXITED, .exit_code = p->exit_code, .timed_out = p->timed_out};
    return 1;
}

static struct provider_wait process_wait(struct provider_process *base)
{
    int fd = process_of(base)->ended_fd;

    return (struct provider_wait){.fd = fd, .ms = fd < 0 ? LOOK_MS : (int64_t)LIFE_MAX_S * 1000};
}

static void process_cancel(struct provider_process *base)
{
    struct process *p = process_of(base);

    (void)pthread_mutex_lock(&p->lock);
    p->cancelled = true;
    (void)pthread_cond_broadcast(&p->changed);
    (void)pthread_mutex_unlock(&p->lock);
}

static void process_free(struct provider_process *base)
{
    struct process *p = process_of(base);

    if (p->stream)
        fetch_hub_close(p->stream);
    json_decref(p->answer);
    buf_done(&p->body);
    close_fd(&p->ended_fd);
    (void)pthread_cond_destroy(&p->changed);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
}

static const struct provider_process_ops process_ops = {
    .next = process_next, .wait = process_wait, .cancel = process_cancel, .free = process_free};

/* ---- start ---- */

static bool plain(const char *word)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "_./:=@%+,-";

    return word[0] && word[strspn(word, ok)] == '\0';
}

void daytona_quote(struct buf *out, const char *const *argv)
{
    for (size_t i = 0; argv[i]; i++) {
        if (i)
            (void)buf_add_char(out, ' ');
        /* A first word with '=' in it would be an assignment. */
        if (plain(argv[i]) && (i > 0 || !strchr(argv[i], '='))) {
            (void)buf_printf(out, "%s", argv[i]);
            continue;
        }
        (void)buf_add_char(out, '\'');
        for (const char *c = argv[i]; *c; c++) {
            if (*c == '\'')
                (void)buf_printf(out, "'\\''");
            else
                (void)buf_add_char(out, *c);
        }
        (void)buf_add_char(out, '\'');
    }
}

static int body_json(struct daytona *daytona, const struct provider_command *command, json_t **out,
                     struct error *err)
{
    json_t *envs = json_object();
    auto_json json_t *body = json_pack("{s:o}", "envs", envs);
    auto_buf struct buf text;
    int64_t seconds = (command->timeout_ms + 999) / 1000;

    buf_init(&text, COMMAND_MAX);
    daytona_quote(&text, command->argv);
    if (text.overflowed || !text.len)
        return error_set(err, ERROR_INVALID, "%s: a command has 1 byte to 1 MiB", daytona->who);
    if (!str_valid_utf8(buf_str(&text)))
        return error_set(err, ERROR_INVALID, "%s: an argument is not UTF-8", daytona->who);
    (void)json_object_set_new(body, "command", json_str(buf_str(&text)));
    if (command->cwd)
        (void)json_object_set_new(body, "cwd", json_str(str_of(command->cwd)));
    (void)json_object_set_new(
        body, "timeout", json_integer(seconds > 0 && seconds < LIFE_MAX_S ? seconds : LIFE_MAX_S));
    for (size_t i = 0; i < command->env_count; i++) {
        auto_free char *name = str_dup(command->env[i].name);

        if (!str_valid_utf8(command->env[i].name) || !str_valid_utf8(command->env[i].value))
            return error_set(err, ERROR_INVALID, "%s: a variable is not UTF-8", daytona->who);
        (void)json_object_set_new(envs, name, json_str(command->env[i].value));
    }
    if (json_object_size(envs) == 0)
        (void)json_object_del(body, "envs");
    *out = take_ptr(&body);
    return 0;
}

static struct fetch_hub *hub_of(struct daytona *daytona)
{
    struct fetch_hub *hub;

    (void)pthread_mutex_lock(&daytona->lock);
    if (!daytona->hub)
        daytona->hub = fetch_hub_new();
    hub = daytona->hub;
    (void)pthread_mutex_unlock(&daytona->lock);
    return hub;
}

int daytona_start(struct provider *provider, const struct provider_ref *ref,
                  const struct provider_command *command, struct provider_process **out,
                  struct error *err)
{
    struct daytona *daytona = daytona_of(provider);
    struct pair headers[REST_HEADERS_MAX + 1];
    auto_buf struct buf url;
    auto_json json_t *body = NULL;
    auto_free char *text = NULL;
    struct fetch_request request = {.method = "POST", .headers = headers};
    int64_t life_ms = command->timeout_ms > 0 ? command->timeout_ms : (int64_t)LIFE_MAX_S * 1000;
    struct process *p;

    buf_init(&url, HTTP_URL_MAX);
    if (command->pty)
        return error_set(err, ERROR_UNSUPPORTED, "%s lacks pty", daytona->who);
    if (command->user)
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s: commands run as the sandbox's own user, none can be chosen",
                         daytona->who);
    if (daytona_toolbox(daytona, ref, &url, err) < 0 || body_json(daytona, command, &body, err) < 0)
        return -1;
    (void)buf_printf(&url, "/process/execute");
    text = json_text(body);
    request.url = url.p;
    request.body = str_of(text);
    request.header_count = daytona_headers(daytona, headers);
    headers[request.header_count++] = (struct pair){STR("Content-Type"), STR("application/json")};
    if (life_ms > (int64_t)LIFE_MAX_S * 1000)
        life_ms = (int64_t)LIFE_MAX_S * 1000;
    request.timeout_ms = (uint32_t)(life_ms + (int64_t)GRACE_S * 1000);
    request.idle_ms = 60000;

    p = xcalloc(1, sizeof(*p));
    p->base = (struct provider_process){&process_ops, provider->name};
    p->daytona = daytona;
    p->timeout_ms = command->timeout_ms;
    p->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    buf_init(&p->body, OUTPUT_MAX);
    (void)pthread_mutex_init(&p->lock, NULL);
    cond_init(&p->changed);
    p->stream = fetch_hub_open(hub_of(daytona), &request, &hub_events, p);
    *out = &p->base;
    return 0;
}
