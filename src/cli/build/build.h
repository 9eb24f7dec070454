/* template build: a Dockerfile and its context, or an image from disk, become a template. */
#pragma once

#include "cli/build/settings.h"
#include "cli/build/shipped.h"
#include "cli/core/cli_command.h"
#include "dockerfile/translate.h"

/* What the command line asks for, with what a settings file says. */
struct build_wish {
    const char *name; /* may have ":tag" */
    const char *file; /* of the Dockerfile; NULL = CONTEXT/Dockerfile */
    const char *context;
    const char *config;  /* NULL = CONTEXT/e2b.toml, if it is there */
    const char *target;  /* NULL = the last stage */
    const char *archive; /* --from-archive; NULL = none */
    struct cli_list args, secrets, tags;
    int64_t cpu, memory_mb, disk_mb; /* 0 = not said */
    bool no_cache;
    json_t *
        recipe; /* its members are in the recipe as they are; without an archive it is all of it. NULL = none */
    const struct shipped_recipe *shipped; /* instead of files; NULL = none */
};

/* The exit status. What went wrong was told. */
int build_template(struct cli *cli, const struct build_wish *wish);
