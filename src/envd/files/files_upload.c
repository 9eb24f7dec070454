/* POST /files. A raw body is one file; each part named "file" of a multipart body is one, under its
 * file name. Bytes go to disk as they come, decompressed on the way when the body is gzip.
 *
 * After a failure the rest of the body is read and dropped, so that the client gets to see the
 * answer instead of a broken connection; but not for ever (DROP_MAX). */
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "envd/files/entry.h"
#include "envd/files/files.h"
#include "envd/files/files_accept.h"
#include "envd/files/files_query.h"
#include "envd/files/guest_path.h"
#include "envd/files/gzip.h"
#include "envd/files/upload_file.h"
#include "protocol/http/http_multipart.h"
#include "protocol/json/json_out.h"

enum {
    DROP_MAX = 64 * 1024 * 1024,
    ANSWER_MAX = 8 * 1024 * 1024,
    FILES_MAX = 65536,
};

struct upload {
    struct envd *envd;
    struct http_exchange *ex;
    struct files_query query;
    struct http_multipart *parts; /* NULL for a raw body */
    struct gunzip *gunzip;        /* NULL: not compressed */
    struct upload_file file;
    bool writing;    /* file is open */
    struct map done; /* requested path -> upload */
    char path[PATH_MAX];
    struct buf answer;
    struct error err;
    size_t dropped;
    bool replied, has_metadata;
};

static void upload_free(struct upload *upload)
{
    if (upload->writing)
        upload_file_abort(&upload->file);
    http_multipart_free(upload->parts);
    gunzip_free(upload->gunzip);
    files_query_done(&upload->query);
    map_done(&upload->done);
    buf_done(&upload->answer);
    free(upload);
}

static void on_done(struct http_exchange *ex, void *arg)
{
    (void)ex;
    upload_free(arg);
}

static int begin_file(struct upload *upload, struct str name)
{
    const struct settings *settings = &upload->envd->settings;
    struct error *err = &upload->err;

    if (guest_path_resolve(name, &upload->query.user, settings->default_workdir, upload->path,
                           err) != 0)
        return -1;
    if (map_get(&upload->done, str_of(upload->path)))
        return error_set(err, ERROR_INVALID,
                         "you cannot upload multiple files to the same path '%s' in one upload "
                         "request, only the first specified file was uploaded",
                         upload->path);
    if (upload->done.count >= FILES_MAX)
        return error_set(err, ERROR_LIMIT, "more than %d files in one upload", FILES_MAX);
    if (upload_file_open(&upload->file, upload->path, &upload->query.user, err) != 0)
        return -1;
    upload->writing = true;
    (void)map_put(&upload->done, str_of(upload->path), upload);
    return 0;
}

static int end_file(struct upload *upload)
{
    const struct http_headers *headers = &http_request(upload->ex)->headers;
    struct buf *answer = &upload->answer;

    if (upload_file_commit(&upload->file, headers, &upload->err) != 0)
        return -1;
    upload->writing = false;
    json_out_open(answer, NULL, '{');
    json_out_str(answer, "name", guest_path_base(upload->path));
    json_out_str(answer, "path", str_of(upload->path));
    json_out_str(answer, "type", STR("file"));
    if (upload->has_metadata)
        entry_add_metadata(answer, upload->file.path);
    json_out_close(answer, "}");
    return 0;
}

/* ---- multipart ---- */

static int on_part(void *arg, struct str name, struct str filename)
{
    struct upload *upload = arg;

    if (!str_is(name, "file"))
        return 0;
    if (upload->query.has_path)
        filename = buf_str(&upload->query.path);
    else if (filename.len == 0)
        return error_set(&upload->err, ERROR_INVALID, "a part named 'file' has no file name");
    return begin_file(upload, filename);
}

static int on_part_data(void *arg, struct str data)
{
    struct upload *upload = arg;

    return upload->writing ? upload_file_write(&upload->file, data, &upload->err) : 0;
}

static int on_part_end(void *arg)
{
    struct upload *upload = arg;

    return upload->writing ? end_file(upload) : 0;
}

static const struct http_multipart_events part_events = {
    .on_part = on_part, .on_data = on_part_data, .on_part_end = on_part_end};

/* ---- the body ---- */

