#include "domain/network/egress_authority.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "protocol/tls/tls_make.h"

#define FILE_NAME "egress-ca.pem"

static int make_file(int dir_fd, const char *directory, struct error *err)
{
    struct tls_made made = {0};
    struct buf text;
    int r = tls_make_authority(NULL, &made, err);

    buf_init(&text, 2 * TLS_MAKE_SIZE);
    if (r == 0) {
        (void)buf_add_str(&text, buf_str(&made.certificate));
        (void)buf_add_str(&text, buf_str(&made.key));
        r = fd_make_file_at(dir_fd, FILE_NAME, buf_str(&text));
        explicit_bzero(text.p, text.len);
        if (r < 0)
            r = error_set_errno(err, -r, "make %s/" FILE_NAME, directory);
    }
    buf_done(&text);
    tls_made_done(&made);
    return r;
}

static int damaged(const char *directory, struct error *err)
{
    return error_set(err, ERROR_INTERNAL,
                     "%s/" FILE_NAME " is damaged: bring it back from a copy, or remove it and "
                     "start the server again",
                     directory);
}

/* The certificate stands first. */
static int split(const char *directory, const struct buf *text, struct egress_authority *out,
                 struct error *err)
{
    static const char end[] = "-----END CERTIFICATE-----\n";
    ptrdiff_t at = str_find_str(buf_str(text), str_of(end));
    size_t len = (size_t)at + strlen(end);

    if (at < 0)
        return damaged(directory, err);
    (void)buf_add(&out->certificate, text->p, len);
    (void)buf_add(&out->key, text->p + len, text->len - len);
    if (tls_make_hash(buf_str(&out->certificate), out->hash, sizeof(out->hash)) < 0 ||
        str_find_str(buf_str(&out->key), STR("PRIVATE KEY-----")) < 0)
        return damaged(directory, err);
    return 0;
}

static int read_file(int dir_fd, const char *directory, struct egress_authority *out,
                     struct error *err)
{
    struct buf text;
    struct stat st;
    int r;

    if (fstatat(dir_fd, FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return error_set_errno(err, errno, "look for %s/" FILE_NAME, directory);
    if (st.st_mode & 077)
        return error_set(err, ERROR_INTERNAL,
                         "%s/" FILE_NAME " can be read by others: give it mode 0600", directory);
    buf_init(&text, 2 * TLS_MAKE_SIZE);
    r = fd_read_file_at(dir_fd, FILE_NAME, &text);
    r = r < 0 ? error_set_errno(err, -r, "read %s/" FILE_NAME, directory)
              : split(directory, &text, out, err);
    if (text.p)
        explicit_bzero(text.p, text.len);
    buf_done(&text);
    return r;
}

int egress_authority_open(const char *directory, struct egress_authority **out, struct error *err)
{
    auto_close int dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct egress_authority *authority;

    if (dir_fd < 0)
        return error_set_errno(err, errno, "open %s", directory);
    if (faccessat(dir_fd, FILE_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
        make_file(dir_fd, directory, err) < 0)
        return -1;
    authority = xcalloc(1, sizeof(*authority));
    buf_init(&authority->certificate, TLS_MAKE_SIZE);
    buf_init(&authority->key, TLS_MAKE_SIZE);
    if (read_file(dir_fd, directory, authority, err) < 0) {
        egress_authority_close(authority);
        return -1;
    }
    *out = authority;
    return 0;
}

void egress_authority_close(struct egress_authority *authority)
{
    if (!authority)
        return;
    if (authority->key.p)
        explicit_bzero(authority->key.p, authority->key.len);
    buf_done(&authority->certificate);
    buf_done(&authority->key);
    free(authority);
}
