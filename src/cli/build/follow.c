#include "cli/build/follow.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_print.h"
#include "cli/core/cli_screen.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { POLL_FIRST_MS = 4, POLL_MS = 200, TAIL_LINES = 20, PAGE_MAX = 100 };

struct view {
    const struct cli *cli;
    bool live; /* a terminal that understands a line written again */
    bool colours;
    bool dirty;        /* the moving line is there */
    char *step;        /* "[2/7] RUN npm ci": the one that runs; NULL = none */
    char *last;        /* what was printed last */
    int64_t begin_ms;  /* of the build, as seen here */
    int64_t before_ms; /* what the last build of this template took; 0 = unknown */
    uint64_t step_number, step_count;
};

static unsigned columns(void)
{
    struct winsize size = {0};

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : 80;
}

static void wipe(struct view *view)
{
    if (view->dirty)
        printf("\r\033[K");
    view->dirty = false;
}

/* At most so many characters; never half of one. */
static int fit(const char *text, unsigned width)
{
    size_t len = 0;

    for (unsigned seen = 0; text[len] && text[len] != '\n'; len++)
        if (((unsigned char)text[len] & 0xc0) != 0x80 && seen++ == width)
            break;
    return (int)len;
}

/* By the last build of the template, else by the steps that are done; < 0 when neither says anything. */
static int64_t left_ms(const struct view *view, int64_t spent_ms)
{
    uint64_t done = view->step_number ? view->step_number - 1 : 0;

    if (view->before_ms > spent_ms)
        return view->before_ms - spent_ms;
    if (done && view->step_count > done && !view->before_ms)
        return spent_ms / (int64_t)done * (int64_t)(view->step_count - done);
    return -1;
}

static void draw(struct view *view)
{
    int64_t spent_ms = clock_mono_ms() - view->begin_ms, left = left_ms(view, spent_ms);
    unsigned width = columns();
    char head[512], rest[48] = "";
    int used;

    if (!view->live)
        return;
    if (left >= 0)
        (void)snprintf(rest, sizeof(rest), ", about %lld s left", (long long)(left + 999) / 1000);
    used = snprintf(head, sizeof(head), "%.*s  %.1f s%s",
                    fit(view->step ? view->step : "waiting", width > 40 ? width / 2 : 20),
                    view->step ? view->step : "waiting", (double)spent_ms / 1000, rest);
    printf("\r\033[K%s", head);
    if (view->last && (unsigned)used + 4 < width)
        printf("  %s%.*s%s", view->colours ? "\033[2m" : "",
               fit(view->last, width - (unsigned)used - 3), view->last,
               view->colours ? "\033[0m" : "");
    (void)fflush(stdout);
    view->dirty = true;
}

enum line { LINE_OTHER, LINE_STEP, LINE_CACHED, LINE_DONE, LINE_OUTPUT };

/* "[builder 2/7] RUN …", "CACHED [builder 2/7] …", "[builder 2/7] done in …", "[builder 2/7] [stdout]: …". */
static enum line kind_of(struct str message, struct str *out_rest)
{
    ptrdiff_t end = str_find(message, ']');
    struct str rest = end < 0 ? STR_NONE : str_trim(str_skip(message, (size_t)end + 1));

    *out_rest = message;
    if (str_starts(message, STR("CACHED [")))
        return LINE_CACHED;
    if (!str_starts(message, STR("[")) || end < 0 ||
        str_find(str_n(message.p, (size_t)end), '/') < 0)
        return LINE_OTHER;
    if (str_starts(rest, STR("done in ")))
        return LINE_DONE;
    if (!str_starts(rest, STR("[stdout]: ")) && !str_starts(rest, STR("[stderr]: ")))
        return LINE_STEP;
    *out_rest = str_skip(rest, 10);
    return LINE_OUTPUT;
}

/* "[builder 2/7] …": the second of seven. */
static void begin_step(struct view *view, struct str text)
{
    struct str head = str_n(text.p, (size_t)str_find(text, ']')), number;
    ptrdiff_t slash = str_find(head, '/'), begin = slash;

    while (begin > 0 && head.p[begin - 1] >= '0' && head.p[begin - 1] <= '9')
        begin--;
    number = str_n(head.p + begin, (size_t)(slash - begin));
    if (!str_to_u64(number, &view->step_number) ||
        !str_to_u64(str_skip(head, (size_t)slash + 1), &view->step_count))
        view->step_number = view->step_count = 0;
    free(view->step);
    view->step = str_dup(text);
}

/* One line is all: steps and what they print take turns in it. Warnings and errors stay. */
static void show_live(struct view *view, const char *message, struct str level)
{
    struct str rest;
    enum line kind = kind_of(str_of(message), &rest);

    if (kind == LINE_STEP) {
        begin_step(view, rest);
    } else if (str_is(level, "warn") || str_is(level, "error")) {
        wipe(view);
        printf("%s\n", message);
    } else if (kind != LINE_DONE) {
        free(view->last);
        view->last = str_dup(rest);
    }
}

