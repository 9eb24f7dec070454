#include "edge/call/test/lanes_page.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/test.h"

#define PAGE SOURCE_ROOT "/docs/internals/lanes.md"

enum { SOURCE_MAX = 1 << 20, CONSTANTS_MAX = 2 };

struct row {
    char section[64], name[256], lane[32], wait[256];
};

/* The next row of an endpoint or a tool: | `NAME` | lane | wait |. Begins with out->section of the row before. */
static bool next_row(FILE *page, struct row *out)
{
    char line[1024];

    while (fgets(line, sizeof(line), page)) {
        (void)sscanf(line, "## %63[^\n]", out->section);
        if (sscanf(line, "| `%255[^`]` | %31[a-z] | %255[^|]|", out->name, out->lane, out->wait) ==
            3) {
            out->wait[strlen(out->wait) - 1] = '\0'; /* the space */
            return true;
        }
    }
    return false;
}

static FILE *open_page(void)
{
    FILE *page = fopen(PAGE, "re");

    if (!page)
        test_fail(__FILE__, __LINE__, "cannot open %s", PAGE);
    return page;
}

void lanes_page_check(const char *section, const char *name, const char *lane)
{
    FILE *page = open_page();
    struct row row = {0};
    size_t found = 0;

    while (next_row(page, &row)) {
        if (strcmp(row.section, section) != 0 || strcmp(row.name, name) != 0)
            continue;
        found++;
        if (strcmp(row.lane, lane) != 0)
            test_fail(__FILE__, __LINE__, "%s: the lane is '%s', the page has '%s'", name, lane,
                      row.lane);
    }
    (void)fclose(page);
    if (found != 1)
        test_fail(__FILE__, __LINE__, "'%s' is %zu times in section '%s' of lanes.md", name, found,
                  section);
}

void lanes_page_check_endpoint(const char *section, const char *method, const char *prefix,
                               const char *pattern, const char *lane)
{
    char name[256];

    (void)snprintf(name, sizeof(name), "%s %s%s", method, prefix, pattern);
    lanes_page_check(section, name, lane);
}

size_t lanes_page_count(const char *section)
{
    FILE *page = open_page();
    struct row row = {0};
    size_t count = 0;

    while (next_row(page, &row))
        count += strcmp(row.section, section) == 0;
    (void)fclose(page);
    return count;
}

/* ---- the longest waits ---- */

/* A wait as the page has it: what is waited for, the sum of these constants of the source, and the unit. */
static const struct wait {
    const char *before, *after;
    int64_t unit_s;
    struct {
        const char *file, *name;
    } constants[CONSTANTS_MAX];
} waits[] = {
#define ENGINE "src/host/engine/engine_warden.c"
#define ENVD   "src/protocol/envd/envd_client"
#define INSIDE "src/extra/browser/browser_inside.c"
    {"the store (", " s for a lock)", 1, {{"src/store/driver/driver_sqlite.c", "BUSY_TIMEOUT_MS"}}},
    {"the engine, ", " s", 1, {{ENGINE, "CHANNEL_TIMEOUT_MS"}, {ENGINE, "REPLY_TIMEOUT_MS"}}},
    {"the engine, ", " s a sandbox", 1, {{ENGINE, "USAGE_TIMEOUT_MS"}}},
    {"the disk, ", " s", 1, {{ENGINE, "CHANNEL_TIMEOUT_MS"}, {ENGINE, "SLOW_TIMEOUT_MS"}}},
    {"the end of the build's boxes, ",
     " s",
     1,
     {{ENGINE, "CHANNEL_TIMEOUT_MS"}, {ENGINE, "REPLY_TIMEOUT_MS"}}},
    {"another operation, ", " s", 1, {{"src/domain/sandbox/sandbox_claim.c", "WAIT_MAX_US"}}},
    {"envd's journal, ", " s", 1, {{"src/domain/sandbox/sandbox_envd.c", "JOURNAL_TIMEOUT_MS"}}},
    {"the receiver, ", " s", 1, {{"src/domain/delivery/webhook_probe.c", "PROBE_US"}}},
    {"envd, ", " s", 1, {{ENVD ".h", "ENVD_CALL_MS"}}},
    {"the transfer, ", " h", 3600, {{ENVD ".c", "WRITE_MS"}}},
    {"", " s without a byte", 1, {{ENVD ".c", "WRITE_IDLE_MS"}}},
    {"the provider, ", " s", 1, {{"src/provider/e2b/e2b.c", "CALL_MS"}}},
    {"another provider, ", " s", 1, {{"src/provider/e2b/e2b.c", "CALL_MS"}}},
    {"`create_timeout` of the profile, ",
     " s",
     1,
     {{"src/runtime/config/settings.c", "create_timeout_s"}}},
    {"", " s to equip it", 1, {{"src/runtime/sandbox/equip.c", "EQUIP_MS"}}},
    {"the timeout of the command, at most ",
     " h",
     3600,
     {{"src/runtime/command/exec.c", "TIMEOUT_MAX_MS"}}},
    {"the timeout of the cell, ", " s", 1, {{"src/extra/interpreter/code.c", "TIMEOUT_MS"}}},
    {"a process that does not read, ", " s", 1, {{"src/runtime/run/run.c", "INPUT_WAIT_MS"}}},
    {"a program of the screen, ", " s", 1, {{"src/extra/desktop/desktop.c", "TIMEOUT_MS"}}},
    {"a page, at most ",
     " s",
     1,
     {{"src/extra/browser/v1_browser.c", "TIMEOUT_MAX_MS"},
      {"src/extra/browser/browser_page.c", "GRACE_MS"}}},
    {"scripts, ", " s each", 1, {{"src/runtime/job/job_script.c", "SCRIPT_MS"}}},
    {"a message to the agent, ", " s", 1, {{"src/runtime/session/session_stream.c", "POST_MS"}}},
    {"the agent, ", " s", 1, {{"src/runtime/session/session_work.c", "CALL_MS"}}},
    {"git push, ", " s", 1, {{"src/runtime/session/git.c", "PUSH_TIMEOUT_MS"}}},
    {"git log, ", " s", 1, {{"src/runtime/session/git.c", "HISTORY_TIMEOUT_MS"}}},
    {"git diff, ", " s", 1, {{"src/runtime/session/changes.c", "CHANGES_MS"}}},
    {"a program of the session, ", " s", 1, {{INSIDE, "TIMEOUT_MS"}}},
    {"files of the session, ", " s each", 1, {{ENVD ".h", "ENVD_CALL_MS"}, {INSIDE, "TIMEOUT_MS"}}},
    {"the end of its browser, ", " s", 1, {{"src/extra/browser/browser.c", "STOP_MS"}}},
};

