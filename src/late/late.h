/* Libraries that are loaded when their first function is called, not when the program starts: libcurl and libarchive bring
 * 34 others along, which the dynamic loader needs longer for than most commands take.
 *
 * late_curl.c and late_archive.c define what we call of them under their own names and with their own headers, so that
 * nobody who calls knows, and a type that differs does not compile. A program that links this room (late_dep) gets those;
 * without it, as in libquicksand and the tests, the same code is linked with the libraries themselves. */
#pragma once

#include "base/error.h"

struct late_library {
    const char *file;    /* as the loader looks for it */
    const char *package; /* Debian's name for what brings it */
};

extern const struct late_library late_curl, late_archive;

/* Loads both now. For programs that must not find out later that one is missing. */
int late_load(struct error *err);

typedef void late_function(void);

/* Ends the program, with what to install, when there is no such library or function. */
late_function *late_find(const struct late_library *library, const char *name)
    __attribute__((returns_nonnull));

/* The library's own function `name`, looked up once. */
#define LATE(library, name)                            \
    __extension__({                                    \
        static _Atomic(late_function *) late_found;    \
        if (!late_found)                               \
            late_found = late_find(&(library), #name); \
        (typeof(name) *)late_found;                    \
    })

/* The body of a function that is the library's. */
#define LATE_VALUE(library, type, name, parameters, arguments) \
    type name parameters                                       \
    {                                                          \
        return LATE(library, name) arguments;                  \
    }
#define LATE_VOID(library, name, parameters, arguments) \
    void name parameters                                \
    {                                                   \
        LATE(library, name) arguments;                  \
    }
