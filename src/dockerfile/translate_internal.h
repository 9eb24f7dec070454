/* A translation under way. */
#pragma once

#include "base/ready_ports.h"
#include "dockerfile/dockerfile.h"
#include "dockerfile/translate.h"

struct translate_variable {
    struct str name, value;
    bool is_env;   /* else of ARG, which ENV hides */
    bool is_later; /* its value has something in it that only the server knows */
};

struct translate_variables {
    struct translate_variable *items;
    size_t count, room;
};

struct translate_stage {
    struct str name; /* of AS, or its number */
    bool is_named;
    size_t index;
    json_t *json; /* from…, steps */
    struct translate_variables variables;
    struct str workdir; /* STR_NONE = the base's, which is not known */
    struct words shell; /* of commands that are texts */
    struct words entrypoint, cmd;
    bool cmd_set; /* by this stage itself */
    bool entrypoint_is_text;
    struct str ready; /* STR_NONE = none */
    uint16_t ports[READY_PORTS_MAX];
    size_t port_count;
    json_t *labels;
    bool needs[TRANSLATE_STAGES_MAX]; /* by number */
};

struct translate_work {
    const struct dockerfile_source *source;
    struct arena *arena;
    struct dockerfile docker;
    const struct dockerfile_instruction *in; /* the one that is translated */
    struct translate_variables globals;      /* ARG before the first FROM */
    struct translate_stage stages[TRANSLATE_STAGES_MAX];
    size_t stage_count;
    struct translate_stage *stage; /* NULL before the first FROM */
    bool *arg_used;                /* as source->args */
    struct dockerfile_recipe *out;
    size_t files_room;
    struct error *err;
};

/* "FILE:LINE: …" */
int translate_fault(struct translate_work *work, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The same in front of what is there. */
int translate_where(struct translate_work *work);

/* The text with its variables, in the arena. out_later NULL: nothing may be left for the server; else whether
 * something was, and the server is to expand it. */
int translate_text(struct translate_work *work, struct str text, struct str *out, bool *out_later);
/* The same for a here-document: quotes stay, nothing is left for the server. */
int translate_lines(struct translate_work *work, struct str text, struct str *out);
/* Appended to the stage's steps; borrowed. */
json_t *translate_step(struct translate_work *work, const char *type);
/* Nothing in it is left for the server to expand. */
void translate_literal(json_t *step, bool is_later);
json_t *translate_list(const struct words *words);
struct dockerfile_files *translate_need_files(struct translate_work *work, json_t *step);
/* Beneath the stage's directory when that is known, else as it is. A '/' at its end stays. */
struct str translate_path(struct translate_work *work, struct str path, bool is_later);
/* A stage of that name or number above this one, else NULL. */
struct translate_stage *translate_find_stage(struct translate_work *work, struct str name);
/* Says in `json` that it begins with a stage, a template, an image. */
int translate_from(struct translate_work *work, json_t *json, struct str name);
/* By --build-arg; it counts as used. */
const struct pair *translate_given(struct translate_work *work, struct str name);
struct translate_variable *translate_find(const struct translate_variables *all, struct str name,
                                          bool is_env);
void translate_set(struct translate_work *work, struct translate_variables *variables,
                   struct translate_variable variable);
bool translate_bool(struct str value, bool *out);

/* The instructions. */
int translate_arg(struct translate_work *work);
int translate_env(struct translate_work *work);
int translate_label(struct translate_work *work);
int translate_maintainer(struct translate_work *work);
int translate_workdir(struct translate_work *work);
int translate_user(struct translate_work *work);
int translate_expose(struct translate_work *work);
int translate_stopsignal(struct translate_work *work);
int translate_onbuild(struct translate_work *work);
int translate_run(struct translate_work *work);
int translate_cmd(struct translate_work *work);
int translate_entrypoint(struct translate_work *work);
int translate_shell(struct translate_work *work);
int translate_healthcheck(struct translate_work *work);
int translate_copy(struct translate_work *work);
int translate_volume(struct translate_work *work);

/* The command of the stage, or NULL; malloc()ed. */
char *translate_start(const struct translate_stage *stage);
/* What tells that it is ready; malloc()ed. */
char *translate_ready(const struct translate_stage *stage);