/* The product of the integers from here to the end of the value, in seconds by the name's suffix. */
static double value_of(const char *at, const char *name)
{
    const char *unit = strrchr(name, '_');
    int64_t value = 1;
    char *end;

    while (*at && !strchr(",;}\n/", *at)) {
        if (isdigit((unsigned char)*at)) {
            value *= strtoll(at, &end, 10);
            at = end;
        } else if (isalpha((unsigned char)*at)) { /* int64_t */
            at += strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        } else {
            at++;
        }
    }
    return (double)value / (strcmp(unit, "_US") == 0 ? 1e6 : strcmp(unit, "_MS") == 0 ? 1e3 : 1);
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the source gives it a value: NAME = 1, or #define NAME 1. */
static double constant(const char *file, const char *name)
{
    auto_buf struct buf text = {0};
    char path[512];
    const char *at;

    buf_init(&text, SOURCE_MAX);
    (void)snprintf(path, sizeof(path), "%s/%s", SOURCE_ROOT, file);
    if (fd_read_file_at(AT_FDCWD, path, &text) < 0)
        test_fail(__FILE__, __LINE__, "cannot read %s", path);
    (void)buf_add_char(&text, '\0');
    for (at = text.p; (at = strstr(at, name)); at += strlen(name)) {
        const char *after = at + strlen(name);
        bool is_defined = at >= text.p + 8 && strncmp(at - 8, "#define ", 8) == 0;

        if (at > text.p && is_word(at[-1]))
            continue;
        if (is_defined || strncmp(after, " = ", 3) == 0)
            return value_of(after, name);
    }
    test_fail(__FILE__, __LINE__, "%s has no constant %s", file, name);
}

static void write_wait(const struct wait *wait, char *out, size_t size)
{
    double seconds = 0;

    for (size_t i = 0; i < CONSTANTS_MAX && wait->constants[i].file; i++)
        seconds += constant(wait->constants[i].file, wait->constants[i].name);
    (void)snprintf(out, size, "%s%g%s", wait->before, seconds / (double)wait->unit_s, wait->after);
}

/* Any other words may follow it. */
static bool is_from_source(const char *part)
{
    char text[256];

    for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]); i++) {
        size_t len;

        if (strncmp(part, waits[i].before, strlen(waits[i].before)) != 0)
            continue;
        write_wait(&waits[i], text, sizeof(text));
        len = strlen(text);
        if (strncmp(part, text, len) == 0 && !is_word(part[len]) &&
            !strpbrk(part + len, "0123456789"))
            return true;
    }
    return false;
}

void lanes_page_check_waits(void)
{
    FILE *page = open_page();
    struct row row = {0};
    char *rest, *part;

    while (next_row(page, &row)) {
        rest = row.wait;
        while ((part = strsep(&rest, ";"))) {
            part += strspn(part, " ");
            if (strpbrk(part, "0123456789") && !is_from_source(part))
                test_fail(__FILE__, __LINE__, "%s: no constant of lanes_page.c gives the wait '%s'",
                          row.name, part);
        }
    }
    (void)fclose(page);
}
