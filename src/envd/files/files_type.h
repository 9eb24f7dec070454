/* How a downloaded file is described to the client. */
#pragma once

#include "base/arena.h"
#include "base/str.h"

/* By the name's extension; application/octet-stream when that says nothing. */
struct str files_type_of(struct str name);
/* Content-Disposition: inline, with the name in the plainest form that can hold it. */
struct str files_type_disposition(struct arena *arena, struct str name);
