/* Files of a container, by the daemon's tar endpoints: no program of the image touches the bytes.
 *
 * A file is written under a name of its own in its directory and moved into place when it is
 * complete, so a reader sees the old content or the new. A tar tells a file's size first; content of
 * unknown length is kept in an unnamed file of this host until its length is known. Lists and
 * removals are commands in the container, as its user. */
#include "provider/docker/docker.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/id.h"

enum {
    TRANSFER_MS = 3600 * 1000,
    HEAD_MS = 60000,
    STALL_MS = 60000, /* a transfer that stands still so long is over */
    PIECE = 64 * 1024,
    BLOCK = 512,
    ERRORS_MAX = 4096,
    LIST_MAX = 16 * 1024 * 1024,
};

static const int64_t FILE_MAX = INT64_C(1) << 36; /* 64 GiB */

static int no_such(const struct docker *docker, const char *path, struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND, "%s: no file '%s'", docker->who, path);
}

/* ---- read ---- */

struct tar_in {
    struct fetch_stream *stream;
    struct error err;
    char piece[PIECE];
};

static la_ssize_t tar_in_read(struct archive *archive, void *arg, const void **out)
{
    struct tar_in *in = arg;
    ssize_t n = fetch_read(in->stream, in->piece, sizeof(in->piece), STALL_MS, &in->err);

    if (n < 0)
        archive_set_error(archive, EIO, "%s", in->err.message);
    *out = in->piece;
    return n;
}

static int read_entry(struct docker *docker, struct archive *archive, struct tar_in *in,
                      provider_sink_fn *sink, void *arg, struct error *err)
{
    auto_free char *piece = xmalloc(PIECE);
    struct archive_entry *entry = NULL;
    la_ssize_t n;
    int head = archive_read_open(archive, in, NULL, tar_in_read, NULL);

    if (head == ARCHIVE_OK)
        head = archive_read_next_header(archive, &entry);
    /* The warning: its name, which we do not use, has no form in this locale. */
    if (head != ARCHIVE_OK && head != ARCHIVE_WARN) {
        if (in->err.code == ERROR_NONE)
            return error_set(err, ERROR_UNAVAILABLE, "%s: what came is no tar", docker->who);
        *err = in->err;
        return error_prefix(err, "%s", docker->who);
    }
    if (archive_entry_filetype(entry) != AE_IFREG)
        return error_set(err, ERROR_INVALID, "%s: it is no regular file", docker->who);
    while ((n = archive_read_data(archive, piece, PIECE)) > 0) {
        if (sink(arg, str_n(piece, (size_t)n)) < 0)
            return error_set(err, ERROR_CONFLICT, "%s: the receiver gave up", docker->who);
    }
    if (n == 0)
        return 0;
    if (in->err.code == ERROR_NONE)
        return error_set(err, ERROR_UNAVAILABLE, "%s: the file broke off", docker->who);
    *err = in->err;
    return error_prefix(err, "%s", docker->who);
}

static int read_tar(struct docker *docker, struct str container, const char *path,
                    provider_sink_fn *sink, void *arg, struct error *err)
{
    char version[16];
    auto_buf struct buf url, query;
    struct fetch_request request = {
        .method = "GET", .unix_path = docker->unix_path, .timeout_ms = HEAD_MS};
    auto_free struct tar_in *in = xcalloc(1, sizeof(*in));
    struct archive *archive;
    int result;

    buf_init(&url, HTTP_URL_MAX);
    docker_path(&query, container, "/archive");
    rest_query(&query, "path", str_of(path));
    if (docker_version(docker, 0, version, err) < 0)
        return -1;
    (void)buf_printf(&url, "%s/%s%s", docker->base, version, query.p);
    request.url = url.p;
    if (fetch_open(docker->rest.fetch, &request, &in->stream, err) < 0)
        return error_prefix(err, "%s", docker->who);
    if (fetch_status(in->stream) == 404) {
        result = no_such(docker, path, err);
    } else if (fetch_status(in->stream) != 200) {
        result = rest_refused(docker->who, "GET", fetch_status(in->stream), -1, STR_NONE, err);
    } else {
        archive = archive_read_new();
        (void)archive_read_support_format_tar(archive);
        result = read_entry(docker, archive, in, sink, arg, err);
        (void)archive_read_free(archive);
    }
    fetch_close(in->stream);
    return result;
}

