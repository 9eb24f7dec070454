/* The ports of EXPOSE as the ready command of a template. It is the only form in which ports travel with recipes, builds,
 * sandboxes and image labels: a shell command that older servers run, and that this server recognises and replaces by its
 * own wait, which needs no program of the image and reports a port that nothing listens on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/str.h"

enum { READY_PORTS_MAX = 16 };

/* count is 1 to READY_PORTS_MAX. */
void ready_ports_write(struct buf *out, const uint16_t *ports, size_t count);
/* The number of ports; 0 = the text is another command. */
size_t ready_ports_read(struct str text, uint16_t out[READY_PORTS_MAX]);
