/* See server_tls.h. One thread waits for the warden; a handshake never waits for it. */
#include "quicksand/server_tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/thread.h"
#include "host/warden/warden.h"
#include "protocol/tls/tls.h"

/* What is spoken above TLS, the best first. */
#define PROTOCOLS "h2,http/1.1"

enum { TOLD_MAX = 3000 };

struct server_tls {
    int channel;
    struct tls_context *context;
    struct thread thread;
};

/* 1: a bundle, 0: the warden is gone. */
static int receive(int channel, struct buf *out, struct error *err)
{
    auto_close int fd = -1;
    char byte, part[4096];
    size_t fds = 1;
    ssize_t len = fd_recv(channel, &byte, 1, &fd, &fds, 0);
    off_t at = 0;

    if (len <= 0 || fds != 1)
        return len == 0 ? 0 : error_set_errno(err, len < 0 ? (int)-len : EPROTO, "certificates");
    /* Its position is shared with the warden. */
    while ((len = pread(fd, part, sizeof(part), at)) > 0 && buf_add(out, part, (size_t)len))
        at += len;
    explicit_bzero(part, sizeof(part));
    return len == 0 ? 1 : error_set_errno(err, len < 0 ? errno : EFBIG, "read certificates");
}

static void forget(struct buf *text)
{
    if (text->p)
        explicit_bzero(text->p, text->len);
    buf_done(text);
}

static void log_certificates(struct tls_context *context, struct buf *told)
{
    struct str rest;

    tls_context_tell(context, told);
    rest = buf_str(told);
    while (rest.p) {
        struct str line = str_split(&rest, '\n');

        if (line.len && str_ends(line, STR(")")))
            log_warn("tls", "certificate for %.*s", STR_ARG(line));
        else if (line.len)
            log_info("tls", "certificate for %.*s", STR_ARG(line));
    }
}

static void take_over(struct server_tls *tls, struct str bundle)
{
    auto_buf struct buf told = {0}, answer = {0};
    struct error err;

    buf_init(&told, TOLD_MAX);
    buf_init(&answer, (size_t)TOLD_MAX + 100);
    if (tls_context_replace(tls->context, bundle, &err) < 0) {
        (void)buf_printf(&answer, "%s", err.message);
    } else {
        log_certificates(tls->context, &told);
        (void)buf_printf(&answer, "ok\n%.*s", STR_ARG(buf_str(&told)));
    }
    (void)fd_send(tls->channel, answer.p, answer.len, NULL, 0);
}

static void run(void *arg)
{
    struct server_tls *tls = arg;
    int r;

    do {
        struct buf bundle;
        struct error err;

        buf_init(&bundle, WARDEN_TLS_MAX);
        r = receive(tls->channel, &bundle, &err);
        if (r > 0)
            take_over(tls, buf_str(&bundle));
        else if (r < 0)
            (void)fd_send(tls->channel, err.message, strlen(err.message), NULL, 0);
        forget(&bundle);
    } while (r != 0);
}

int server_tls_open(int channel_consume, struct server_tls **out, struct error *err)
{
    struct server_tls *tls = xcalloc(1, sizeof(*tls));
    auto_buf struct buf told = {0};
    struct buf bundle;
    int r;

    tls->channel = channel_consume;
    buf_init(&bundle, WARDEN_TLS_MAX);
    buf_init(&told, TOLD_MAX);
    r = receive(tls->channel, &bundle, err);
    if (r == 0)
        r = error_set(err, ERROR_INTERNAL, "the warden sent none");
    if (r > 0)
        r = tls_context_new(PROTOCOLS, buf_str(&bundle), &tls->context, err);
    forget(&bundle);
    if (r == 0)
        r = thread_start(&tls->thread, "tls", THREAD_STACK_DEFAULT, run, tls, err);
    if (r < 0) {
        server_tls_close(tls);
        return error_prefix(err, "certificates for --listen-tls");
    }
    log_certificates(tls->context, &told);
    log_info("tls", "records are made by %s", tls_kernel() ? "the kernel" : "OpenSSL");
    *out = tls;
    return 0;
}

struct stream_filter *server_tls_filter(struct server_tls *tls)
{
    return tls_filter_new(tls->context);
}

void server_tls_words(const struct config *config, uint16_t port, char domain[SERVER_DOMAIN_SIZE],
                      char hsts[SERVER_HSTS_SIZE])
{
    if (config->domain[0] && !strchr(config->domain, ':') && port != 443)
        (void)snprintf(domain, SERVER_DOMAIN_SIZE, "%s:%u", config->domain, port);
    if (config->hsts_s)
        (void)snprintf(hsts, SERVER_HSTS_SIZE, "max-age=%lld", (long long)config->hsts_s);
}

void server_tls_close(struct server_tls *tls)
{
    if (!tls)
        return;
    (void)shutdown(tls->channel, SHUT_RDWR);
    thread_join(&tls->thread);
    close_fd(&tls->channel);
    tls_context_free(tls->context);
    free(tls);
}
