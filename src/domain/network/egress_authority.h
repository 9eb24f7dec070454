/* The authority of this server, by which the egress process is the host that a rule is about: it signs certificates for
 * connections that sandboxes make to hosts with a rule, and only sandboxes with a rule trust it. Made once, in a file
 * that is the server's alone. */
#pragma once

#include "base/buf.h"
#include "base/error.h"

struct egress_authority {
    struct buf certificate, key; /* PEM */
    char hash[16];               /* of its name, as OpenSSL looks for it */
};

/* Reads "egress-ca.pem" in the directory, or makes it (mode 0600). */
int egress_authority_open(const char *directory, struct egress_authority **out, struct error *err);
void egress_authority_close(struct egress_authority *authority); /* or NULL */
