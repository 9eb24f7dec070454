/* Git hosts of the configuration: name -> {"type", "api_url"}, checked, with names in lower case and the
 * URL of the API filled in. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"
#include "runtime/config/settings_internal.h"

enum { HOSTS_MAX = 64, HOST_NAME_MAX = 259, API_URL_MAX = 1024 };

static bool host_name(const char *name, char out[HOST_NAME_MAX + 1])
{
    auto_free char *url = xasprintf("https://%s/", name);

    if (!*name || !str_copy(str_of(name), out, HOST_NAME_MAX + 1) || strpbrk(name, "/?#@\\[]") ||
        !fetch_url_ok(url))
        return false;
    str_lower(str_of(out), out);
    return true;
}

static void read_host(struct loader *loader, const char *name, const json_t *record)
{
    static const char *const keys[] = {"type", "api_url", NULL};
    struct str type = json_get_str(record, "type");
    auto_free char *path = xasprintf("git_hosts.%s", name);
    auto_free char *where = xasprintf("%s.api_url", path);
    auto_free char *url = xstrdup("");
    char host[HOST_NAME_MAX + 1];
    bool gitea = str_is(type, "gitea") || str_is(type, "forgejo");

    if (!json_is_object(record) || !host_name(name, host)) {
        loader_fault(loader, path, "must be HOST or HOST:PORT with {\"type\", \"api_url\"}");
        return;
    }
    loader_known(loader, record, path, keys);
    if (!gitea && !str_is(type, "github"))
        loader_fault(loader, path, "type must be github, gitea or forgejo");
    loader_text(loader, record, path, "api_url", &url);
    if (!*url) {
        free(url);
        url = strcmp(host, "github.com") == 0
                  ? xstrdup("https://api.github.com")
                  : xasprintf("https://%s/api/%s", host, gitea ? "v1" : "v3");
    }
    for (size_t len = strlen(url); len && url[len - 1] == '/';)
        url[--len] = '\0';
    if (!fetch_url_ok(url) || strpbrk(url, "?#") || strlen(url) > API_URL_MAX)
        loader_fault(loader, where, "must be an http or https URL without user, '?' and '#'");
    (void)json_object_set_new(
        loader->out->git_hosts, host,
        json_pack("{s:s,s:s}", "type", gitea ? "gitea" : "github", "api_url", url));
}

void loader_git_hosts(struct loader *loader)
{
    json_t *hosts = loader_object(loader, loader->file, "", "git_hosts"), *record;
    const char *name;

    if (json_object_size(hosts) > HOSTS_MAX) {
        loader_fault(loader, "git_hosts", "has more than %d hosts", HOSTS_MAX);
        return;
    }
    json_object_foreach (hosts, name, record)
        read_host(loader, name, record);
}
