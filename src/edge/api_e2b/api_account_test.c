/* Teams, keys and the audit log on the wire, with the real store behind them. */
#include "base/cleanup.h"
#include "base/test.h"
#include "domain/account/account.h"
#include "domain/account/team.h"
#include "edge/api_e2b/api_internal.h"
#include "protocol/json/json_shape.h"

struct site {
    struct api api;
    char key[API_KEY_SIZE]; /* the operator's */
};

static void site_open(struct site *site)
{
    struct api_config config = {0};
    struct error err = {0};

    *site = (struct site){0};
    CHECK_INT(store_open(":memory:", &config.store, &err), 0);
    CHECK_INT(account_ensure_default(config.store, NULL, site->key, &err), 0);
    config.keys = api_keys_new(config.store, NULL);
    api_init(&site->api, &config);
}

static void site_close(struct site *site)
{
    api_done(&site->api);
    api_keys_free(site->api.config.keys);
    store_close(site->api.config.store);
}
#define auto_site __attribute__((cleanup(site_close)))

static int ask(struct site *site, const char *key, const char *method, const char *path,
               const char *body, json_t **out)
{
    struct api_call call = {.api = &site->api,
                            .desk = &site->api.desk,
                            .method = str_of(method),
                            .path = str_of(path),
                            .key = str_of(key),
                            .body = str_of(body ? body : ""),
                            .request_id = "0123456789abcdef"};
    struct error err = {0};
    char allow[HTTP_ALLOW_SIZE];

    CHECK_INT(
        api_endpoints_find(call.method, call.path, &call.arena, &call.endpoint, call.params, allow),
        CALL_FOUND);
    call_run(&call.call);
    if (out) {
        *out = NULL;
        if (call.text)
            CHECK_INT(json_parse(str_of(call.text), out, &err), 0);
    }
    free(call.text);
    arena_done(&call.arena);
    return call.status;
}

TEST(keys_on_the_wire)
{
    auto_site struct site site;
    auto_json json_t *made = NULL, *list = NULL, *teams = NULL, *token = NULL;
    const json_t *mask;
    auto_free char *path = NULL, *key = NULL;

    site_open(&site);
    CHECK_INT(ask(&site, site.key, "GET", "/teams", NULL, &teams), 200);
    CHECK_STR(json_get_str(json_array_get(teams, 0), "teamID"), TEAM_DEFAULT_ID);
    CHECK_STR(json_get_str(json_array_get(teams, 0), "apiKey"), site.key);
    CHECK_INT(ask(&site, site.key, "POST", "/api-keys", "{\"name\":\"ci\"}", &made), 201);
    key = str_dup(json_get_str(made, "key"));
    CHECK_INT(strlen(key), 44);
    mask = json_object_get(made, "mask");
    CHECK_STR(json_get_str(mask, "prefix"), "e2b_");
    CHECK_INT(json_get_str(mask, "maskedValueSuffix").len, 4);
    CHECK_INT(json_integer_value(json_object_get(mask, "valueLength")), 40);
    CHECK_INT(ask(&site, key, "GET", "/api-keys", NULL, &list), 200);
    CHECK_INT(json_array_size(list), 2);
    CHECK(!json_object_get(json_array_get(list, 1), "key"));
    CHECK(json_is_string(json_object_get(json_array_get(list, 1), "lastUsed")));
    CHECK(asprintf(&path, "/api-keys/%s", json_get_str(made, "id").p) > 0);
    CHECK_INT(ask(&site, key, "PATCH", path, "{\"name\":\"new\"}", NULL), 200);
    CHECK_INT(ask(&site, key, "PATCH", path, "{}", NULL), 400);
    CHECK_INT(ask(&site, key, "DELETE", path, NULL, NULL), 204);
    CHECK_INT(ask(&site, key, "GET", "/api-keys", NULL, NULL), 401);
    CHECK_INT(ask(&site, site.key, "DELETE", path, NULL, NULL), 404);
    CHECK_INT(ask(&site, site.key, "POST", "/api-keys", "{\"name\":\"\"}", NULL), 400);
    CHECK_INT(ask(&site, site.key, "POST", "/access-tokens", "{\"name\":\"t\"}", &token), 201);
    CHECK(json_is_string(json_object_get(token, "token")));
}

