/* A Dockerfile as a recipe: the JSON that POST /v2/templates/{id}/builds/{build} takes (docs/templates.md).
 *
 * What only the server can know (variables of an image, its user and directory) is left to it. What only the client
 * can know, the files of the context, is listed here: each entry names the place in the JSON that gets "filesHash". */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pair.h"
#include "base/str.h"
#include "dockerfile/words.h"

enum { TRANSLATE_STAGES_MAX = 32, TRANSLATE_VALUE_MAX = 64 * 1024 };

struct dockerfile_source {
    struct str text;         /* of the Dockerfile */
    const char *file;        /* what it is called in messages */
    const struct pair *args; /* value STR_NONE: it is named, and has none */
    size_t arg_count;
    struct str target;   /* a stage's name or number; STR_NONE = the last */
    struct str platform; /* STR_NONE = "linux/" and this machine's */
};

struct dockerfile_file {
    struct str name, content;
};

/* Files of the context that a step needs. */
struct dockerfile_files {
    json_t *step; /* borrowed; "filesHash" and, for a COPY, args[0] are to be set */
    int line;
    size_t stage;                      /* number of the stage */
    struct words sources;              /* patterns beneath the context */
    struct words excludes;             /* of --exclude, as in .dockerignore */
    const struct dockerfile_file *own; /* here-documents */
    size_t own_count;
    bool unpack;   /* ADD: a source that is an archive is unpacked */
    bool is_mount; /* a directory or file to be seen as it is, for one RUN */
    bool to_dir;   /* the destination ends in '/' */
};

struct dockerfile_recipe {
    json_t *json; /* the caller's */
    struct dockerfile_files *files;
    size_t file_count;
    struct words unused; /* --build-arg that no ARG names */
};

/* Strings are in the arena. ERROR_INVALID and ERROR_UNSUPPORTED say "FILE:LINE: …". */
int dockerfile_translate(const struct dockerfile_source *source, struct arena *arena,
                         struct dockerfile_recipe *out, struct error *err);
