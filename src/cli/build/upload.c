#include "cli/build/upload.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

enum { STEP_TIMEOUT_MS = 120 * 1000, BODY_MAX = 1024 * 1024 };

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

int upload_put(const struct cli *cli, const char *url, int fd, struct error *err)
{
    static const struct http_header headers[] = {
        {STR_INIT("Content-Type"), STR_INIT("application/octet-stream")},
    };
    auto_call struct http_call call = {.fd = -1};
    struct cli_url where;
    const char *target;
    struct stat st;

    (void)cli;
    if (fstat(fd, &st) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "the archive");
    if (split_url(url, &where, &target, err) < 0 ||
        cli_stream_open(&call, &where,
                        &(struct http_call_request){.method = "PUT",
                                                    .target = target,
                                                    .headers = headers,
                                                    .header_count = 1,
                                                    .more = st.st_size},
                        STEP_TIMEOUT_MS, BODY_MAX, err) < 0 ||
        http_call_send_file(&call, fd, st.st_size, err) < 0 || http_call_recv_all(&call, err) < 0)
        return error_prefix(err, "upload");
    return call.status / 100 == 2 ? 0 : cli_answer_error(&call, err);
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
