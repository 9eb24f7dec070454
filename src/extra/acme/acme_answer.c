/* See acme_answer.h. The path is looked at first, so that nothing is opened for any other request; the file is a short one
 * that root made a moment ago. */
#include "extra/acme/acme_answer.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "protocol/http/http_server.h"

enum { TOKEN_MAX = 128, VALUE_MAX = 512 };

bool acme_answer(struct http_exchange *ex, const char *data_dir)
{
    struct str path = http_request(ex)->path,
               token = str_skip(path, sizeof(ACME_ANSWER_PREFIX) - 1);
    struct pair type = {STR("Content-Type"), STR("application/octet-stream")};
    char name[512], value[VALUE_MAX];
    auto_close int fd = -1;
    ssize_t len;

    if (!str_starts(path, STR(ACME_ANSWER_PREFIX)) || !base64url_is(token) || token.len > TOKEN_MAX)
        return false;
    (void)snprintf(name, sizeof(name), "%s/tls/challenges/%.*s", data_dir, STR_ARG(token));
    fd = open(name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    len = fd < 0 ? -1 : read(fd, value, sizeof(value));
    if (len <= 0)
        return false;
    http_reply(ex, 200, &type, 1, str_n(value, (size_t)len));
    return true;
}
