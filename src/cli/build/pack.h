/* Files of a context as bytes. */
#pragma once

#include "cli/build/context.h"

/* Does it begin as an archive that ADD unpacks? */
bool pack_is_archive(int fd);
/* Fills pack->hash. */
int pack_hash(struct context *context, struct pack *pack, struct error *err);
