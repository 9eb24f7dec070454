/* TLS behind the filter of system calls: everything that it needs of the host is there before. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"
#include "egress/process/egress_internal.h"
#include "protocol/stream/stream.h"
#include "protocol/tls/tls_intercept.h"
#include "protocol/tls/tls_make.h"

static void write_all(const char *path, struct str text)
{
    FILE *file = fopen(path, "w");

    CHECK(file && fwrite(text.p, 1, text.len, file) == text.len && fclose(file) == 0);
}

static struct tls_trust *trust_in(const struct tls_made *made)
{
    char path[] = "/tmp/egress-fence-XXXXXX";
    struct tls_trust *trust;

    CHECK(close(mkstemp(path)) == 0);
    write_all(path, buf_str(&made->certificate));
    OK(tls_trust_new(path, &trust, &err));
    CHECK(unlink(path) == 0);
    return trust;
}

static void meet(struct tls_trust *trust, const struct tls_made *made, const int fds[2])
{
    struct tls_authority *authority;
    struct stream_filter *client, *server;

    OK(fence_up(&err));
    CHECK(open("/etc/hostname", O_RDONLY | O_CLOEXEC) < 0 && errno == EPERM);
    OK(tls_authority_new(buf_str(&made->certificate), buf_str(&made->key), &authority, &err));
    client = tls_filter_verified(trust, "a.example");
    server = tls_filter_signed(authority, "a.example", STR_NONE);
    CHECK(server && !tls_filter_signed(authority, "a b", STR_NONE));
    for (int i = 0; i < 10 && (client->opening || server->opening); i++) {
        CHECK_INT(client->ops->peek(client, fds[0]), -EAGAIN);
        CHECK_INT(server->ops->peek(server, fds[1]), -EAGAIN);
    }
    CHECK(!client->opening && !server->opening && !tls_filter_fault(client));
    CHECK_STR(client->protocol, "http/1.1");
}

/* In a process of its own: sanitizers cannot look for leaks behind the fence. */
TEST(tls_works_behind_the_fence)
{
    struct tls_made made = {0};
    struct tls_trust *trust;
    int fds[2], status;
    pid_t pid;

    OK(tls_make_authority("example", &made, &err));
    trust = trust_in(&made);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    pid = fork();
    if (pid == 0) {
        meet(trust, &made, fds);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    tls_trust_free(trust);
    tls_made_done(&made);
}
