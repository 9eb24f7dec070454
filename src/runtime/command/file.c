/* Files of a sandbox. An operation that failed because the sandbox was paused is tried again, when
 * nothing was passed on yet. */
#include "runtime/command/command.h"
#include "runtime/sandbox/sandbox_parts.h"

struct passing {
    provider_sink_fn *sink;
    provider_source_fn *source;
    void *arg;
    bool begun;
};

static int pass_sink(void *arg, struct str data)
{
    struct passing *passing = arg;

    passing->begun = true;
    return passing->sink(passing->arg, data);
}

static ssize_t pass_source(void *arg, void *p, size_t size)
{
    struct passing *passing = arg;

    passing->begun = true;
    return passing->source(passing->arg, p, size);
}

static int check_path(const char *path, struct error *err)
{
    if (!path || !*path || strlen(path) > 4096)
        return error_set(err, ERROR_INVALID, "path must be 1 to 4096 bytes");
    return 0;
}

int runtime_file_read(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, provider_sink_fn *sink, void *arg, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct passing passing = {.sink = sink, .arg = arg};
    struct runtime_use use;
    int r;

    if (check_path(path, err) < 0 ||
        runtime_use(runtime, caller, id, PROVIDER_FILES, &arena, &use, err) < 0)
        return -1;
    r = provider_read(use.provider, &use.ref, path, pass_sink, &passing, err);
    if (r < 0 && !passing.begun && runtime_use_recover(runtime, caller, &use, &arena, err) > 0)
        r = provider_read(use.provider, &use.ref, path, pass_sink, &passing, err);
    return r;
}

int runtime_file_write(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       const char *path, provider_source_fn *source, void *arg, int64_t length,
                       struct error *err)
{
    auto_arena struct arena arena = {0};
    struct passing passing = {.source = source, .arg = arg};
    struct runtime_use use;
    int r;

    if (check_path(path, err) < 0 ||
        runtime_use(runtime, caller, id, PROVIDER_FILES, &arena, &use, err) < 0)
        return -1;
    r = provider_write(use.provider, &use.ref, path, pass_source, &passing, length, err);
    if (r < 0 && runtime_use_recover(runtime, caller, &use, &arena, err) > 0 && !passing.begun)
        r = provider_write(use.provider, &use.ref, path, pass_source, &passing, length, err);
    return r;
}

int runtime_file_list(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                      const char *path, struct arena *arena, struct provider_file **out,
                      size_t *out_count, struct error *err)
{
    struct runtime_use use;
    int r;

    if (check_path(path, err) < 0 ||
        runtime_use(runtime, caller, id, PROVIDER_FILES, arena, &use, err) < 0)
        return -1;
    r = provider_list(use.provider, &use.ref, path, arena, out, out_count, err);
    if (r < 0 && runtime_use_recover(runtime, caller, &use, arena, err) > 0)
        r = provider_list(use.provider, &use.ref, path, arena, out, out_count, err);
    return r;
}

int runtime_file_remove(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                        const char *path, struct error *err)
{
    auto_arena struct arena arena = {0};
    struct runtime_use use;
    int r;

    if (check_path(path, err) < 0 ||
        runtime_use(runtime, caller, id, PROVIDER_FILES, &arena, &use, err) < 0)
        return -1;
    r = provider_remove(use.provider, &use.ref, path, err);
    if (r < 0 && runtime_use_recover(runtime, caller, &use, &arena, err) > 0)
        r = provider_remove(use.provider, &use.ref, path, err);
    return r;
}
