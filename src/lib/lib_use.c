/* Commands and files. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "lib/lib_internal.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"
#include "runtime/run/run.h"

/* ---- commands ---- */

static int read_env(const char *const *env, json_t **out, struct error *err)
{
    json_t *object = *out = json_object();

    for (; env && *env; env++) {
        struct str value = str_of(*env);
        auto_free char *name = str_dup(str_split(&value, '='));

        if (!name[0] || !value.p)
            return error_set(err, ERROR_INVALID, "'%s' is not NAME=VALUE", name);
        if (!str_valid_utf8(value) || json_object_set_new(object, name, json_str(value)) < 0)
            return error_set(err, ERROR_INVALID, "the variable '%s' is not UTF-8", name);
    }
    return 0;
}

static int read_argv(const char *const *argv, json_t **out, struct error *err)
{
    if (!argv)
        return 0;
    *out = json_array();
    for (; *argv; argv++)
        if (json_array_append_new(*out, json_string(*argv)) < 0)
            return error_set(err, ERROR_INVALID, "an argument is not UTF-8");
    return 0;
}

struct passing {
    qs_output_fn *fn;
    void *arg;
};

static int pass_output(void *arg, bool is_err, struct str data)
{
    struct passing *passing = arg;

    if (data.len)
        passing->fn(passing->arg, is_err ? QS_STDERR : QS_STDOUT, data.p, data.len);
    return 0;
}

static int run(struct qs *qs, const char *id, const struct qs_command *command,
               struct runtime_result *result, struct error *err)
{
    auto_json json_t *argv = NULL, *env = NULL;
    struct passing passing = {command->on_output, command->on_output_arg};
    struct runtime_command request = {
        .command = command->line ? str_of(command->line) : STR_NONE,
        .cwd = command->cwd ? str_of(command->cwd) : STR_NONE,
        .user = command->user ? str_of(command->user) : STR_NONE,
        .input = command->input ? str_n(command->input, command->input_len) : STR_NONE,
        .timeout_ms = command->timeout_ms,
        .output_limit =
            command->output_limit > INT32_MAX ? INT32_MAX : (int64_t)command->output_limit,
        .on_output = command->on_output ? pass_output : NULL,
        .on_output_arg = &passing,
    };

    if (!command->line == !(command->argv && command->argv[0]))
        return error_set(err, ERROR_INVALID, "a command needs either argv or a line");
    if (read_env(command->env, &env, err) < 0 || read_argv(command->argv, &argv, err) < 0)
        return -1;
    request.env = env;
    request.argv = argv;
    return runtime_exec(qs->runtime, &qs->caller, str_of(id), &request, result, err);
}

int qs_exec(struct qs *qs, const char *id, const struct qs_command *command, struct qs_result *out)
{
    struct runtime_result result = {0};
    struct qs_result ignored;
    struct error err = {0};

    if (!out)
        out = &ignored;
    *out = (struct qs_result){0};
    if (run(qs, id, command, &result, &err) < 0)
        return lib_result(-1, &err);
    *out = (struct qs_result){
        .exit_code = result.exit_code,
        .timed_out = result.timed_out,
        .truncated = result.truncated,
        .duration_ms = result.duration_ms,
        .out_len = result.out.len,
        .err_len = result.err.len,
    };
    out->out = buf_take(&result.out);
    out->err = buf_take(&result.err);
    runtime_result_done(&result);
    if (out == &ignored)
        qs_result_free(out);
    return 0;
}

void qs_result_free(struct qs_result *result)
{
    free(result->out);
    free(result->err);
    *result = (struct qs_result){0};
}

/* ---- files ---- */

static ssize_t source(void *arg, void *p, size_t size)
{
    struct str *rest = arg;
    size_t n = rest->len < size ? rest->len : size;

    if (n)
        memcpy(p, rest->p, n);
    *rest = str_skip(*rest, n);
    return (ssize_t)n;
}

int qs_put(struct qs *qs, const char *id, const char *path, const void *data, size_t len)
{
    struct str rest = str_n(data, len);
    struct error err = {0};

    return lib_result(runtime_file_write(qs->runtime, &qs->caller, str_of(id), path, source, &rest,
                                         (int64_t)len, &err),
                      &err);
}

static int sink(void *arg, struct str data)
{
    return buf_add(arg, data.p, data.len) ? 0 : -1;
}

int qs_get(struct qs *qs, const char *id, const char *path, size_t max, char **out, size_t *out_len)
{
    auto_buf struct buf bytes = {0};
    struct error err = {0};
    int r;

    buf_init(&bytes, max);
    r = runtime_file_read(qs->runtime, &qs->caller, str_of(id), path, sink, &bytes, &err);
    if (bytes.overflowed)
        r = error_set(&err, ERROR_LIMIT, "'%s' is longer than %zu bytes", path, max);
    if (r < 0)
        return lib_result(-1, &err);
    if (out_len)
        *out_len = bytes.len;
    *out = buf_take(&bytes);
    return 0;
}

int qs_list(struct qs *qs, const char *id, const char *path, char **out_json)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *array = json_array();
    struct provider_file *files = NULL;
    struct error err = {0};
    size_t count = 0;

    if (runtime_file_list(qs->runtime, &qs->caller, str_of(id), path, &arena, &files, &count,
                          &err) < 0)
        return lib_result(-1, &err);
    for (size_t i = 0; i < count; i++)
        (void)json_array_append_new(
            array,
            json_pack("{s:o, s:o, s:s, s:I, s:i}", "name", json_str(files[i].name), "path",
                      json_str(files[i].path), "type", files[i].directory ? "directory" : "file",
                      "size", (json_int_t)files[i].size, "mode", (int)(files[i].mode & 07777)));
    *out_json = json_text(array);
    return 0;
}

int qs_remove(struct qs *qs, const char *id, const char *path)
{
    struct error err = {0};

    return lib_result(runtime_file_remove(qs->runtime, &qs->caller, str_of(id), path, &err), &err);
}
