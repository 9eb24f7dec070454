/* What happens in a session's pages, as a program inside writes it down: lines of JSON, which are copied out before the sandbox goes. They are
 * from inside: a line that is none is left out. Sessions that time out take theirs with them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "domain/browser/browser_internal.h"
#include "protocol/json/json_shape.h"

enum { NOTES_MAX = 32 << 20, KEPT_S = 7 * 86400, PATH_SIZE = 512 };

static const char *const names[] = {[BROWSER_LOG] = "log", [BROWSER_RECORDING] = "record"};

int notes_begin(struct browsers *all, const struct store_browser_session *session, bool log,
                bool record, struct error *err)
{
    const char *argv[] = {"/usr/local/bin/browser-witness", log ? "log" : "record",
                          log && record ? "record" : NULL, NULL};
    const struct inside_command command = {.argv = argv};

    return log || record ? inside_run(all, session, &command, NULL, err) : 0;
}

static void inside_path(enum browser_notes which, char out[PATH_SIZE])
{
    (void)snprintf(out, PATH_SIZE, BROWSER_HOME "/.browser/%s.jsonl", names[which]);
}

static void kept_path(const struct browsers *all, struct str id, enum browser_notes which,
                      char out[PATH_SIZE])
{
    (void)snprintf(out, PATH_SIZE, "%s/browser/%.*s.%s", all->config.directory, STR_ARG(id),
                   names[which]);
}

/* ---- keeping ---- */

void notes_drop_old(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    struct stat about;

    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.' &&
            fstatat(dirfd(dir), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
            about.st_mtime + KEPT_S < clock_wall_us() / 1000000)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        (void)closedir(dir);
}

static void keep(struct browsers *all, const struct store_browser_session *session,
                 enum browser_notes which)
{
    auto_buf struct buf text = {0};
    auto_close int fd = -1;
    struct error none = {0};
    char path[PATH_SIZE];

    buf_init(&text, NOTES_MAX);
    inside_path(which, path);
    if (inside_read(all, session, path, &text, &none) < 0)
        return; /* it was not asked for */
    kept_path(all, session->id, which, path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_full(fd, text.p, text.len) < 0)
        log_warn("browser", "session=%.*s: its %s was not kept", STR_ARG(session->id),
                 names[which]);
}

void notes_keep(struct browsers *all, const struct store_browser_session *session)
{
    char directory[PATH_SIZE];

    (void)snprintf(directory, sizeof(directory), "%s/browser", all->config.directory);
    if (mkdir(directory, 0700) < 0 && errno != EEXIST)
        return;
    notes_drop_old(directory);
    keep(all, session, BROWSER_LOG);
    keep(all, session, BROWSER_RECORDING);
}

/* ---- reading ---- */

static json_t *read_lines(struct str text, struct str session_id)
{
    json_t *out = json_array(), *line;
    struct error ignored;

    while (text.len) {
        struct str one = str_split(&text, '\n');

        line = NULL;
        if (!one.len || json_parse(one, &line, &ignored) < 0)
            continue;
        if (json_is_object(line) && !json_object_get(line, "sessionId"))
            (void)json_object_set_new(line, "sessionId", json_str(session_id));
        if (json_is_object(line))
            (void)json_array_append(out, line);
        json_decref(line);
    }
    return out;
}

int browser_notes(struct browsers *all, const struct store_browser_session *session,
                  enum browser_notes which, json_t **out, struct error *err)
{
    auto_buf struct buf text = {0};
    char path[PATH_SIZE];
    int r;

    buf_init(&text, NOTES_MAX);
    if (browser_runs(session)) {
        inside_path(which, path);
        r = inside_read(all, session, path, &text, err);
    } else {
        kept_path(all, session->id, which, path);
        r = fd_read_file_at(AT_FDCWD, path, &text) < 0 ? -1 : 0;
    }
    if (r < 0)
        return error_set(err, ERROR_NOT_FOUND,
                         "session '%.*s' has no %s: ask for it with browserSettings.%s",
                         STR_ARG(session->id), which == BROWSER_LOG ? "log" : "recording",
                         which == BROWSER_LOG ? "logSession" : "recordSession");
    *out = read_lines(buf_str(&text), session->id);
    return 0;
}
