/* The words of an instruction: splitting, flags, lists in JSON, and variables.
 *
 * Not every variable is known where the Dockerfile is read: what an image or a template sets is known to the server
 * alone. Where the server expands variables itself (`defer`) such a one is left as ${NAME}. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

enum words_known {
    WORDS_UNSET, /* it has no value, for certain */
    WORDS_SET,
    WORDS_LATER, /* only the server knows */
};

struct words_lookup {
    enum words_known (*find)(void *arg, struct str name, struct str *out_value);
    void *arg;
    char escape;
    bool defer; /* what is known only later may be left in the text */
};

enum { WORDS_TEXT_MAX = 256 * 1024 };

/* Quotes and escapes taken away, variables replaced. *out_later (may be NULL) tells whether one was left. Appends to
 * out. The message says what is wrong, not where. */
int words_expand(struct str text, const struct words_lookup *lookup, struct buf *out,
                 bool *out_later, struct error *err);
/* The same for here-documents: quotes are characters like others. */
int words_expand_plain(struct str text, const struct words_lookup *lookup, struct buf *out,
                       struct error *err);

struct words {
    struct str *items;
    size_t count;
};

/* By blanks alone. */
void words_split(struct str text, struct arena *arena, struct words *out);
/* By blanks that are not quoted or escaped; quotes stay. */
int words_split_quoted(struct str text, char escape, struct arena *arena, struct words *out,
                       struct error *err);
/* Of the word at the begin of text, quotes included; all of it when a quote is not closed. */
size_t words_length(struct str text, char escape, bool *out_closed);
/* ["a", "b"]. False when it is no such list. */
bool words_json(struct str text, struct arena *arena, struct words *out);

/* Takes "--name[=value]" from the front of *rest. False when there is none. */
bool words_flag(struct str *rest, char escape, struct str *out_name, struct str *out_value);
/* As one word for a shell. */
void words_quote(struct buf *out, struct str word);
