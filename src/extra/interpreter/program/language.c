#include "extra/interpreter/program/language.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

const struct language languages[] = {
    {"python", "python", KERNEL_FORKED, {"python3", "@/python.py", NULL}},
    {"javascript", "javascript", KERNEL_JSON, {"node", "@/node.js", NULL}},
    {"typescript", "javascript", KERNEL_JSON, {"node", "@/node.js", NULL}},
    {"bash",
     "bash",
     KERNEL_SHELL,
     {"bash", "--noediting", "--noprofile", "--rcfile", "@/bash.sh", "-i", NULL}},
    {"r", "r", KERNEL_FRAMES, {"Rscript", "--no-save", "@/r.R", NULL}, .needs = "/usr/bin/Rscript"},
    {"java", "java", KERNEL_FRAMES, {"sh", "@/java.sh", NULL}, .needs = "@/java.jar"},
    {.name = NULL},
};

static const struct {
    const char *form, *name;
} short_forms[] = {{"py", "python"},
                   {"python3", "python"},
                   {"js", "javascript"},
                   {"ts", "typescript"},
                   {"sh", "bash"}};

const struct language *language_find(struct str name)
{
    name = str_trim(name);
    if (!name.len)
        return &languages[0];
    for (size_t i = 0; i < sizeof(short_forms) / sizeof(short_forms[0]); i++)
        if (str_eq_nocase(name, str_of(short_forms[i].form)))
            name = str_of(short_forms[i].name);
    for (const struct language *at = languages; at->name; at++)
        if (str_eq_nocase(name, str_of(at->name)))
            return at;
    return NULL;
}

/* ---- which are here ---- */

char *language_path(const char *text, const char *kernels)
{
    return text[0] == '@' ? xasprintf("%s%s", kernels, text + 1) : xstrdup(text);
}

bool language_here(const struct language *language, const char *kernels)
{
    auto_free char *path = language->needs ? language_path(language->needs, kernels) : NULL;

    return !path || access(path, R_OK) == 0;
}

void language_refusal(struct str name, const char *kernels, struct buf *out)
{
    const struct language *language = language_find(name);
    const char *between = "";

    if (language)
        (void)buf_printf(out,
                         "the kernel of '%s' is not in this template, but in " LANGUAGE_FULL
                         " (quicksand template build " LANGUAGE_FULL "); here are ",
                         language->name);
    else
        (void)buf_printf(out, "there is no kernel for '%.*s'; here are ",
                         (int)(name.len < 64 ? name.len : 64), name.p);
    for (const struct language *at = languages; at->name; at++) {
        if (!language_here(at, kernels))
            continue;
        (void)buf_printf(out, "%s%s", between, at->name);
        between = ", ";
    }
}

/* ---- lines of JSON ---- */

static void write_json(const struct language *language, const struct cell_text *cell,
                       struct buf *out)
{
    auto_json json_t *json = json_object();
    auto_free char *text = NULL;

    (void)json_object_set_new(json, "code", json_str(cell->code));
    (void)json_object_set_new(json, "language", json_string(language->name));
    if (cell->globals)
        (void)json_object_set_new(json, "globals", json_deep_copy(cell->globals));
    if (cell->envs)
        (void)json_object_set_new(json, "envs", json_deep_copy(cell->envs));
    text = json_text(json);
    (void)buf_add_str(out, str_of(text));
    (void)buf_add_char(out, '\n');
}

/* ---- frames ---- */

static void add_frame(struct buf *out, char kind, struct str first, const char *between,
                      struct str second)
{
    (void)buf_printf(out, "%c %zu\n", kind, first.len + strlen(between) + second.len);
    (void)buf_add_str(out, first);
    (void)buf_add_str(out, str_of(between));
    (void)buf_add_str(out, second);
}

static void add_variable_frames(struct buf *out, char kind, const json_t *variables)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)variables, name, value)
        if (json_is_string(value) && name[0] && !strchr(name, '='))
            add_frame(out, kind, str_of(name), "=",
                      str_n(json_string_value(value), json_string_length(value)));
}

/* g and v are "NAME=VALUE", of the sandbox and of this cell; c is the code, and the last. */
static void write_frames(const struct cell_text *cell, struct buf *out)
{
    add_variable_frames(out, 'g', cell->globals);
    add_variable_frames(out, 'v', cell->envs);
    add_frame(out, 'c', cell->code, "", STR(""));
}

/* ---- the shell ---- */

static bool is_variable(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    return true;
}

/* $'…': one line whatever is in it. A shell knows no zero bytes, they are left out. */
static void add_quoted(struct buf *out, struct str text)
{
    (void)buf_add_str(out, STR("$'"));
    for (size_t i = 0; i < text.len; i++) {
        char c = text.p[i];

        if (c == '\'' || c == '\\')
            (void)buf_printf(out, "\\%c", c);
        else if (c == '\n')
            (void)buf_add_str(out, STR("\\n"));
        else if (c != '\0')
            (void)buf_add_char(out, c);
    }
    (void)buf_add_char(out, '\'');
}

static void add_variables(struct buf *out, const char *command, const json_t *variables)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)variables, name, value) {
        if (!json_is_string(value) || !is_variable(name))
            continue;
        (void)buf_printf(out, "%s %s ", command, name);
        add_quoted(out, str_n(json_string_value(value), json_string_length(value)));
        (void)buf_add_char(out, ';');
    }
}

static void write_shell(const struct cell_text *cell, struct buf *out)
{
    add_variables(out, "__quicksand_global", cell->globals);
    add_variables(out, "__quicksand_variable", cell->envs);
    (void)buf_add_str(out, STR("eval "));
    add_quoted(out, cell->code);
    (void)buf_add_str(out, STR(" </dev/null\n"));
}

void language_write(const struct language *language, const struct cell_text *cell, struct buf *out)
{
    if (language->way == KERNEL_SHELL)
        write_shell(cell, out);
    else if (language->way == KERNEL_FRAMES)
        write_frames(cell, out);
    else
        write_json(language, cell, out);
}