static void show_entry(struct view *view, const json_t *entry)
{
    struct str text = json_get_str(entry, "message");
    auto_free char *message = cli_defuse(str_dup(text.p ? text : STR("")), true);
    auto_free char *json = view->cli->json ? json_text(entry) : NULL;

    if (view->live)
        show_live(view, message, json_get_str(entry, "level"));
    else
        printf("%s\n", json ? json : message);
}

int follow_page(const struct cli *cli, const char *template_id, const char *build_id, size_t offset,
                json_t **out, struct error *err)
{
    auto_free char *target =
        xasprintf("/templates/%s/builds/%s/status?logsOffset=%zu", template_id, build_id, offset);

    return cli_call(&cli->server, "GET", target, NULL, out, NULL, err);
}

static void pause_ms(int64_t ms)
{
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000};

    (void)nanosleep(&span, NULL);
}

/* Nothing of it goes on when this is done. */
static int cancel(struct follow *follow, struct error *err)
{
    auto_free char *target =
        xasprintf("/templates/%s/builds/%s", follow->template_id, follow->build_id);

    follow->cancelled = true;
    if (cli_call(&follow->cli->server, "DELETE", target, NULL, NULL, NULL, err) == 0 ||
        err->code == ERROR_CONFLICT)
        return 0; /* or it has ended by itself */
    return error_prefix(err, "the build could not be cancelled");
}

/* 1 = there is more to come. */
static int show_page(struct view *view, const json_t *page, size_t *offset)
{
    const json_t *entries = json_object_get(page, "logEntries");
    struct str state = json_get_str(page, "status");
    size_t count = json_array_size(entries);

    for (size_t i = 0; i < count; i++)
        show_entry(view, json_array_get(entries, i));
    *offset += count;
    /* All entries are there before the end is told; a page may be full. */
    return count >= PAGE_MAX || str_is(state, "waiting") || str_is(state, "building") ? 1 : 0;
}

static void show_tail(const json_t *reason)
{
    const json_t *entries = json_object_get(reason, "logEntries");
    size_t count = json_array_size(entries), first = count > TAIL_LINES ? count - TAIL_LINES : 0;

    for (size_t i = first; i < count; i++) {
        auto_free char *line = cli_print_str(json_array_get(entries, i), "message");

        (void)fprintf(stderr, "  %s\n", line);
    }
}

static void show_end(struct view *view, const struct follow *follow)
{
    const json_t *reason = json_object_get(follow->status, "reason");

    (void)fflush(stdout);
    if (view->cli->json || !reason || follow->cancelled)
        return;
    if (view->live) /* else its lines are there already */
        show_tail(reason);
}

static int follow_pages(struct follow *follow, struct view *view, struct error *err)
{
    int64_t wait_ms = POLL_FIRST_MS;
    size_t offset = 0;

    for (;;) {
        size_t before = offset;
        json_t *page = NULL;

        if (follow->stop && *follow->stop && !follow->cancelled && cancel(follow, err) < 0)
            return -1;
        if (follow_page(follow->cli, follow->template_id, follow->build_id, offset, &page, err) < 0)
            return -1;
        json_decref(follow->status);
        follow->status = page;
        if (!show_page(view, page, &offset))
            return 0;
        (void)fflush(stdout);
        if (offset != before) {
            wait_ms = POLL_FIRST_MS;
            continue;
        }
        draw(view);
        pause_ms(wait_ms);
        wait_ms = wait_ms * 2 < POLL_MS ? wait_ms * 2 : POLL_MS;
    }
}

/* What the last build that became ready took, for the time that is left. */
static int64_t last_build_ms(const struct follow *follow)
{
    auto_free char *target = xasprintf("/templates/%s", follow->template_id);
    auto_json json_t *answer = NULL;
    struct error ignored = {0};
    int64_t begin_us, end_us;
    json_t *build;
    size_t i;

    if (cli_call(&follow->cli->server, "GET", target, NULL, &answer, NULL, &ignored) < 0)
        return 0;
    json_array_foreach (json_object_get(answer, "builds"), i, build)
        if (str_is(json_get_str(build, "status"), "ready") &&
            clock_parse(json_get_str(build, "createdAt"), &begin_us) &&
            clock_parse(json_get_str(build, "finishedAt"), &end_us) && end_us > begin_us)
            return (end_us - begin_us) / 1000;
    return 0;
}

int follow_build(struct follow *follow, struct error *err)
{
    struct view view = {.cli = follow->cli, .begin_ms = clock_mono_ms()};
    bool ready;
    int rc;

    view.live = !follow->cli->json && cli_screen_is(STDOUT_FILENO);
    view.colours = cli_screen_colours(STDOUT_FILENO);
    if (view.live)
        view.before_ms = last_build_ms(follow);
    rc = follow_pages(follow, &view, err);
    ready = rc == 0 && str_is(json_get_str(follow->status, "status"), "ready");
    wipe(&view);
    free(view.step);
    free(view.last);
    show_end(&view, follow);
    return rc < 0 ? -1 : ready ? 0 : 1;
}
