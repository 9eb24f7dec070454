/* The text of a Dockerfile as a list of instructions: parser directives, comments, lines that go on, here-documents.
 * What an instruction means is recipe.h's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

enum {
    DOCKERFILE_MAX = 1024 * 1024,
    DOCKERFILE_INSTRUCTIONS_MAX = 1000,
    DOCKERFILE_HEREDOCS_MAX = 32, /* of an instruction */
};

/* <<NAME, its lines, NAME. */
struct dockerfile_heredoc {
    struct str word;    /* as it stands in the instruction */
    struct str name;    /* without quotes */
    struct str raw;     /* its lines and the one that ends it */
    struct str content; /* its lines; their tabs are cut off for "<<-" */
    bool quoted;        /* variables in it are left alone */
};

struct dockerfile_instruction {
    int line;           /* of its first line, from 1 */
    struct str keyword; /* in capitals */
    struct str rest;    /* what follows, on one line */
    struct str text;    /* keyword and rest, for people */
    struct dockerfile_heredoc *heredocs;
    size_t heredoc_count;
};

struct dockerfile {
    const char *file; /* what it is called in messages */
    char escape;      /* '\\', or '`' by a directive */
    struct dockerfile_instruction *instructions;
    size_t count;
};

/* Everything is in the arena. ERROR_INVALID says "FILE:LINE: …". */
int dockerfile_parse(struct str text, const char *file, struct arena *arena, struct dockerfile *out,
                     struct error *err);
