/* What a policy has done to requests for certain hosts: headers that are set on their way out. The values are secrets:
 * a sandbox has them sent and never sees them. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/error.h"
#include "base/map.h"
#include "egress/wire/host_name.h"

enum {
    RULES_HOSTS_MAX = 256,
    RULE_HEADERS_MAX = 1024,
    RULE_NAME_MAX = 256,
    RULE_VALUE_MAX = 16 * 1024,
};

struct rule_header {
    char *name;
    char *value; /* NULL: the header is taken out */
};

/* Of one host. */
struct rule {
    char *host; /* as it was given */
    struct rule_header *headers;
    size_t count;
};

struct rules {
    struct map names;    /* name -> rule */
    struct map suffixes; /* what stands behind "*." -> rule */
};

void rules_init(struct rules *rules);
void rules_done(struct rules *rules);
/* {"HOST or *.HOST":[{"transform":{"headers":{"Name":"value"}}}]}; NULL: none. Of several values for one header the
 * last counts; null takes the header out. */
int rules_read(struct rules *rules, const json_t *json, struct error *err);

/* The rule for the name, or NULL: that of the name itself before that of the longest "*." above it. */
const struct rule *rules_for(const struct rules *rules, const struct host_name *name);
bool rules_any(const struct rules *rules);
/* Does the rule set that header, or take it out? '-' and '_' count as the same character, because servers that pass
 * headers on as variables (CGI, WSGI) do not tell them apart. */
bool rule_sets(const struct rule *rule, struct str name);
