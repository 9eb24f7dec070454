#include "cli/core/cli_credentials.h"

#include <stdlib.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/cleanup.h"

void cli_credentials_parse(struct str text, struct cli_credentials *out)
{
    auto_free char *url = NULL;

    *out = (struct cli_credentials){.count = 0};
    while (text.p) {
        struct str value = str_split(&text, '\n');
        struct str name = str_trim(str_split(&value, '='));

        value = str_trim(value);
        if (str_is(name, "url")) {
            free(url);
            url = str_dup(value);
        } else if (str_is(name, "key") && value.len) {
            out->items = xrealloc(out->items, (out->count + 1) * sizeof(*out->items));
            out->items[out->count++] =
                (struct cli_credential){.url = url ? xstrdup(url) : NULL, .key = str_dup(value)};
        }
    }
}

void cli_credentials_done(struct cli_credentials *credentials)
{
    for (size_t i = 0; i < credentials->count; i++) {
        free(credentials->items[i].url);
        free(credentials->items[i].key);
    }
    free(credentials->items);
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
    const struct cli_credential *found = find_last(credentials, url ? url : CLI_DEFAULT_URL);

    if (!found && !url && credentials->count)
        found = &credentials->items[credentials->count - 1];
    return found;
}
