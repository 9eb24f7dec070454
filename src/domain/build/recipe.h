/* A recipe: what a template is made from, and the steps that make it. Read from the JSON of a client, checked as a
 * whole before anything runs; every fault names its step. docs/templates.md has the members. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/pair.h"
#include "base/str.h"

enum {
    RECIPE_STEPS_MAX = 1000,
    RECIPE_STAGES_MAX = 32,
    RECIPE_ARGS_MAX = 512, /* of one step */
    RECIPE_MOUNTS_MAX = 8,
    RECIPE_PAIRS_MAX = 1024,
    RECIPE_TEXT_MAX = 256 * 1024, /* of one string */
    RECIPE_RELEASE_MAX = 32,
};

struct recipe_pairs {
    const struct pair *items;
    size_t count;
};

struct recipe_words {
    const struct str *items;
    size_t count;
};

enum recipe_from {
    RECIPE_FROM_BASE, /* the platform's own */
    RECIPE_FROM_TEMPLATE,
    RECIPE_FROM_IMAGE,
    RECIPE_FROM_BLOBS,
    RECIPE_FROM_BOOTSTRAP,
    RECIPE_FROM_STAGE,
};

enum recipe_step_kind {
    RECIPE_RUN,
    RECIPE_COPY,
    RECIPE_ENV,
    RECIPE_WORKDIR,
    RECIPE_USER,
};

enum recipe_mount_kind { RECIPE_MOUNT_CACHE, RECIPE_MOUNT_SECRET, RECIPE_MOUNT_BIND };

struct recipe_mount {
    enum recipe_mount_kind kind;
    struct str target, id, from, source; /* STR_NONE = not given */
    bool readonly, required;
};

struct recipe_step {
    enum recipe_step_kind kind;
    size_t number; /* from 1, through all stages */
    struct recipe_words args;
    struct recipe_words exec, shell; /* RUN; none = the stage's shell */
    struct recipe_pairs env;         /* RUN: for this one only */
    const struct recipe_mount *mounts;
    size_t mount_count;
    struct str files_hash, from_stage, from_image, url, checksum; /* COPY: one of the first four */
    struct recipe_words excludes;
    bool force, extract, link;
    bool literal;    /* no variables are replaced in what it says */
    int64_t line;    /* 0 = not told */
    struct str text; /* as people know it; never STR_NONE */
};

struct recipe_stage {
    struct str name; /* "" = none */
    enum recipe_from from;
    struct str from_name;          /* of the template, image, release, or stage */
    struct str username, password; /* of the registry; STR_NONE = none */
    bool amazon;                   /* Amazon's access keys were given instead */
    const struct recipe_step *steps;
    size_t step_count;
};

struct recipe {
    const struct recipe_stage *stages; /* in the order in which they may name each other */
    size_t stage_count;
    size_t target;     /* which one is the result */
    size_t step_count; /* of all */
    bool force;
    bool docker;                     /* the rules of Dockerfiles: "defaults" was given */
    struct str start_cmd, ready_cmd; /* STR_NONE = the base's */
    struct str user, workdir;        /* to begin with; STR_NONE = the base's */
    struct recipe_words shell;       /* none = /bin/bash -l -c */
    struct recipe_pairs env, labels, secrets;
};

/* Strings are borrowed from *out_tree, which the caller frees. ERROR_INVALID. */
int recipe_parse(struct str text, struct arena *arena, json_t **out_tree, struct recipe *out,
                 struct error *err);
/* The same text without what must not be kept: secrets and passwords. malloc()ed. */
char *recipe_public_text(const json_t *tree);
/* Index of a stage by name (or by number), among the first `count`; -1 = there is none. */
ptrdiff_t recipe_find_stage(const struct recipe *recipe, struct str name, size_t count);

/* ---- variables (recipe_expand.c) ---- */

/* Value of a variable, or STR_NONE. */
typedef struct str recipe_lookup_fn(void *arg, struct str name);
/* $NAME, ${NAME}, ${NAME:-word} and ${NAME:+word} by their values; what is not set is empty. Nothing else is special: no command
 * is run, a backslash is one. In the arena. */
struct str recipe_expand(struct str text, recipe_lookup_fn *lookup, void *arg, struct arena *arena);