int docker_read(struct provider *provider, const struct provider_ref *ref, const char *path,
                provider_sink_fn *sink, void *arg, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_free char *absolute = NULL;
    struct docker_stat stat = {0};
    int result;

    if (docker_path_resolve(docker, ref->id, path, &absolute, err) < 0)
        return -1;
    result = docker_stat(docker, ref->id, absolute, &stat, err);
    if (result == 0 && !stat.exists)
        result = no_such(docker, path, err);
    else if (result == 0 && stat.directory)
        result = error_set(err, ERROR_INVALID, "%s: '%s' is a directory", docker->who, path);
    if (result == 0)
        result = read_tar(docker, ref->id, stat.path, sink, arg, err);
    docker_stat_done(&stat);
    return result;
}

/* ---- write ---- */

/* A tar of one file, made while it is sent. */
struct tar_out {
    provider_source_fn *source;
    void *arg;
    int64_t length, at; /* at: of the whole tar */
    uint32_t uid, gid;
    char head[BLOCK];
    bool gave_up;
};

static void octal(char *field, size_t size, uint64_t value)
{
    field[size - 1] = '\0';
    for (size_t i = size - 1; i-- > 0; value >>= 3)
        field[i] = (char)('0' + (value & 7));
}

static void tar_head(struct tar_out *out, const char *name, uint32_t mode)
{
    char *head = out->head;
    int64_t length = out->length;
    unsigned sum = 0;

    memset(head, 0, BLOCK);
    (void)snprintf(head, 100, "%s", name);
    octal(head + 100, 8, mode);
    octal(head + 108, 8, out->uid);
    octal(head + 116, 8, out->gid);
    if (length < (INT64_C(1) << 33)) {
        octal(head + 124, 12, (uint64_t)length);
    } else {
        /* Eleven octal digits do not suffice: the same field as a big-endian number. */
        head[124] = (char)0x80;
        for (int i = 0; i < 8; i++)
            head[128 + i] = (char)(length >> (8 * (7 - i)));
    }
    octal(head + 136, 12, (uint64_t)(time(NULL)));
    memset(head + 148, ' ', 8);
    head[156] = '0';
    memcpy(head + 257, "ustar\00000", 8);
    for (int i = 0; i < BLOCK; i++)
        sum += (unsigned char)head[i];
    octal(head + 148, 7, sum);
}

static int64_t tar_length(int64_t length)
{
    return BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK + (int64_t)2 * BLOCK;
}

static ssize_t tar_out_read(void *arg, void *p, size_t size)
{
    struct tar_out *out = arg;
    int64_t left;
    ssize_t n;

    if (out->at < BLOCK) {
        n = (ssize_t)(size < (size_t)(BLOCK - out->at) ? size : (size_t)(BLOCK - out->at));
        memcpy(p, out->head + out->at, (size_t)n);
    } else if (out->at < BLOCK + out->length) {
        left = BLOCK + out->length - out->at;
        n = out->source(out->arg, p, (int64_t)size < left ? size : (size_t)left);
        if (n <= 0 || n > left) {
            out->gave_up = true;
            return -1;
        }
    } else {
        left = tar_length(out->length) - out->at;
        n = (ssize_t)((int64_t)size < left ? (int64_t)size : left);
        memset(p, 0, (size_t)n);
    }
    out->at += n;
    return n;
}

static int upload(struct docker *docker, struct str container, const char *dir, struct tar_out *out,
                  struct error *err)
{
    char version[16];
    auto_buf struct buf url, query;
    auto_response struct fetch_response response = {0};
    struct pair type = {STR("Content-Type"), STR("application/x-tar")};
    struct fetch_request request = {
        .method = "PUT",
        .unix_path = docker->unix_path,
        .headers = &type,
        .header_count = 1,
        .source = tar_out_read,
        .source_arg = out,
        .source_length = tar_length(out->length),
        .timeout_ms = TRANSFER_MS,
    };

    buf_init(&url, HTTP_URL_MAX);
    docker_path(&query, container, "/archive");
    rest_query(&query, "path", str_of(dir));
    if (docker_version(docker, 0, version, err) < 0)
        return -1;
    (void)buf_printf(&url, "%s/%s%s", docker->base, version, query.p);
    request.url = url.p;
    if (fetch_call(docker->rest.fetch, &request, &response, err) < 0) {
        if (out->gave_up)
            return error_set(err, ERROR_CONFLICT, "%s: the content broke off", docker->who);
        return error_prefix(err, "%s", docker->who);
    }
    if (response.status != 200)
        return rest_refused(docker->who, "PUT", response.status, response.retry_after_s,
                            buf_str(&response.body), err);
    return 0;
}

static ssize_t spool_read(void *arg, void *p, size_t size)
{
    ssize_t n = read(*(const int *)arg, p, size);

    return n < 0 ? -1 : n;
}

