/* The audit log: who changed what. */
#pragma once

#include "store/core/store.h"

struct store_audit {
    int64_t seq, at_us;
    struct str team_id, key_id, method, path, request_id;
    struct str key_name;  /* when it happened: keys may go */
    struct str agent_id;  /* on whose behalf; "" = nobody's */
    struct str team_name; /* only in store_audit_page() */
    int64_t status;
};

int store_audit_add(struct store *store, const struct store_audit *entry, struct error *err);
/* Newest first; STR_NONE = all teams; before_seq 0 = from the newest. */
int store_audit_page(struct store *store, struct str team_id, int64_t before_seq, size_t limit,
                     struct arena *arena, struct store_audit **out, size_t *out_count,
                     struct error *err);
/* As store_event_prune(). */
int store_audit_prune(struct store *store, int64_t before_us, int64_t keep, size_t max,
                      size_t *out_count, struct error *err);
