/* How it works
 *
 * OpenSSL hands the keys of a connection to the kernel at the end of the handshake (SSL_OP_ENABLE_KTLS), each direction
 * by itself, when the socket is TCP, the kernel has TLS and knows the cipher; else it goes on by itself. Its own version
 * decides what it hands over: 3.0 does what is sent, and of TLS 1.2 also what is received.
 *
 * The kernel's keys stay those of the handshake. A peer that asks for new ones (TLS 1.3) must get them before anything else is
 * said, so nothing more is said on such a connection. OpenSSL would obey with its next write, which it is not asked for. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "protocol/stream/stream.h"
#include "protocol/tls/tls_internal.h"

bool tls_kernel(void)
{
    auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    /* Only what is connected can have it, so that this is what a kernel says that knows it. */
    return fd >= 0 &&
           (setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) == 0 || errno == ENOTCONN);
}

void tls_kernel_allow(SSL_CTX *ssl_ctx)
{
    (void)SSL_CTX_set_options(ssl_ctx, SSL_OP_ENABLE_KTLS);
}

void tls_kernel_refuse(SSL *ssl)
{
    (void)SSL_clear_options(ssl, SSL_OP_ENABLE_KTLS);
}

void tls_kernel_note(SSL *ssl, struct stream_filter *filter)
{
    filter->kernel_sends = BIO_get_ktls_send(SSL_get_wbio(ssl));
    if (filter->kernel_sends)
        filter->write_needs = UV_WRITABLE;
}

bool tls_kernel_outdated(const SSL *ssl)
{
    return SSL_get_key_update_type(ssl) != SSL_KEY_UPDATE_NONE;
}

bool tls_kernel_receives(SSL *ssl)
{
    return BIO_get_ktls_recv(SSL_get_rbio(ssl)) && !SSL_has_pending(ssl);
}
