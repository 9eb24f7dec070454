/* mcp config: what to paste into the settings of clients. Those that speak HTTP get the server's address and the API key, others start
 * `quicksand mcp`. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_command.h"
#include "extra/mcp/cli_mcp.h"
#include "protocol/json/json_shape.h"

/* What there is to say. */
struct facts {
    char *base, *url; /* of the server, and with /mcp behind it */
    const char *key;
    char program[4096];
    const struct cli_mcp_place *place;
};

static void print_json(json_t *json_consume)
{
    auto_json json_t *json = json_consume;
    auto_free char *text = json_dumps(json, JSON_INDENT(2));

    printf("%s\n", text);
}

static json_t *headers_of(const struct facts *facts)
{
    auto_free char *value = xasprintf("Bearer %s", facts->key);

    return json_pack("{s:s}", "Authorization", value);
}

/* {TABLE: {"quicksand": {"type"?, NAME: URL, "headers"}}} */
static void print_http(const struct facts *facts, const char *table, const char *type,
                       const char *name)
{
    json_t *server = json_object();

    if (type)
        (void)json_object_set_new(server, "type", json_string(type));
    (void)json_object_set_new(server, name, json_string(facts->url));
    (void)json_object_set_new(server, "headers", headers_of(facts));
    print_json(json_pack("{s:{s:o}}", table, "quicksand", server));
}

static void add_option(json_t *args, const char *name, const char *value)
{
    if (!value)
        return;
    (void)json_array_append_new(args, json_string(name));
    (void)json_array_append_new(args, json_string(value));
}

static void print_program(const struct facts *facts)
{
    json_t *args = json_pack("[s]", "mcp");

    add_option(args, "--key", facts->place->key);
    add_option(args, "--template", facts->place->template);
    add_option(args, "--profile", facts->place->profile);
    print_json(json_pack("{s:{s:{s:s, s:o, s:{s:s, s:s}}}}", "mcpServers", "quicksand", "command",
                         facts->program, "args", args, "env", "QUICKSAND_URL", facts->base,
                         "QUICKSAND_TOKEN", facts->key));
}

static void print_claude_code(const struct facts *facts)
{
    printf("claude mcp add --transport http quicksand '%s' --header 'Authorization: Bearer %s'\n",
           facts->url, facts->key);
}

static void print_codex(const struct facts *facts)
{
    printf("[mcp_servers.quicksand]\nurl = \"%s\"\nhttp_headers = { \"Authorization\" = \"Bearer "
           "%s\" }\n",
           facts->url, facts->key);
}

static void print_cursor(const struct facts *facts)
{
    print_http(facts, "mcpServers", NULL, "url");
}

static void print_vscode(const struct facts *facts)
{
    print_http(facts, "servers", "http", "url");
}

static void print_windsurf(const struct facts *facts)
{
    print_http(facts, "mcpServers", NULL, "serverUrl");
}

static void print_gemini(const struct facts *facts)
{
    print_http(facts, "mcpServers", NULL, "httpUrl");
}

static void print_zed(const struct facts *facts)
{
    print_http(facts, "context_servers", NULL, "url");
}

static const struct client {
    const char *name, *where;
    void (*print)(const struct facts *facts);
} clients[] = {
    {"claude-code", "a command to run", print_claude_code},
    {"claude-desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)",
     print_program},
    {"cursor", ".cursor/mcp.json of a project, or ~/.cursor/mcp.json", print_cursor},
    {"vscode", ".vscode/mcp.json of a project, or 'MCP: Open User Configuration'", print_vscode},
    {"windsurf", "~/.codeium/windsurf/mcp_config.json", print_windsurf},
    {"zed", "settings.json", print_zed},
    {"codex", "~/.codex/config.toml", print_codex},
    {"gemini", "~/.gemini/settings.json", print_gemini},
    {"stdio", "the settings of a client that starts programs", print_program},
};
enum { CLIENTS = sizeof(clients) / sizeof(clients[0]) };

static const struct client *find(const char *name)
{
    for (size_t i = 0; i < CLIENTS; i++)
        if (strcmp(clients[i].name, name) == 0)
            return &clients[i];
    return NULL;
}

bool cli_mcp_client_known(const char *client)
{
    return find(client) != NULL;
}

const char *cli_mcp_clients(void)
{
    static char text[256];

    text[0] = '\0';
    for (size_t i = 0; i < CLIENTS; i++) {
        size_t len = strlen(text);

        (void)snprintf(text + len, sizeof(text) - len, "%s%s", i ? ", " : "", clients[i].name);
    }
    return text;
}

static void fill(struct cli *cli, const struct cli_mcp_place *place, struct facts *out)
{
    const struct cli_url *api = &cli->server.api;
    bool v6 = strchr(api->host, ':'), usual = api->port == (api->tls ? 443 : 80);
    auto_free char *target = cli_mcp_target(place);
    auto_free char *port = usual ? xstrdup("") : xasprintf(":%u", (unsigned)api->port);
    ssize_t n;

    out->base = xasprintf("http%s://%s%s%s%s", api->tls ? "s" : "", v6 ? "[" : "", api->host,
                          v6 ? "]" : "", port);
    out->url = xasprintf("%s%s", out->base, target);
    out->key = cli->server.key ? cli->server.key : "";
    out->place = place;
    n = readlink("/proc/self/exe", out->program, sizeof(out->program) - 1);
    out->program[n > 0 ? n : 0] = '\0';
}

int cli_mcp_config(struct cli *cli, const char *client, const struct cli_mcp_place *place)
{
    const struct client *known = find(client);
    struct facts facts = {0};
    struct error err = {0};

    if (cli_connect(cli, &err) < 0)
        return cli_fail(&err);
    fill(cli, place, &facts);
    (void)fprintf(stderr, "For %s; it holds your API key:\n", known->where);
    known->print(&facts);
    free(facts.base);
    free(facts.url);
    return CLI_OK;
}
