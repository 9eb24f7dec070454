#include "envd/core/ca_bundle.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "envd/core/users.h"
#include "envd/files/guest_stat.h"
#include "envd/files/upload_file.h"

enum { FILE_MAX = 16 * 1024 * 1024 };

static struct str trim_end(struct str pem)
{
    while (pem.len > 0 && (pem.p[pem.len - 1] == '\n' || pem.p[pem.len - 1] == '\r'))
        pem.len--;
    return pem;
}

/* Missing is empty. */
static int read_file(const char *path, struct buf *out, struct error *err)
{
    struct guest_stat st;
    int r = guest_stat(path, true, &st);

    if (r == -ENOENT)
        return 0;
    if (r == 0 && !S_ISREG(st.mode))
        return error_set(err, ERROR_INTERNAL, "'%s' is not a regular file", path);
    if (r == 0)
        r = fd_read_file_at(AT_FDCWD, path, out);
    if (r != 0)
        return error_set_errno(err, -r, "cannot read '%s'", path);
    return 0;
}

/* Where there is none, what another place has; programs are pointed to this one. */
static int read_bundle(const char *path, struct buf *out, struct error *err)
{
    static const char *const others[] = {CA_BUNDLE_OTHERS};
    struct error ignored;

    if (read_file(path, out, err) != 0)
        return -1;
    for (size_t i = 0; !out->len && i < sizeof(others) / sizeof(others[0]); i++)
        if (read_file(others[i], out, &ignored) != 0)
            buf_clear(out);
    return 0;
}

static int write_whole(const char *path, struct str text, struct error *err)
{
    const struct user root = {.name = "root", .home = "/root"};
    const struct http_headers none = {0};
    struct upload_file file;

    if (upload_file_open(&file, path, &root, err) != 0)
        return -1;
    if (upload_file_write(&file, text, err) == 0 && upload_file_commit(&file, &none, err) == 0)
        return 0;
    upload_file_abort(&file);
    return -1;
}

/* The text with every occurrence of a part left out. */
static void copy_without(struct buf *out, struct str text, struct str part)
{
    while (part.len > 0) {
        ptrdiff_t at = str_find_str(text, part);

        if (at < 0)
            break;
        buf_add(out, text.p, (size_t)at);
        text = str_skip(text, (size_t)at + part.len);
        if (text.len > 0 && text.p[0] == '\n')
            text = str_skip(text, 1);
    }
    buf_add_str(out, text);
}

static void add_line_end(struct buf *text)
{
    if (text->len > 0 && text->p[text->len - 1] != '\n')
        buf_add_char(text, '\n');
}

int ca_bundle_install(const char *bundle_path, const char *extra_path, struct str pem,
                      struct str previous, struct error *err)
{
    auto_buf struct buf before, after, extra;
    struct error ignored;

    buf_init(&before, FILE_MAX);
    buf_init(&after, FILE_MAX + CA_BUNDLE_MAX);
    buf_init(&extra, CA_BUNDLE_MAX + 1);
    pem = trim_end(pem);
    previous = trim_end(previous);
    if (pem.len == 0 || pem.len > CA_BUNDLE_MAX ||
        str_find_str(pem, STR("-----BEGIN CERTIFICATE-----")) < 0)
        return error_set(err, ERROR_INVALID, "'caBundle' holds no certificate, or too much");
    if (read_bundle(bundle_path, &before, err) != 0)
        return -1;
    copy_without(&after, buf_str(&before), str_eq(pem, previous) ? STR_NONE : previous);
    if (str_find_str(buf_str(&after), pem) < 0) {
        add_line_end(&after);
        buf_add_str(&after, pem);
        buf_add_char(&after, '\n');
    }
    if (!str_eq(buf_str(&before), buf_str(&after)) &&
        write_whole(bundle_path, buf_str(&after), err) != 0)
        return error_prefix(err, "cannot install the certificates of 'caBundle'");
    buf_add_str(&extra, pem);
    buf_add_char(&extra, '\n');
    if (write_whole(extra_path, buf_str(&extra), &ignored) != 0)
        log_warn("envd", "certificates will not outlive update-ca-certificates: %s",
                 ignored.message);
    return 0;
}

static bool is_hash(struct str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isxdigit((unsigned char)text.p[i]))
            return false;
    return text.len == 8;
}

void ca_bundle_link(const char *directory, struct str hash, const char *extra_path)
{
    char path[PATH_MAX];

    if (!is_hash(hash))
        return;
    (void)snprintf(path, sizeof(path), "%s/%.*s.0", directory, STR_ARG(hash));
    if (symlink(extra_path, path) < 0 && errno != EEXIST)
        log_warn("envd", "'%s' cannot be made: %s", path, strerror(errno));
}