TEST(teams_on_the_wire)
{
    auto_site struct site site;
    auto_json json_t *team = NULL, *changed = NULL, *made = NULL, *list = NULL, *none = NULL;
    auto_free char *path = NULL, *keys = NULL, *key = NULL;

    site_open(&site);
    CHECK_INT(ask(&site, site.key, "POST", "/admin/teams", "{\"name\":\"acme\",\"maxSandboxes\":3}",
                  &team),
              201);
    CHECK(asprintf(&path, "/admin/teams/%s", json_get_str(team, "teamID").p) > 0);
    CHECK(asprintf(&keys, "%s/api-keys", path) > 0);
    CHECK_INT(ask(&site, site.key, "PATCH", path, "{\"maxCpu\":8}", &changed), 200);
    CHECK_INT(json_integer_value(json_object_get(changed, "maxSandboxes")), 3);
    CHECK_INT(json_integer_value(json_object_get(changed, "maxCpu")), 8);
    CHECK_STR(json_get_str(changed, "name"), "acme");
    CHECK_INT(ask(&site, site.key, "PATCH", path, "{\"maxCpu\":-8}", NULL), 400);
    CHECK_INT(ask(&site, site.key, "PATCH", "/admin/teams/nobody", "{}", NULL), 404);
    CHECK_INT(ask(&site, site.key, "POST", keys, "{\"name\":\"first\"}", &made), 201);
    key = str_dup(json_get_str(made, "key"));
    CHECK_INT(ask(&site, key, "GET", "/api-keys", NULL, &list), 200);
    CHECK_INT(json_array_size(list), 1);
    CHECK_INT(ask(&site, key, "GET", "/admin/teams", NULL, NULL), 403);
    CHECK_INT(ask(&site, key, "PATCH", path, "{\"maxCpu\":0}", NULL), 403);
    CHECK_INT(ask(&site, site.key, "PATCH", path, "{\"banned\":true}", NULL), 200);
    CHECK_INT(ask(&site, key, "GET", "/api-keys", NULL, &none), 403);
    CHECK_STR(json_get_str(none, "message"), "team is banned");
}

TEST(audit_log)
{
    auto_site struct site site;
    auto_json json_t *list = NULL;
    const json_t *entry;

    site_open(&site);
    CHECK_INT(ask(&site, site.key, "POST", "/api-keys", "{\"name\":\"ci\"}", NULL), 201);
    CHECK_INT(ask(&site, site.key, "DELETE", "/api-keys/x", NULL, NULL), 404);
    CHECK_INT(ask(&site, "e2b_wrong", "DELETE", "/api-keys/x", NULL, NULL), 401);
    CHECK_INT(ask(&site, site.key, "GET", "/audit", NULL, &list), 200);
    CHECK_INT(json_array_size(list), 2);
    entry = json_array_get(list, 0);
    CHECK_STR(json_get_str(entry, "method"), "DELETE");
    CHECK_STR(json_get_str(entry, "path"), "/api-keys/x");
    CHECK_INT(json_integer_value(json_object_get(entry, "status")), 404);
    CHECK(json_get_str(entry, "keyID").len > 0);
}

TEST(audit_keeps_the_beginning_of_a_long_path)
{
    auto_site struct site site;
    auto_json json_t *list = NULL;
    char path[4096] = "/api-keys/";
    struct str kept;

    site_open(&site);
    memset(path + strlen(path), 'x', sizeof(path) - strlen(path) - 1);
    path[sizeof(path) - 1] = '\0';
    CHECK_INT(ask(&site, site.key, "DELETE", path, NULL, NULL), 404);
    CHECK_INT(ask(&site, site.key, "GET", "/audit", NULL, &list), 200);
    kept = json_get_str(json_array_get(list, 0), "path");
    CHECK_INT(kept.len, 256 + 3);
    CHECK(str_starts(kept, STR("/api-keys/xxxx")) && str_ends(kept, STR("...")));
}
