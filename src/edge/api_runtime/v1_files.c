/* Files of a sandbox, streamed: no more than a pipe's worth of a file is ever in memory. Only what comes without
 * its length lies in a file first, because not every provider takes such, and a worker need not wait for it. */
#include "edge/api_runtime/v1_types.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/sandbox/sandbox.h"

static struct runtime *runtime_of(const struct v1_call *call)
{
    return call->v1->config.runtime;
}

static int read_path(struct v1_call *call, const char **out, struct error *err)
{
    struct str path;

    if (v1_query_str(call, "path", &path, err) < 0)
        return -1;
    if (!path.len)
        return error_set(err, ERROR_INVALID, "the query parameter 'path' is missing");
    *out = path.p; /* arena_str() ends it */
    return 0;
}

static int sink(void *arg, struct str data)
{
    struct v1_call *call = arg;

    if (!call->pipe.writes)
        call_pipe_begin(&call->pipe, 200, "application/octet-stream");
    return call_pipe_write(&call->pipe, data);
}

static int answer_list(struct v1_call *call, const char *path, struct error *err)
{
    struct provider_file *items = NULL;
    size_t count = 0;
    json_t *array;

    if (runtime_file_list(runtime_of(call), &call->caller, call->params[0], path, &call->arena,
                          &items, &count, err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(array, v1_types_file(&items[i]));
    call_answer(&call->call, 200, json_pack("{s:s, s:o}", "path", path, "entries", array));
    return 0;
}

int v1_files_get(struct v1_call *call, struct error *err)
{
    bool list = false;
    const char *path = "";
    struct error other = {0};

    if (read_path(call, &path, err) < 0 || v1_query_bool(call, "list", &list, err) < 0)
        return -1;
    if (list || str_ends(str_of(path), STR("/")))
        return answer_list(call, path, err);
    if (runtime_file_read(runtime_of(call), &call->caller, call->params[0], path, sink, call,
                          err) == 0) {
        if (!call->pipe.writes) /* an empty file */
            call_pipe_begin(&call->pipe, 200, "application/octet-stream");
        return 0;
    }
    /* A directory is refused as a file; when it can be listed, it was one. */
    if (err->code == ERROR_INVALID && !call->pipe.writes && answer_list(call, path, &other) == 0)
        return 0;
    return -1;
}

struct upload {
    struct v1_call *call;
    int64_t size;
};

static ssize_t source(void *arg, void *p, size_t size)
{
    struct upload *upload = arg;
    ssize_t n = upload->call->body_fd >= 0 ? read(upload->call->body_fd, p, size)
                                           : call_pipe_read(&upload->call->pipe, p, size);

    if (n > 0)
        upload->size += n;
    return n;
}

int v1_files_put(struct v1_call *call, struct error *err)
{
    struct upload upload = {.call = call};
    const char *path = "";

    if (read_path(call, &path, err) < 0 ||
        runtime_file_write(runtime_of(call), &call->caller, call->params[0], path, source, &upload,
                           call->body_fd >= 0 ? call->body_length : call->content_length, err) < 0)
        return -1;
    call_answer(&call->call, 200,
                json_pack("{s:s, s:I}", "path", path, "size", (json_int_t)upload.size));
    return 0;
}

int v1_files_delete(struct v1_call *call, struct error *err)
{
    const char *path = "";

    if (read_path(call, &path, err) < 0 ||
        runtime_file_remove(runtime_of(call), &call->caller, call->params[0], path, err) < 0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