static void reply(struct upload *upload)
{
    if (upload->replied)
        return;
    upload->replied = true;
    if (upload->err.code != ERROR_NONE) {
        envd_reply_failure(upload->ex, &upload->err);
        return;
    }
    json_out_close(&upload->answer, "]");
    envd_reply_json(upload->ex, 200, buf_str(&upload->answer));
}

static void fail(struct upload *upload)
{
    if (upload->err.code == ERROR_NONE)
        error_set(&upload->err, ERROR_INVALID, "error reading form: malformed multipart body");
    if (upload->writing)
        upload_file_abort(&upload->file);
    upload->writing = false;
}

static int take_content(void *arg, struct str data)
{
    struct upload *upload = arg;

    return upload->parts ? http_multipart_feed(upload->parts, data)
                         : upload_file_write(&upload->file, data, &upload->err);
}

static void on_data(struct http_exchange *ex, struct str data, void *arg)
{
    struct upload *upload = arg;
    int r;

    (void)ex;
    if (upload->err.code != ERROR_NONE) {
        upload->dropped += data.len;
        if (upload->dropped > DROP_MAX)
            reply(upload);
        return;
    }
    r = upload->gunzip ? gunzip_feed(upload->gunzip, data, take_content, upload, &upload->err)
                       : take_content(upload, data);
    if (r != 0)
        fail(upload);
}

static void on_end(struct http_exchange *ex, void *arg)
{
    struct upload *upload = arg;
    bool complete = !upload->parts || http_multipart_complete(upload->parts);

    (void)ex;
    if (upload->err.code == ERROR_NONE && upload->gunzip && !gunzip_complete(upload->gunzip))
        error_set(&upload->err, ERROR_INVALID,
                  "error decompressing request body: gzip: unexpected end");
    if (upload->err.code != ERROR_NONE)
        fail(upload);
    if (upload->err.code == ERROR_NONE && (!complete || (!upload->parts && end_file(upload) != 0)))
        fail(upload);
    reply(upload);
}

static bool media_type_is(struct str header, const char *type)
{
    return str_eq_nocase(str_trim(str_split(&header, ';')), str_of(type));
}

static int begin_body(struct upload *upload)
{
    struct str type = http_header(upload->ex, "content-type");
    struct str encoding = http_header(upload->ex, "content-encoding");

    switch (files_content_encoding(encoding)) {
    case FILES_IDENTITY:
        break;
    case FILES_GZIP:
        upload->gunzip = gunzip_new();
        break;
    case FILES_NOTHING:
        return error_set(&upload->err, ERROR_INVALID,
                         "error decompressing request body: unsupported Content-Encoding: %.*s, "
                         "supported: [gzip]",
                         STR_ARG(encoding));
    }
    if (media_type_is(type, "application/octet-stream")) {
        if (!upload->query.has_path)
            return error_set(&upload->err, ERROR_INVALID,
                             "path query parameter is required for raw body upload");
        return begin_file(upload, buf_str(&upload->query.path));
    }
    if (!str_eq_nocase(str_n(type.p, type.len < 10 ? type.len : 10), STR("multipart/")))
        return error_set(&upload->err, ERROR_INVALID,
                         "unsupported content type: %.*s, expected multipart/form-data or "
                         "application/octet-stream",
                         STR_ARG(type));
    upload->parts = http_multipart_new(type, &part_events, upload);
    if (!upload->parts)
        return error_set(&upload->err, ERROR_INVALID,
                         "error parsing multipart form: no multipart boundary");
    return 0;
}

static bool any_metadata(const struct http_headers *headers)
{
    for (size_t i = 0; i < headers->count; i++)
        if (headers->items[i].name.len > 11 &&
            str_eq_nocase(str_n(headers->items[i].name.p, 11), STR("x-metadata-")))
            return true;
    return false;
}

void files_upload(struct envd *envd, struct http_exchange *ex)
{
    struct upload *upload = xcalloc(1, sizeof(*upload));

    upload->envd = envd;
    upload->ex = ex;
    upload->file.fd = -1;
    upload->has_metadata = any_metadata(&http_request(ex)->headers);
    map_init(&upload->done);
    buf_init(&upload->answer, ANSWER_MAX);
    json_out_open(&upload->answer, NULL, '[');
    http_on_done(ex, on_done, upload);
    if (files_query_read(&upload->query, envd, ex, "write") != 0)
        return;
    if (begin_body(upload) != 0)
        fail(upload);
    http_read_stream(ex, on_data, on_end, upload);
}
