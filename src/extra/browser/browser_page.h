/* The page of a sandbox's browser, for agents that do not speak its protocol: by the program browser-do of the template `browser`,
 * so on every provider that runs commands. */
#pragma once

#include "base/buf.h"
#include "runtime/sandbox/sandbox.h"

enum { BROWSER_PAGE_MAX = 16 << 20 };

struct browser_page {
    const char *act;     /* "goto", "text", "click", "type", "screenshot", "pdf" */
    struct str url;      /* where to go first; needed for goto */
    struct str selector; /* of what is meant: CSS */
    bool has_place;      /* or where it is: */
    int64_t x, y;
    struct str button; /* left, middle, right; "" = left */
    int64_t count;     /* of clicks; 0 = 1 */
    struct str text, key;
    bool full_page;
    int64_t timeout_ms; /* 0 = 30 s */
    /* As a command's: it may be stopped by this id; or NULL. */
    int (*on_started)(void *arg, const char *process_id);
    void *on_started_arg;
};

/* *out: a PNG, a PDF, or a JSON object with url, title and perhaps text. ERROR_INVALID for what makes no sense, ERROR_CONFLICT when
 * it fails or the sandbox has no browser. */
int browser_page_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    const struct browser_page *page, struct buf *out, struct error *err);
