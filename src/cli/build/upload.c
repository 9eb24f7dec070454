#include "cli/build/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/size.h"
#include "cli/core/cli_progress.h"
#include "cli/core/cli_screen.h"
#include "protocol/json/json_shape.h"

enum {
    STEP_TIMEOUT_MS = 120 * 1000,
    BODY_MAX = 1024 * 1024,
    SLICE_SIZE = 1024 * 1024,
    DRAW_MS = 200,
};

int upload_wanted(const struct cli *cli, const char *template_id, const char *hash, char **out_url,
                  struct error *err)
{
    auto_free char *target = xasprintf("/templates/%s/files/%s", template_id, hash);
    auto_json json_t *answer = NULL;
    struct str url;

    *out_url = NULL;
    if (cli_call(&cli->server, "GET", target, NULL, &answer, NULL, err) < 0)
        return -1;
    url = json_get_str(answer, "url");
    if (json_is_true(json_object_get(answer, "present")))
        return 0;
    if (!url.len)
        return error_set(err, ERROR_UNAVAILABLE, "the server gave no link to upload files to");
    *out_url = str_dup(url);
    return 0;
}

/* "http://host:port/path?query" */
static int split_url(const char *url, struct cli_url *out, const char **out_target,
                     struct error *err)
{
    const char *scheme = strstr(url, "://");
    const char *path = scheme ? strchr(scheme + 3, '/') : NULL;
    auto_free char *origin = path ? xstrndup(url, (size_t)(path - url)) : xstrdup(url);

    *out_target = path ? path : "/";
    return cli_url_parse(origin, out, err);
}

/* ---- what is shown of it ---- */

struct meter {
    const char *what; /* NULL = show nothing */
    bool live;        /* a terminal that understands a line written again */
    int64_t size, begin_ms, drawn_ms;
};

static void meter_begin(struct meter *meter, const struct cli *cli, const char *what, int64_t size)
{
    char text[SIZE_TEXT];

    *meter = (struct meter){
        .what = cli->json ? NULL : what,
        .live = cli_screen_is(STDOUT_FILENO),
        .size = size,
        .begin_ms = clock_mono_ms(),
    };
    if (!meter->what)
        return;
    printf("%suploading %s, %s%s", meter->live ? "\r\033[K" : "", what,
           size_text((uint64_t)size, text), meter->live ? "" : "\n");
    (void)fflush(stdout);
    meter->drawn_ms = meter->begin_ms;
}

static void meter_draw(struct meter *meter, int64_t sent)
{
    int64_t now_ms = clock_mono_ms();
    char text[CLI_PROGRESS_SIZE];

    if (!meter->what || !meter->live || now_ms - meter->drawn_ms < DRAW_MS)
        return;
    cli_progress_text(NULL, 0, (uint64_t)sent, (uint64_t)meter->size,
                      (double)(now_ms - meter->begin_ms) / 1000, text);
    printf("\r\033[Kuploading %s, %s", meter->what, text);
    (void)fflush(stdout);
    meter->drawn_ms = now_ms;
}

static void meter_end(const struct meter *meter)
{
    if (!meter->what || !meter->live)
        return;
    printf("\r\033[K");
    (void)fflush(stdout);
}

static int send_file(struct http_call *call, int fd, int64_t size, struct meter *meter,
                     struct error *err)
{
    for (int64_t sent = 0; sent < size && !call->cut;) {
        int64_t slice = size - sent < SLICE_SIZE ? size - sent : SLICE_SIZE;

        if (http_call_send_file(call, fd, slice, err) < 0)
            return -1;
        sent += slice;
        meter_draw(meter, sent);
    }
    return 0;
}

static int put(const char *url, int fd, int64_t size, struct meter *meter, struct error *err)
{
    static const struct pair headers[] = {
        {STR_INIT("Content-Type"), STR_INIT("application/octet-stream")},
    };
    auto_call struct http_call call = {.fd = -1};
    struct cli_url where;
    const char *target;

    if (split_url(url, &where, &target, err) < 0 ||
        cli_stream_open(&call, &where,
                        &(struct http_call_request){.method = "PUT",
                                                    .target = target,
                                                    .headers = headers,
                                                    .header_count = 1,
                                                    .more = size},
                        STEP_TIMEOUT_MS, BODY_MAX, err) < 0 ||
        send_file(&call, fd, size, meter, err) < 0 || http_call_recv_all(&call, err) < 0)
        return error_prefix(err, "upload");
    return call.status / 100 == 2 ? 0 : cli_answer_error(&call, err);
}

int upload_put(const struct cli *cli, const char *what, const char *url, int fd, struct error *err)
{
    struct meter meter;
    struct stat st;
    int rc;

    if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "the archive");
    meter_begin(&meter, cli, what, st.st_size);
    rc = put(url, fd, st.st_size, &meter, err);
    meter_end(&meter);
    return rc;
}

int upload_scratch(struct error *err)
{
    const char *folder = getenv("TMPDIR");
    int fd;

    if (!folder || !folder[0])
        folder = "/tmp";
    fd = open(folder, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (fd < 0) {
        FILE *file = tmpfile();

        fd = file ? fcntl(fileno(file), F_DUPFD_CLOEXEC, 0) : -1;
        if (file)
            (void)fclose(file);
    }
    return fd < 0 ? error_set_errno(err, errno, "a file in '%s'", folder) : fd;
}
