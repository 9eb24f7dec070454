#include "egress/process/denial.h"

#include <arpa/inet.h>
#include <stdlib.h>

#include "protocol/json/json_shape.h"

static char *denial_json(const struct denial *denial)
{
    const struct verdict *verdict = denial->verdict;
    struct in_addr in = {htonl(denial->address)};
    char address[INET_ADDRSTRLEN];
    auto_buf struct buf message = {0};
    auto_json json_t *json = NULL;

    (void)inet_ntop(AF_INET, &in, address, sizeof(address));
    buf_init(&message, 2048);
    (void)buf_printf(&message, "%s %s%s%s port %u: %s",
                     denial->failed ? "there is no connection to"
                                    : "the network policy of this sandbox denies",
                     denial->name->text, denial->name->len ? " at " : "", address, denial->port,
                     verdict->reason);
    json = json_pack("{s:i,s:o,s:{s:o,s:s,s:i,s:s,s:s}}", "code", denial->failed ? 502 : 403,
                     "message", json_str(buf_str(&message)), "egress", "name",
                     denial->name->len ? json_str(host_name_str(denial->name)) : json_null(),
                     "address", address, "port", (int)denial->port, "rule", verdict->rule, "reason",
                     verdict->reason);
    return json_text(json);
}

void denial_put(struct buf *out, const struct denial *denial)
{
    static const char alert[] = {21, 3, 3, 0, 2, 2, 49}; /* fatal, access_denied */
    char *body;

    if (denial->kind == SNIFF_TLS)
        (void)buf_add(out, alert, sizeof(alert));
    if (denial->kind != SNIFF_HTTP)
        return;
    body = denial_json(denial);
    (void)buf_printf(out,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                     denial->failed ? "502 Bad Gateway" : "403 Forbidden", strlen(body), body);
    free(body);
}
