/* Extras that this build was made without (meson's option `extras`), so that a request for one of them fails with the
 * reason instead of as a misspelled word. The table is made by tools/extras.py from the files src/extra/NAME/words. */
#pragma once

#include "base/error.h"
#include "base/str.h"

/* kind: "command", "provider", "program", "template" ... The name of the absent extra that the word belongs to, or
 * NULL. */
const char *extra_absent(const char *kind, struct str word);
/* As above, for the path of a request: patterns of kind "path" match what begins like them; '*' is one segment. */
const char *extra_absent_path(struct str path);
/* ERROR_UNSUPPORTED: "not built in: this build has no 'browser' (meson -Dextras=browser)". */
int extra_absent_error(const char *extra, struct error *err);

/* The table, ended by NULL. */
struct extra_word {
    const char *extra, *kind, *word;
};
extern const struct extra_word extra_absent_words[];
