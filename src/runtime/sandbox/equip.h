/* What is started in a machine besides its template: a screen of some size, the MCP gateway. */
#pragma once

#include "runtime/sandbox/sandbox_parts.h"

/* One machine. */
struct equip_place {
    struct runtime *runtime;
    struct provider *provider;
    struct provider_ref ref;
    struct str team_id;
};

/* The gateway with these servers, started unless it runs with them already; uploaded where the template has none. The token that it wants,
 * in the arena; out_token may be NULL. */
int equip_gateway(const struct equip_place *place, const json_t *servers, struct arena *arena,
                  struct str *out_token, struct error *err);
/* What the row's settings say, when its machine begins: created, restored or resumed. */
int machine_equip(struct runtime *runtime, struct backend *backend,
                  const struct store_runtime_sandbox *row, struct error *err);
