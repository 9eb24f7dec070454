#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "account/api_key.h"
#include "base/fd.h"
#include "base/log.h"
#include "quicksand/serve.h"

enum { CREDENTIALS_MAX = 4096 };

static void write_file(int fd, const char *url, const char *key)
{
    char text[512];
    int len = snprintf(text, sizeof(text), "url = %s\nkey = %s\n", url, key);

    if (lseek(fd, 0, SEEK_SET) < 0 || ftruncate(fd, 0) < 0) {
        if (errno != EINVAL && errno != ESPIPE) /* /dev/null: there is no file to keep it in */
            log_warn("server", "cannot write the credentials file: %s; ignoring", strerror(errno));
        return;
    }
    if (fd_write_full(fd, text, (size_t)len) < 0)
        log_warn("server", "cannot write the credentials file; ignoring");
}

static bool read_key(int fd, char *out, size_t size)
{
    char text[CREDENTIALS_MAX];
    ssize_t len = pread(fd, text, sizeof(text), 0);
    struct str rest = str_n(text, len < 0 ? 0 : (size_t)len);

    while (rest.p) {
        struct str value = str_split(&rest, '\n');
        struct str name = str_trim(str_split(&value, '='));

        if (str_is(name, "key"))
            return str_copy(str_trim(value), out, size);
    }
    return false;
}

void credentials_settle(int fd, const char *url, const char *made_key, struct api_keys *keys,
                        char *out, size_t size)
{
    struct api_key_owner owner;
    struct error err;

    out[0] = '\0';
    if (made_key[0]) {
        (void)snprintf(out, size, "%s", made_key);
        write_file(fd, url, made_key);
        return;
    }
    if (!read_key(fd, out, size) || api_keys_find(keys, str_of(out), &owner, &err) < 0)
        out[0] = '\0';
}
