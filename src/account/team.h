/* Teams own keys, templates and sandboxes. A fresh installation has one. */
#pragma once

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

struct store;

/* The same on every installation, so that nothing has to be looked up to find it. */
#define TEAM_DEFAULT_ID "00000000-0000-4000-8000-000000000001"

/* Makes the default team when it is missing. */
int team_ensure_default(struct store *store, struct error *err);
