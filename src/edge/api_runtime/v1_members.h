/* What the body of a request may hold, by endpoint: see v1_members.c. */
#pragma once

#include "edge/api_runtime/v1_internal.h"

/* The last of a list; "canonical alias alias ..." in front of it. Aliases count in snake_case and in
 * camelCase; the body is changed to the canonical names. */
extern const char *const v1_members_prune[], *const v1_members_runner[],
                                                 *const v1_members_heartbeat[];
extern const char *const v1_members_sandbox[], *const v1_members_snapshot[],
                                                   *const v1_members_key[];
extern const char *const v1_members_execute[], *const v1_members_input[],
                                                   *const v1_members_signal[];
extern const char *const v1_members_session[], *const v1_members_message[],
                                                   *const v1_members_cancel[];
extern const char *const v1_members_approve[], *const v1_members_push[], *const v1_members_pull[];
/* A record whose members are checked elsewhere. */
extern const char *const v1_members_any[];

/* ERROR_INVALID naming what is unknown and what was probably meant, or what is given twice. */
int v1_members_check(json_t *body, const char *const *known, struct error *err);
