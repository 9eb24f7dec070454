/* What a template is built with when the command line does not say: a file like E2B's e2b.toml. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

enum { SETTINGS_MAX = 64 * 1024 };

struct build_settings {
    struct str name, dockerfile, start_cmd, ready_cmd; /* STR_NONE = not said */
    int64_t cpu_count, memory_mb, disk_mb;             /* 0 = not said */
};

/* file: what it is called in messages. ERROR_INVALID says "FILE:LINE: …". Strings are in the arena. */
int settings_parse(struct str text, const char *file, struct arena *arena,
                   struct build_settings *out, struct error *err);
/* What of them is in the recipe. */
void settings_apply(const struct build_settings *settings, json_t *recipe);
