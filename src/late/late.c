#include "late/late.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Of a library that is there already it is the same handle again. */
static void *load(const struct late_library *library, struct error *err)
{
    void *handle = dlopen(library->file, RTLD_NOW | RTLD_LOCAL);

    if (!handle)
        (void)error_set(err, ERROR_UNAVAILABLE,
                        "cannot load a library: %s; install the package '%s'", dlerror(),
                        library->package);
    return handle;
}

int late_load(struct error *err)
{
    return load(&late_curl, err) && load(&late_archive, err) ? 0 : -1;
}

late_function *late_find(const struct late_library *library, const char *name)
{
    struct error err;
    void *handle = load(library, &err);
    /* POSIX lets a function be told as an object; ISO C has no cast for that. */
    union {
        void *object;
        late_function *function;
    } found = {handle ? dlsym(handle, name) : NULL};

    if (handle && !found.object)
        (void)error_set(&err, ERROR_UNAVAILABLE,
                        "a library lacks what is used of it: %s; upgrade the package '%s'",
                        dlerror(), library->package);
    if (!found.object) {
        (void)fprintf(stderr, "quicksand: %s\n", err.message);
        exit(EXIT_FAILURE);
    }
    return found.function;
}
