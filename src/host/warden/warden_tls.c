/* Certificates and keys for the server, which may read none of their files.
 *
 * All of them go to it as one file in memory, over a channel of their own: the first before it is started, another
 * whenever somebody connects to DATA/run/tls.sock (`quicksand tls reload`; only root can). The connection is all
 * that is asked, and gets what the server said as its answer. What the server took last is what it gets again when
 * it has to be started anew, whatever the files are by then. Bytes are copied here and never looked at. */
#include "host/warden/warden_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"

enum { ANSWER_MAX = 4096, ANSWER_S = 5, PATIENCE_S = 1, BACKLOG = 16 };

static int copy_file(const char *path, int to, size_t *size, struct error *err)
{
    auto_buf struct buf text = {0};
    int r;

    buf_init(&text, WARDEN_TLS_MAX);
    r = fd_read_file_at(AT_FDCWD, path, &text);
    if (r == 0 && !buf_add_char(&text, '\n'))
        r = -EFBIG;
    if (r == 0 && (*size += text.len) > WARDEN_TLS_MAX)
        r = -EFBIG;
    if (r == 0)
        r = fd_write_full(to, text.p, text.len);
    if (text.p)
        explicit_bzero(text.p, text.len);
    return r < 0 ? error_set_errno(err, -r, "TLS: read '%s'", path) : 0;
}

/* All files, certificate and key in turn; where one file has both it is named twice and copied once. */
static int make_bundle(const struct warden_config *config, int *out_fd, struct error *err)
{
    auto_close int fd = memfd_create("tls", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t size = 0;

    if (fd < 0)
        return error_set_errno(err, errno, "make a file in memory");
    for (size_t i = 0; i < config->tls_file_count; i++)
        if ((i % 2 == 0 || strcmp(config->tls_files[i], config->tls_files[i - 1]) != 0) &&
            copy_file(config->tls_files[i], fd, &size, err) < 0)
            return -1;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return error_set_errno(err, errno, "seal a file in memory");
    *out_fd = take_fd(&fd);
    return 0;
}

int warden_tls_check(const struct warden_config *config, struct error *err)
{
    auto_close int fd = -1;

    return make_bundle(config, &fd, err);
}

int warden_tls_channel(struct warden *warden, int *out_theirs, struct error *err)
{
    struct timeval limit = {.tv_sec = ANSWER_S};
    int pair[2], r;

    if (!warden->config->tls_sockets)
        return 0;
    if ((warden->tls_listen_fd < 0 && warden_listen_at(warden, WARDEN_TLS_SOCKET, 0, BACKLOG,
                                                       &warden->tls_listen_fd, err) < 0) ||
        (warden->tls_bundle_fd < 0 && make_bundle(warden->config, &warden->tls_bundle_fd, err) < 0))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return error_set_errno(err, errno, "socketpair");
    close_fd(&warden->tls_fd);
    warden->tls_fd = pair[0];
    *out_theirs = pair[1];
    (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    r = fd_send(warden->tls_fd, "", 1, &warden->tls_bundle_fd, 1);
    return r < 0 ? error_set_errno(err, -r, "hand over certificates") : 0;
}

/* Answers of earlier requests, which came too late for who asked. */
static void forget_answers(struct warden *warden)
{
    char text[ANSWER_MAX];
    size_t none = 0;

    while (fd_recv(warden->tls_fd, text, sizeof(text), NULL, &none, MSG_DONTWAIT) > 0)
        none = 0;
}

/* The server's words in out, which begin with "ok" when it took the certificates. */
static int reload(struct warden *warden, char *out, size_t size, struct error *err)
{
    auto_close int bundle = -1;
    size_t none = 0;
    ssize_t len;
    int r;

    if (!warden->server.pid)
        return error_set(err, ERROR_UNAVAILABLE, "the server is being started; try again");
    if (make_bundle(warden->config, &bundle, err) < 0)
        return -1;
    forget_answers(warden);
    r = fd_send(warden->tls_fd, "", 1, &bundle, 1);
    len = r < 0 ? r : fd_recv(warden->tls_fd, out, size - 1, NULL, &none, 0);
    if (len <= 0)
        return error_set_errno(err, len ? (int)-len : EPIPE, "the server does not answer");
    out[len] = '\0';
    if (strncmp(out, "ok", 2) != 0)
        return error_set(err, ERROR_INVALID, "%.300s", out);
    close_fd(&warden->tls_bundle_fd);
    warden->tls_bundle_fd = take_fd(&bundle);
    return 0;
}

void warden_tls_asked(struct warden *warden)
{
    auto_close int fd = accept4(warden->tls_listen_fd, NULL, NULL, SOCK_CLOEXEC);
    struct timeval limit = {.tv_sec = PATIENCE_S};
    char text[ANSWER_MAX] = "";
    struct error err;

    if (fd < 0)
        return;
    if (reload(warden, text, sizeof(text), &err) < 0) {
        log_error("warden", "certificates stay as they were: %s", err.message);
        (void)snprintf(text, sizeof(text), "certificates stay as they were: %s\n", err.message);
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

void warden_tls_reload(struct warden *warden)
{
    char text[ANSWER_MAX] = "";
    struct error err;

    if (reload(warden, text, sizeof(text), &err) < 0)
        log_error("warden", "certificates stay as they were: %s", err.message);
}

void warden_tls_stop(struct warden *warden)
{
    warden_unlisten_at(warden, WARDEN_TLS_SOCKET, &warden->tls_listen_fd);
    close_fd(&warden->tls_fd);
    close_fd(&warden->tls_bundle_fd);
}
