/* Languages, and how a cell is told to a kernel of each. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/str.h"

enum kernel_way {
    KERNEL_FORKED, /* a child of the zygote */
    KERNEL_JSON,   /* a program of its own; cells are lines of JSON, as for the forked ones */
    KERNEL_FRAMES, /* the same, for those that know no JSON; cells are frames (frame.h) */
    KERNEL_SHELL,  /* a shell, which reads its own language */
};

enum { LANGUAGE_ARGS_MAX = 8 };

struct language {
    const char *name;
    const char *kernel; /* the language whose kernel runs it */
    enum kernel_way way;
    const char *argv[LANGUAGE_ARGS_MAX]; /* "@" stands for the folder of scripts */
    const char *needs; /* a file that smaller templates lack, likewise; NULL = every one has it */
};

/* The template with all languages. */
#define LANGUAGE_FULL "code-interpreter-full"
/* How the answer to a language without a kernel begins; the runtime tells it from a missing context by that. */
#define LANGUAGE_REFUSED "Failed to create context: "

/* By its name or short form, without case and blanks around. Empty = Python. NULL: there is none. */
const struct language *language_find(struct str name);
/* The one at which contexts begin. */
extern const struct language languages[];

/* "@/python.py" is a script of ours; what begins otherwise is as it is. */
char *language_path(const char *text, const char *kernels);
/* Is its kernel in this template? */
bool language_here(const struct language *language, const char *kernels);
/* What to say when it is not, or there is no such language: which are here, and where the others are. */
void language_refusal(struct str name, const char *kernels, struct buf *out);

struct cell_text {
    struct str code;
    const json_t *globals; /* variables of the sandbox that the kernel has not seen yet; or NULL */
    const json_t *envs;    /* for this cell only; or NULL */
};

/* What is sent. Values that are no strings, and names that are no variables, are left out. */
void language_write(const struct language *language, const struct cell_text *cell, struct buf *out);
