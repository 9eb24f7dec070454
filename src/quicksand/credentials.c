/* The file in which whoever starts servers keeps their first keys. The server keeps only hashes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "cli/core/cli_credentials.h"
#include "domain/account/api_key.h"
#include "quicksand/serve.h"

static int read_file(int fd, struct buf *out)
{
    char part[4096];
    ssize_t len;

    while ((len = pread(fd, part, sizeof(part), (off_t)out->len)) > 0)
        if (!buf_add(out, part, (size_t)len))
            return -EFBIG;
    return len < 0 ? -errno : 0;
}

/* Behind what is there: keys of other servers stay whole whatever happens. */
static int append(int fd, struct str before, const char *url, const char *key)
{
    auto_buf struct buf text = {0};
    bool in_line = before.len && before.p[before.len - 1] != '\n';
    int r;

    buf_init(&text, 4096);
    if (!buf_printf(&text, "%surl = %s\nkey = %s\n", in_line ? "\n" : "", url, key))
        return -ENOMEM;
    if (before.len + text.len > CLI_CREDENTIALS_MAX)
        return -EFBIG;
    if (lseek(fd, (off_t)before.len, SEEK_SET) < 0)
        return -errno;
    r = fd_write_full(fd, text.p, text.len);
    return r < 0 ? r : fsync(fd) < 0 ? -errno : 0;
}

/* The last pair whose key this server knows: for its address, else for any (it has moved). */
static const struct cli_credential *find_own(const struct cli_credentials *all, const char *url,
                                             struct api_keys *keys)
{
    const struct cli_credential *moved = NULL;

    for (size_t i = all->count; i > 0; i--) {
        const struct cli_credential *item = &all->items[i - 1];
        bool here = item->url && cli_same_server(item->url, url);
        struct api_key_owner owner;
        struct error err;

        if ((here || !moved) && api_keys_find(keys, str_of(item->key), &owner, &err) == 0) {
            if (here)
                return item;
            moved = item;
        }
    }
    return moved;
}

static int settle(int fd, const char *url, const char *made_key, struct api_keys *keys,
                  bool *out_kept, char out_key[API_KEY_GIVEN_MAX + 1])
{
    struct cli_credentials all;
    auto_buf struct buf text = {0};
    const struct cli_credential *own;
    int r;

    buf_init(&text, CLI_CREDENTIALS_MAX);
    r = read_file(fd, &text);
    if (r < 0)
        return r;
    cli_credentials_parse(buf_str(&text), &all);
    own = made_key[0] ? NULL : find_own(&all, url, keys);
    if (made_key[0])
        r = append(fd, buf_str(&text), url, made_key);
    else if (own && cli_credentials_find(&all, url) != own)
        r = append(fd, buf_str(&text), url, own->key);
    *out_kept = r == 0 && (made_key[0] || own);
    if (own)
        (void)str_copy(str_of(own->key), out_key, API_KEY_GIVEN_MAX + 1);
    cli_credentials_done(&all);
    return r;
}

bool credentials_settle(int fd, const char *url, const char *made_key, struct api_keys *keys,
                        char out_key[API_KEY_GIVEN_MAX + 1])
{
    struct stat st;
    bool kept = false;
    int r;

    (void)str_copy(str_of(made_key), out_key, API_KEY_GIVEN_MAX + 1);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) /* /dev/null: there is no file to keep it in */
        return false;
    (void)flock(fd, LOCK_EX); /* another server of the same user may be starting */
    r = settle(fd, url, made_key, keys, &kept, out_key);
    (void)flock(fd, LOCK_UN);
    if (r < 0)
        log_warn("server", "cannot keep the key in ~/.quicksand/credentials: %s; ignoring",
                 strerror(-r));
    return kept;
}
