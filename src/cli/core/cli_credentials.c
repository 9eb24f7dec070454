#include "cli/core/cli_credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"

void cli_credentials_parse(struct str text, struct cli_credentials *out)
{
    auto_free char *url = NULL, *name_of = NULL;

    *out = (struct cli_credentials){.count = 0};
    while (text.p) {
        struct str value = str_split(&text, '\n');
        struct str name = str_trim(str_split(&value, '='));

        value = str_trim(value);
        if (str_is(name, "url")) {
            free(url);
            url = str_dup(value);
        } else if (str_is(name, "name")) {
            free(name_of);
            name_of = value.len ? str_dup(value) : NULL;
        } else if (str_is(name, "use")) {
            free(out->current);
            out->current = value.len ? str_dup(value) : NULL;
        } else if (str_is(name, "key") && value.len) {
            out->items = xrealloc(out->items, (out->count + 1) * sizeof(*out->items));
            out->items[out->count++] = (struct cli_credential){
                .url = url ? xstrdup(url) : NULL, .key = str_dup(value), .name = name_of};
            name_of = NULL;
        }
    }
}

int cli_credentials_load(const char *path, struct cli_credentials *out, struct error *err)
{
    auto_buf struct buf text = {0};
    int rc;

    *out = (struct cli_credentials){.count = 0};
    buf_init(&text, CLI_CREDENTIALS_MAX);
    rc = fd_read_file_at(AT_FDCWD, path, &text);
    if (rc < 0 && rc != -ENOENT && rc != -ENOTDIR)
        return error_set_errno(err, -rc, "reading '%s'", path);
    if (rc == 0)
        cli_credentials_parse(buf_str(&text), out);
    return 0;
}

static void free_item(struct cli_credential *item)
{
    free(item->url);
    free(item->key);
    free(item->name);
}

void cli_credentials_done(struct cli_credentials *credentials)
{
    for (size_t i = 0; i < credentials->count; i++)
        free_item(&credentials->items[i]);
    free(credentials->items);
    free(credentials->current);
    *credentials = (struct cli_credentials){.count = 0};
}

static bool is_near(struct str host)
{
    union address here;

    return address_parse("127.0.0.1:0", &here) && address_is_reached(&here, host, 0);
}

bool cli_same_server(const char *url, const char *other)
{
    struct str host = STR_NONE, other_host = STR_NONE;
    uint16_t port = 80, other_port = 80;

    if (str_starts(str_of(url), STR("https://")) != str_starts(str_of(other), STR("https://")) ||
        !address_of_url(str_of(url), &host, &port) ||
        !address_of_url(str_of(other), &other_host, &other_port) || port != other_port)
        return false;
    return str_eq_nocase(host, other_host) || (is_near(host) && is_near(other_host));
}

static const struct cli_credential *find_last(const struct cli_credentials *credentials,
                                              const char *url)
{
    for (size_t i = credentials->count; i > 0; i--) {
        const struct cli_credential *item = &credentials->items[i - 1];

        if (!item->url || cli_same_server(item->url, url))
            return item;
    }
    return NULL;
}

const struct cli_credential *cli_credentials_find(const struct cli_credentials *credentials,
                                                  const char *url)
{
    const struct cli_credential *found = NULL;

    if (!url && credentials->current)
        found = find_last(credentials, credentials->current);
    if (!found)
        found = find_last(credentials, url ? url : CLI_DEFAULT_URL);

    if (!found && !url && credentials->count)
        found = &credentials->items[credentials->count - 1];
    return found;
}

static bool is_named(const struct cli_credential *item, const char *word)
{
    return (item->name && strcmp(item->name, word) == 0) ||
           (item->url && strstr(word, "://") && cli_same_server(item->url, word));
}

const struct cli_credential *cli_credentials_named(const struct cli_credentials *credentials,
                                                   const char *word)
{
    for (size_t i = credentials->count; i > 0; i--)
        if (is_named(&credentials->items[i - 1], word))
            return &credentials->items[i - 1];
    return NULL;
}

bool cli_credentials_use(struct cli_credentials *credentials, const char *word)
{
    const struct cli_credential *item = cli_credentials_named(credentials, word);

    if (!item || !item->url)
        return false;
    free(credentials->current);
    credentials->current = xstrdup(item->url);
    return true;
}

/* The current one is no longer that, when it was one of these. */
bool cli_credentials_remove(struct cli_credentials *credentials, const char *word)
{
    size_t kept = 0, count = credentials->count;

    for (size_t i = 0; i < count; i++) {
        struct cli_credential *item = &credentials->items[i];

        if (!is_named(item, word)) {
            credentials->items[kept++] = *item;
            continue;
        }
        if (credentials->current && item->url && cli_same_server(item->url, credentials->current)) {
            free(credentials->current);
            credentials->current = NULL;
        }
        free_item(item);
    }
    credentials->count = kept;
    return kept < count;
}

void cli_credentials_put(struct cli_credentials *credentials, const char *url, const char *name,
                         const char *key)
{
    (void)cli_credentials_remove(credentials, url);
    (void)cli_credentials_remove(credentials, name);
    credentials->items =
        xrealloc(credentials->items, (credentials->count + 1) * sizeof(*credentials->items));
    credentials->items[credentials->count++] =
        (struct cli_credential){.url = xstrdup(url), .key = xstrdup(key), .name = xstrdup(name)};
    free(credentials->current);
    credentials->current = xstrdup(url);
}

void cli_credentials_write(const struct cli_credentials *credentials, struct buf *out)
{
    for (size_t i = 0; i < credentials->count; i++) {
        const struct cli_credential *item = &credentials->items[i];

        if (item->name)
            (void)buf_printf(out, "name = %s\n", item->name);
        if (item->url)
            (void)buf_printf(out, "url = %s\n", item->url);
        (void)buf_printf(out, "key = %s\n", item->key);
    }
    if (credentials->current)
        (void)buf_printf(out, "use = %s\n", credentials->current);
}
