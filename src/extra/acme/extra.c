/* Certificates from public authorities (RFC 8555): `quicksand tls acme`, and the server's answer to their question. */
#include "extra/core/extra.h"

#include "extra/acme/acme_answer.h"
#include "extra/acme/cli_tls_acme.h"

static const struct cli_place commands[] = {{&cli_tls_acme_command, "reload"}, {NULL, NULL}};

const struct extra extra_acme = {.name = "acme",
                                 .commands = commands,
                                 .handle_plain = acme_answer,
                                 .plain_prefix = ACME_ANSWER_PREFIX};
