/* Kept output is text: what is no UTF-8, and NUL, becomes U+FFFD.
 *
 * Secrets are masked in the whole of a stream, not piece by piece. More of it than is kept is taken
 * for that: of a secret across the end of what was taken only a part is there, which is not found, so
 * that as much as a secret may be long is cut off behind the masking. */
#include "runtime/sandbox/kept.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "protocol/json/json_shape.h"
#include "runtime/run/capture.h"
#include "runtime/sandbox/sandbox_parts.h"

enum {
    SANDBOX_ROWS = 100,
    TEAM_ROWS = 1000,
    KEEP_DAYS = 30,
    PRUNE_BATCH = 100,
};

/* Not longer than limit, and not within a character. */
static struct str cut(struct str text, size_t limit, bool *truncated)
{
    if (text.len <= limit)
        return text;
    *truncated = true;
    text.len = limit;
    while (text.len && ((unsigned char)text.p[text.len] & 0xc0) == 0x80)
        text.len--;
    return text;
}

static struct str text_of(const struct runtime *runtime, struct str team_id,
                          const struct runtime_capture *kept, bool is_err, struct arena *arena,
                          bool *truncated)
{
    const struct buf *stream = &kept->streams[is_err];
    char *text = arena_alloc(arena, stream->len + 1);
    auto_json json_t *valid = NULL;
    size_t len;

    if (!stream->len)
        return STR_NONE;
    for (size_t i = 0; i < stream->len; i++)
        text[i] = stream->p[i] ? stream->p[i] : '\xff';
    text[stream->len] = '\0';
    runtime_mask(runtime, team_id, text);
    len = strlen(text);
    if (kept->overflowed[is_err]) {
        *truncated = true;
        len -= len < RUNTIME_CAPTURE_SPARE ? len : RUNTIME_CAPTURE_SPARE;
    }
    valid = json_str(str_n(text, len));
    return arena_str(arena, cut(str_n(json_string_value(valid), json_string_length(valid)),
                                (size_t)kept->limit, truncated));
}

/* A message may quote what was asked for. */
static struct str error_of(const struct runtime *runtime, struct str team_id, const char *error,
                           struct arena *arena)
{
    char *text;

    if (!error)
        return STR_NONE;
    text = arena_printf(arena, "%s", *error ? error : "failed");
    runtime_mask(runtime, team_id, text);
    return str_of(text);
}

bool runtime_kept_store(struct runtime *runtime, const struct runtime_caller *caller,
                        const struct runtime_use *use, const struct runtime_capture *kept,
                        const struct runtime_kept_end *end)
{
    static const struct store_execution_bounds bounds = {SANDBOX_ROWS, TEAM_ROWS};
    auto_arena struct arena arena = {0};
    struct store_execution row = {
        .id = str_of(end->process_id),
        .team_id = caller->team_id,
        .sandbox_id = use->sandbox.id,
        .agent_id = use->sandbox.agent_id,
        .task_id = use->sandbox.task_id,
        .actor = caller->actor,
        .command = end->command,
        .error = error_of(runtime, caller->team_id, end->error, &arena),
        .exit_code = end->exit_code,
        .duration_ms = end->duration_ms,
        .timed_out = end->timed_out,
        .started_at_us = kept->started_at_us,
        .ended_at_us = clock_wall_us(),
    };
    struct error err = {0};

    row.out = text_of(runtime, caller->team_id, kept, false, &arena, &row.truncated);
    row.err = text_of(runtime, caller->team_id, kept, true, &arena, &row.truncated);
    if (store_execution_add(runtime->config.store, &row, &bounds, &err) == 0)
        return true;
    log_error("runtime", "sandbox=%.*s process=%s its output is not kept: %s",
              STR_ARG(use->sandbox.id), end->process_id, err.message);
    return false;
}

int runtime_execution_get(struct runtime *runtime, const struct runtime_caller *caller,
                          struct str sandbox_id, struct str id, struct arena *arena,
                          struct store_execution *out, struct error *err)
{
    struct store_runtime_sandbox sandbox;

    if ((sandbox_id.p && runtime_row_get(runtime, caller, sandbox_id, arena, &sandbox, err) < 0) ||
        store_execution_get(runtime->config.store, caller->team_id, id, arena, out, err) < 0)
        return -1;
    if (!sandbox_id.p)
        return runtime_row_get(runtime, caller, out->sandbox_id, arena, &sandbox, err);
    if (!str_eq(out->sandbox_id, sandbox.id))
        return error_set(err, ERROR_NOT_FOUND, "sandbox '%.*s' has no kept execution '%.*s'",
                         STR_ARG(sandbox.id), STR_ARG(id));
    return 0;
}

int runtime_execution_list(struct runtime *runtime, const struct runtime_caller *caller,
                           struct str sandbox_id, const struct store_execution_page *page,
                           struct arena *arena, struct store_execution **out, size_t *out_count,
                           struct error *err)
{
    struct store_runtime_sandbox sandbox;

    if (runtime_row_get(runtime, caller, sandbox_id, arena, &sandbox, err) < 0)
        return -1;
    return store_execution_list(runtime->config.store, caller->team_id, sandbox.id, page, arena,
                                out, out_count, err);
}

/* Some rows at a time: others use the store too. */
void runtime_kept_prune(struct runtime *runtime)
{
    int64_t before_us = clock_wall_us() - (int64_t)KEEP_DAYS * 24 * 3600 * 1000000;
    struct error err = {0};
    size_t count;

    do {
        count = 0;
        if (store_execution_prune(runtime->config.store, before_us, PRUNE_BATCH, &count, &err) < 0)
            log_warn("runtime", "old output of commands is kept: %s", err.message);
    } while (count == PRUNE_BATCH);
}
