#include "cli/command/cli_ports.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { PORTS_MAX = 64, ENVD_PORT = 49983 };

static bool has(const json_t *ports, json_int_t port)
{
    for (size_t i = 0; i < json_array_size(ports); i++)
        if (json_integer_value(json_array_get(ports, i)) == port)
            return true;
    return false;
}

/* Lines of /proc/net/tcp and tcp6: "0: 00000000:1F90 00000000:0000 0A …", where 0A is a listening socket. */
static void add_line(struct str line, json_t *ports)
{
    auto_free char *text = str_dup(line);
    char address[40], state[4];
    unsigned port;

    if (sscanf(text, " %*[0-9]: %39[0-9A-F]:%4X %*[0-9A-F]:%*[0-9A-F] %2s", address, &port,
               state) != 3 ||
        strcmp(state, "0A") != 0 || port == ENVD_PORT || json_array_size(ports) >= PORTS_MAX ||
        has(ports, port))
        return;
    (void)json_array_append_new(ports, json_integer(port));
}

static int smaller_first(const void *a, const void *b)
{
    json_int_t of_a = json_integer_value(*(json_t *const *)a);
    json_int_t of_b = json_integer_value(*(json_t *const *)b);

    return (of_a > of_b) - (of_a < of_b);
}

static json_t *sorted(const json_t *ports)
{
    json_t *items[PORTS_MAX] = {NULL}, *out = json_array();
    size_t count = json_array_size(ports);

    if (count > PORTS_MAX)
        count = PORTS_MAX;
    for (size_t i = 0; i < count; i++)
        items[i] = json_array_get(ports, i);
    qsort(items, count, sizeof(items[0]), smaller_first);
    for (size_t i = 0; i < count; i++)
        (void)json_array_append(out, items[i]);
    return out;
}

static json_t *read_ports(struct cli *cli, const char *id)
{
    auto_json json_t *body =
        json_pack("{s:[s,s,s]}", "argv", "cat", "/proc/net/tcp", "/proc/net/tcp6");
    auto_json json_t *answer = NULL, *ports = json_array();
    struct error ignored = {0};
    struct str rest;

    /* A sandbox that was paused or ended meanwhile does not fail the whole list. */
    if (cli_v1(cli, "POST", cli_v1_path("sandboxes", id, "execute"), body, &answer, &ignored) < 0)
        return json_array();
    rest = json_get_str(answer, "stdout");
    while (rest.p)
        add_line(str_split(&rest, '\n'), ports);
    return sorted(ports);
}

void cli_ports_add(struct cli *cli, const json_t *rows)
{
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        const char *id = json_string_value(json_object_get(row, "id"));
        bool runs = id && str_is(json_get_str(row, "state"), "running");

        (void)json_object_set_new(row, "ports", runs ? read_ports(cli, id) : json_array());
    }
}