/* Content of unknown length: *out_fd stands at its begin. */
static int spool(struct docker *docker, provider_source_fn *source, void *arg, int *out_fd,
                 int64_t *out_length, struct error *err)
{
    auto_close int fd = open("/var/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    auto_free char *piece = xmalloc(PIECE);
    ssize_t n;
    int result;

    *out_length = 0;
    if (fd < 0)
        return error_set_errno(err, errno, "%s: a temporary file in /var/tmp", docker->who);
    while ((n = source(arg, piece, PIECE)) > 0) {
        *out_length += n;
        if (*out_length > FILE_MAX)
            return error_set(err, ERROR_LIMIT, "%s: a file has at most 64 GiB", docker->who);
        result = fd_write_full(fd, piece, (size_t)n);
        if (result < 0)
            return error_set_errno(err, -result, "%s: a temporary file in /var/tmp", docker->who);
    }
    if (n < 0)
        return error_set(err, ERROR_CONFLICT, "%s: the content broke off", docker->who);
    if (lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, errno, "%s: a temporary file in /var/tmp", docker->who);
    *out_fd = take_fd(&fd);
    return 0;
}

static int script_ok(struct docker *docker, struct str container, const char *script, const char *a,
                     const char *b, struct error *err)
{
    auto_buf struct buf errors;
    int code;

    buf_init(&errors, ERRORS_MAX);
    code = docker_script(docker, container, script, a, b, &errors, err);
    if (code > 0)
        return error_set(err, ERROR_INVALID, "%s: %.*s", docker->who,
                         (int)(errors.len < 200 ? errors.len : 200), errors.p ? errors.p : "");
    return code;
}

/* The directory of `path` is there afterwards. */
static int make_parents(struct docker *docker, struct str container, const char *dir,
                        struct error *err)
{
    struct docker_stat stat;
    int result = docker_stat(docker, container, dir, &stat, err);

    if (result == 0 && stat.exists && !stat.directory)
        result = error_set(err, ERROR_INVALID, "%s: '%s' is no directory", docker->who, dir);
    else if (result == 0 && !stat.exists)
        result = script_ok(docker, container, "exec mkdir -p -- \"$1\"", dir, "", err);
    docker_stat_done(&stat);
    return result;
}

static int put(struct docker *docker, struct str container, const struct docker_stat *stat,
               struct tar_out *out, struct error *err)
{
    auto_free char *dir = xstrdup(stat->path);
    char name[48] = ".quicksand-", *slash = strrchr(dir, '/');
    auto_free char *from = NULL;
    struct error ignored;

    id_hex(name + strlen(name), 8);
    *(slash == dir ? slash + 1 : slash) = '\0';
    from = xasprintf("%s/%s", dir, name);
    if (docker_owner(docker, container, &out->uid, &out->gid, err) < 0 ||
        make_parents(docker, container, dir, err) < 0)
        return -1;
    tar_head(out, name, stat->exists ? stat->mode : 0644);
    if (upload(docker, container, dir, out, err) == 0 &&
        script_ok(docker, container, "mv -f -T -- \"$1\" \"$2\" || { rm -f -- \"$1\"; exit 1; }",
                  from, stat->path, err) == 0)
        return 0;
    (void)docker_script(docker, container, "rm -f -- \"$1\"", from, "", NULL, &ignored);
    return -1;
}

int docker_write(struct provider *provider, const struct provider_ref *ref, const char *path,
                 provider_source_fn *source, void *arg, int64_t length, struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_free char *absolute = NULL;
    struct docker_stat stat = {0};
    struct tar_out out = {.source = source, .arg = arg, .length = length};
    auto_close int fd = -1;
    int result;

    if (length > FILE_MAX)
        return error_set(err, ERROR_LIMIT, "%s: a file has at most 64 GiB", docker->who);
    if (docker_path_resolve(docker, ref->id, path, &absolute, err) < 0)
        return -1;
    result = docker_stat(docker, ref->id, absolute, &stat, err);
    if (result == 0 && (stat.directory || str_ends(str_of(absolute), STR("/"))))
        result = error_set(err, ERROR_INVALID, "%s: '%s' is a directory", docker->who, path);
    if (result == 0 && length < 0) {
        result = spool(docker, source, arg, &fd, &out.length, err);
        out.source = spool_read;
        out.arg = &fd;
    }
    if (result == 0)
        result = put(docker, ref->id, &stat, &out, err);
    docker_stat_done(&stat);
    return result;
}

/* ---- list, remove ---- */

/* "MODE SIZE MTIME PATH" as stat(1) printed it; the mode in hex. */
static bool parse_file(struct arena *arena, struct str text, struct provider_file *out)
{
    struct str rest = text, mode = str_split(&rest, ' '), size = str_split(&rest, ' ');
    struct str mtime = str_split(&rest, ' ');
    const char *slash = rest.len ? memrchr(rest.p, '/', rest.len) : NULL;
    char hex[16], *end;
    int64_t seconds;

    *out = (struct provider_file){0};
    if (!slash || !str_copy(mode, hex, sizeof(hex)) || !str_to_i64(size, &out->size) ||
        !str_to_i64(mtime, &seconds) || seconds > INT64_MAX / 1000000 || seconds < 0)
        return false;
    out->mode = (uint32_t)strtoul(hex, &end, 16);
    out->directory = (out->mode & 0170000) == 0040000;
    out->mode &= 07777;
    out->modified_at_us = seconds * 1000000;
    out->path = arena_str(arena, rest);
    out->name = str_skip(out->path, (size_t)(slash - rest.p) + 1);
    return *end == '\0' && out->name.len > 0;
}

/* Each begins with "//" at the start of a line. No name has a slash in it, so no name, not even one
 * with a line break, looks like that. */
static int parse_list(struct docker *docker, struct str text, struct arena *arena,
                      struct provider_file **out, size_t *out_count, struct error *err)
{
    size_t count = 0;

    for (struct str at = text; at.len > 0; at = str_skip(at, 1))
        count += str_starts(at, STR("\n//"));
    *out = arena_alloc(arena, (count + 1) * sizeof(**out));
    while (str_starts(text, STR("\n//"))) {
        struct str one = str_skip(text, 3);
        ptrdiff_t end = str_find_str(one, STR("\n//"));

        text = end < 0 ? STR_NONE : str_skip(one, (size_t)end);
        if (end >= 0)
            one.len = (size_t)end;
        else if (str_ends(one, STR("\n")))
            one.len--;
        if (!parse_file(arena, one, &(*out)[*out_count]))
            return error_set(err, ERROR_UNAVAILABLE, "%s: a list that is none", docker->who);
        (*out_count)++;
    }
    return 0;
}

int docker_list(struct provider *provider, const struct provider_ref *ref, const char *path,
                struct arena *arena, struct provider_file **out, size_t *out_count,
                struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_free char *absolute = NULL, *dir = NULL;
    auto_buf struct buf text, errors;
    struct docker_exec exec = {0};
    struct docker_stat stat = {0};
    int code = 0, result;

    *out = NULL;
    *out_count = 0;
    buf_init(&text, LIST_MAX);
    buf_init(&errors, LIST_MAX);
    (void)buf_add_char(&text, '\n');
    if (docker_path_resolve(docker, ref->id, path, &absolute, err) < 0)
        return -1;
    result = docker_stat(docker, ref->id, absolute, &stat, err);
    if (result == 0 && !stat.exists)
        result = no_such(docker, path, err);
    else if (result == 0 && !stat.directory)
        result = error_set(err, ERROR_INVALID, "%s: '%s' is no directory", docker->who, path);
    docker_stat_done(&stat);
    if (result < 0)
        return -1;
    /* The slash at the end: of a link, what it leads to is listed. */
    dir = xasprintf("%s%s", absolute, str_ends(str_of(absolute), STR("/")) ? "" : "/");
    exec.argv =
        (const char *const[]){"find", dir,  "-mindepth",     "1",  "-maxdepth", "1", "-exec",
                              "stat", "-c", "//%f %s %Y %n", "{}", "+",         NULL};
    if (docker_run(docker, ref->id, &exec, HEAD_MS, &text, &errors, &code, err) < 0)
        return -1;
    /* Some may have vanished between find and stat; nothing at all is a failure. */
    if (code != 0 && text.len == 1)
        return error_set(err, ERROR_INVALID, "%s: '%s': %.*s", docker->who, path,
                         (int)(errors.len < 160 ? errors.len : 160), errors.p ? errors.p : "");
    return parse_list(docker, buf_str(&text), arena, out, out_count, err);
}

int docker_remove(struct provider *provider, const struct provider_ref *ref, const char *path,
                  struct error *err)
{
    struct docker *docker = docker_of(provider);
    auto_free char *absolute = NULL;
    auto_buf struct buf errors;
    int code;

    buf_init(&errors, ERRORS_MAX);
    if (docker_path_resolve(docker, ref->id, path, &absolute, err) < 0)
        return -1;
    if (strspn(absolute, "/") == strlen(absolute))
        return error_set(err, ERROR_INVALID, "%s: '/' cannot be removed", docker->who);
    code = docker_script(docker, ref->id,
                         "[ -e \"$1\" ] || [ -L \"$1\" ] || exit 44; exec rm -rf -- \"$1\"",
                         absolute, "", &errors, err);
    if (code == 44)
        return no_such(docker, path, err);
    if (code > 0)
        return error_set(err, ERROR_INVALID, "%s: '%s': %.*s", docker->who, path,
                         (int)(errors.len < 160 ? errors.len : 160), errors.p ? errors.p : "");
    return code;
}
