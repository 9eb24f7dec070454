/* The server's address and key come, in this order, from: the option --url; the environment (an address, or E2B_DOMAIN); the
 * file the server writes for its administrator; the default address. */
#include "cli/core/cli_client.h"

#include <errno.h>
#include <fcntl.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/core/cli.h"
#include "cli/core/cli_credentials.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum {
    CALL_TIMEOUT_MS = 120 * 1000,
    V1_TIMEOUT_MS = 900 * 1000, /* a machine elsewhere may have to be made first */
    ANSWER_MAX = 8 * 1024 * 1024,
};

/* Where the key came from, for whoever is told that it is wrong. */
static const char *key_from = "";

static const char *first_env(const char *const *names, const char **out_name)
{
    for (; *names; names++) {
        const char *value = getenv(*names);

        if (value && value[0]) {
            if (out_name)
                *out_name = *names;
            return value;
        }
    }
    return NULL;
}

static int read_credentials(const char *home, struct cli_credentials *out, struct error *err)
{
    auto_free char *path = xasprintf("%s/" CLI_CREDENTIALS, home);

    return cli_credentials_load(path, out, err);
}

static int check_key(const char *key, struct error *err)
{
    for (const char *c = key; *c; c++)
        if ((unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
            return error_set(err, ERROR_INVALID, "the API key has characters no key can have");
    return 0;
}

static int no_key(const char *url, const struct cli_credentials *file, struct error *err)
{
    if (file->count)
        return error_set(err, ERROR_UNAUTHORIZED,
                         "no API key for %s: ~/" CLI_CREDENTIALS
                         " has keys of other servers only; set QUICKSAND_TOKEN or E2B_API_KEY",
                         url);
    return error_set(err, ERROR_UNAUTHORIZED,
                     "no API key: set QUICKSAND_TOKEN or E2B_API_KEY, or make one on the "
                     "server's host with 'quicksand key new'");
}

static int set_server(const char *url, const char *key, struct cli_server *out, struct error *err)
{
    static const char *const sandbox_names[] = {"QUICKSAND_SANDBOX_URL", "E2B_SANDBOX_URL", NULL};
    const char *sandboxes = first_env(sandbox_names, NULL);

    if (check_key(key, err) < 0 || cli_url_parse(url, &out->api, err) < 0)
        return -1;
    out->sandboxes = out->api;
    if (sandboxes && cli_url_parse(sandboxes, &out->sandboxes, err) < 0)
        return -1;
    out->key = xstrdup(key);
    return 0;
}

/* *url is the name of a context: its address. What looks like an address without its beginning is told as such. */
static int find_context(const struct cli_credentials *file, const char **url, struct error *err)
{
    const struct cli_credential *found = cli_credentials_named(file, *url);

    if (!found || !found->url)
        return strpbrk(*url, ".:/") ? 0
                                    : error_set(err, ERROR_NOT_FOUND,
                                                "there is no context '%s': an address begins with "
                                                "http:// or https://; see 'quicksand context ls'",
                                                *url);
    *url = found->url;
    return 0;
}

/* Published clients send the calls of a domain there, so a key that is set beside E2B_DOMAIN is for that server. */
static char *url_of_domain(void)
{
    const char *domain = getenv("E2B_DOMAIN");

    return domain && domain[0] ? xasprintf("https://api.%s", domain) : NULL;
}

int cli_server_find(const char *url, const char *home, struct cli_server *out, struct error *err)
{
    static const char *const url_names[] = {"QUICKSAND_URL", "E2B_API_URL", NULL};
    static const char *const key_names[] = {"QUICKSAND_TOKEN", "QUICKSAND_API_KEY", "E2B_API_KEY",
                                            NULL};
    const char *key = first_env(key_names, &key_from);
    const struct cli_credential *kept;
    struct cli_credentials file = {0};
    auto_free char *domain_url = NULL;
    bool named;
    int rc = 0;

    if (!url)
        url = first_env(url_names, NULL);
    if (!url)
        url = domain_url = url_of_domain();
    named = url && !strstr(url, "://");
    if (home && (!url || !key || named))
        rc = read_credentials(home, &file, err);
    if (rc < 0 && key && !named)
        rc = 0; /* only the address is missing, and that has a default */
    if (rc == 0 && named)
        rc = find_context(&file, &url, err);
    kept = cli_credentials_find(&file, url);
    if (!url)
        url = kept && kept->url ? kept->url : CLI_DEFAULT_URL;
    if (!key && kept) {
        key = kept->key;
        key_from = "~/" CLI_CREDENTIALS;
    }
    if (rc == 0)
        rc = key ? set_server(url, key, out, err) : no_key(url, &file, err);
    cli_credentials_done(&file);
    return rc;
}

void cli_server_done(struct cli_server *server)
{
    free(server->key);
    server->key = NULL;
}

static enum error_code code_of_status(int status)
{
    switch (status) {
    case 400:
        return ERROR_INVALID;
    case 401:
        return ERROR_UNAUTHORIZED;
    case 403:
        return ERROR_FORBIDDEN;
    case 404:
        return ERROR_NOT_FOUND;
    case 409:
        return ERROR_CONFLICT;
    case 429:
        return ERROR_QUOTA;
    case 501:
        return ERROR_UNSUPPORTED;
    default:
        return status >= 500 ? ERROR_UNAVAILABLE : ERROR_INVALID;
    }
}

int cli_answer_error(const struct http_call *stream, struct error *err)
{
    struct error ignored = {0};
    auto_json json_t *json = NULL;
    struct str message = STR_NONE;

    if (json_parse(buf_str(&stream->body), &json, &ignored) == 0)
        message = json_get_str(json, "message");
    if (!message.len) /* of the runtime */
        message = json_get_str(json_object_get(json, "error"), "message");
    if (stream->status == 401)
        return error_set(err, ERROR_UNAUTHORIZED, "%.*s (the key is that of %s%s)",
                         STR_ARG(message), key_from[0] == '~' ? "" : "$", key_from);
    if (!message.len)
        return error_set(err, code_of_status(stream->status), "the server answered with status %d",
                         stream->status);
    return error_set(err, code_of_status(stream->status), "%.*s", STR_ARG(message));
}

int cli_upgrade(struct http_call *stream, const struct cli_url *url,
                const struct http_call_request *request, uint32_t timeout_ms, size_t max,
                const char *what, struct error *err)
{
    if (cli_stream_open(stream, url, request, timeout_ms, max, err) < 0 ||
        http_call_recv_head(stream, err) < 0)
        return -1;
    if (stream->raw)
        return 0;
    if (http_call_recv_all(stream, err) < 0)
        return -1;
    return stream->status / 100 == 2
               ? error_set(err, ERROR_UNAVAILABLE, "the server did not open a %s", what)
               : cli_answer_error(stream, err);
}

static void print_warning(struct str text)
{
    auto_free char *shown = text.len ? cli_defuse(str_dup(text), true) : NULL;

    if (shown)
        (void)fprintf(stderr, "quicksand: warning: %s\n", shown);
}

int cli_call(const struct cli_server *server, const char *method, const char *target,
             const json_t *body, json_t **out_json, struct buf *out_next, struct error *err)
{
    auto_call struct http_call stream = {.fd = -1};
    auto_free char *text = body ? json_text(body) : NULL;
    struct pair headers[] = {
        {STR("X-API-KEY"), str_of(server->key)},
        {STR("User-Agent"), STR("quicksand/" QUICKSAND_VERSION)},
        {STR("Content-Type"), STR("application/json")},
    };
    struct http_call_request request = {.method = method,
                                        .target = target,
                                        .headers = headers,
                                        .header_count = text ? 3 : 2,
                                        .body = str_of(text)};
    uint32_t timeout_ms = str_starts(str_of(target), STR(CLI_V1)) ? V1_TIMEOUT_MS : CALL_TIMEOUT_MS;

    if (cli_stream_open(&stream, &server->api, &request, timeout_ms, ANSWER_MAX, err) < 0 ||
        http_call_recv_all(&stream, err) < 0)
        return -1;
    if (stream.status / 100 != 2)
        return cli_answer_error(&stream, err);
    print_warning(http_call_header(&stream, "quicksand-warning"));
    if (out_json) {
        *out_json = NULL;
        if (stream.body.len && json_parse(buf_str(&stream.body), out_json, err) < 0)
            return error_prefix(err, "the server's answer");
    }
    if (out_next) {
        buf_clear(out_next);
        (void)buf_add_str(out_next, http_call_header(&stream, "x-next-token"));
    }
    return 0;
}

int cli_sandbox_of(const json_t *json, struct cli_sandbox *out, struct error *err)
{
    struct str id = json_get_str(json, "sandboxID"), token = json_get_str(json, "envdAccessToken");

    if (!id.len)
        return error_set(err, ERROR_UNAVAILABLE, "the server's answer has no sandboxID");
    out->id = str_dup(id);
    out->token = token.len ? str_dup(token) : NULL;
    return 0;
}

int cli_sandbox_get(const struct cli_server *server, const char *id, struct cli_sandbox *out,
                    struct error *err)
{
    auto_json json_t *json = NULL;
    auto_buf struct buf target = {0};

    buf_init(&target, HTTP_URL_MAX);
    (void)buf_add_str(&target, STR("/sandboxes/"));
    cli_escape(&target, id);
    if (cli_call(server, "GET", target.p, NULL, &json, NULL, err) < 0)
        return -1;
    return cli_sandbox_of(json, out, err);
}

void cli_sandbox_done(struct cli_sandbox *sandbox)
{
    free(sandbox->id);
    free(sandbox->token);
    *sandbox = (struct cli_sandbox){0};
}

size_t cli_sandbox_headers(const struct cli_sandbox *sandbox, struct pair out[CLI_SANDBOX_HEADERS])
{
    out[0] = (struct pair){STR("E2b-Sandbox-Id"), str_of(sandbox->id)};
    out[1] = (struct pair){STR("E2b-Sandbox-Port"), STR("49983")};
    if (!sandbox->token)
        return 2;
    out[2] = (struct pair){STR("X-Access-Token"), str_of(sandbox->token)};
    return 3;
}

void cli_escape(struct buf *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            strchr("-._~", c))
            (void)buf_add_char(out, *text);
        else
            (void)buf_printf(out, "%%%02X", c);
    }
}
