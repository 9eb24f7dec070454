/* What the proxy does on the way to a sandbox's own ports, as its owner asked for at create. Kept in the row as
 * lines, one for each thing: "mask HOST", "https PORT PORT ...". */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { INGRESS_MASK_SIZE = 256, INGRESS_HTTPS_MAX = 16, INGRESS_TEXT_SIZE = 512 };

struct ingress {
    char mask
        [INGRESS_MASK_SIZE]; /* what servers see as Host, "${PORT}" in it is the port; "" = what was sent */
    uint16_t https_ports[INGRESS_HTTPS_MAX]; /* spoken to by TLS */
    size_t https_count;
};

/* A host, perhaps with a port: nothing that could end a header. False when it is no such thing. */
bool ingress_set_mask(struct ingress *ingress, struct str mask);
/* False when there are too many. One that is there already is not added again. */
bool ingress_add_https(struct ingress *ingress, uint16_t port);
bool ingress_is_https(const struct ingress *ingress, uint16_t port);
/* The mask for a port; out is "" when there is none. */
void ingress_mask(const struct ingress *ingress, uint16_t port, char out[INGRESS_MASK_SIZE]);

void ingress_write(const struct ingress *ingress, char out[INGRESS_TEXT_SIZE]);
/* What it does not understand is left out. */
void ingress_read(struct str text, struct ingress *out);
