/* Files: text as text, pictures as pictures, anything else as base64. */
#include "extra/mcp/mcp_tool.h"

#include <sys/types.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "protocol/json/json_shape.h"
#include "runtime/command/command.h"

enum {
    READ_DEFAULT = 256 * 1024,
    PICTURE_MAX = 4 * 1024 * 1024,
    ENTRIES_MAX = 1000,
};

static struct runtime *runtime_of(const struct mcp_call *call)
{
    return call->mcp->config.runtime;
}

/* ---- read ---- */

struct reading {
    int64_t skip; /* bytes before the first that is wanted */
    size_t limit;
    bool begun, more;
    const char *picture; /* its type; NULL = it is none */
    struct buf data;
};

/* By its first bytes. */
static const char *picture_type(struct str data)
{
    static const struct {
        struct str begin;
        const char *type;
    } types[] = {{STR_INIT("\x89PNG\r\n\x1a\n"), "image/png"},
                 {STR_INIT("\xff\xd8\xff"), "image/jpeg"},
                 {STR_INIT("GIF87a"), "image/gif"},
                 {STR_INIT("GIF89a"), "image/gif"}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (str_starts(data, types[i].begin))
            return types[i].type;
    if (data.len >= 12 && str_starts(data, STR("RIFF")) && memcmp(data.p + 8, "WEBP", 4) == 0)
        return "image/webp";
    return NULL;
}

static int take(void *arg, struct str data)
{
    struct reading *reading = arg;
    size_t room;

    if (!reading->begun && reading->skip == 0)
        reading->picture = picture_type(data);
    reading->begun = true;
    if (reading->picture)
        reading->limit = PICTURE_MAX;
    if (reading->skip >= (int64_t)data.len) {
        reading->skip -= (int64_t)data.len;
        return 0;
    }
    data = str_skip(data, (size_t)reading->skip);
    reading->skip = 0;
    room = reading->limit - reading->data.len;
    reading->more = data.len > room;
    (void)buf_add(&reading->data, data.p, reading->more ? room : data.len);
    return reading->more || reading->data.refused ? -1 : 0;
}

/* Bytes at the end that begin a character whose rest is behind the limit. */
static size_t begun_character(struct str text)
{
    for (size_t n = 1; n <= 3 && n <= text.len; n++) {
        unsigned char c = (unsigned char)text.p[text.len - n];

        if (c >= 0xc0)
            return n < (c >= 0xf0 ? 4U : c >= 0xe0 ? 3U : 2U) ? n : 0;
        if (c < 0x80)
            return 0;
    }
    return 0;
}

static void add_content(struct reading *reading, struct str path, struct mcp_outcome *out)
{
    auto_free char *uri = xasprintf("file://%s%.*s", path.p[0] == '/' ? "" : "/", STR_ARG(path));
    struct str text = reading->data.len ? buf_str(&reading->data) : STR("");

    if (reading->picture) {
        mcp_outcome_image(out, buf_str(&reading->data), reading->picture);
        return;
    }
    if (str_valid_utf8(text) && !memchr(text.p, '\0', text.len))
        mcp_outcome_text(out, text);
    else
        mcp_outcome_document(out, uri, "application/octet-stream", buf_str(&reading->data));
}

static int answer_read(struct mcp_call *call, struct reading *reading, struct str path,
                       struct str id, int64_t offset, struct mcp_outcome *out, struct error *err)
{
    int64_t next = 0;

    if (reading->picture && reading->more)
        return error_set(err, ERROR_LIMIT,
                         "the picture '%.*s' is larger than %d bytes: make a smaller one of it",
                         STR_ARG(path), PICTURE_MAX);
    if (reading->more)
        reading->data.len -= begun_character(buf_str(&reading->data));
    next = offset + (int64_t)reading->data.len;
    if (mcp_outcome_reserve(reading->data.len, err) < 0)
        return -1;
    add_content(reading, path, out);
    if (reading->more)
        mcp_outcome_text(
            out, str_of(arena_printf(&call->arena, "[the file goes on: read it with offset %lld]",
                                     (long long)next)));
    mcp_outcome_json(out, json_pack("{s:o, s:o, s:I, s:I, s:o}", "sandbox_id", json_str(id), "path",
                                    json_str(path), "offset", (json_int_t)offset, "size",
                                    (json_int_t)reading->data.len, "next",
                                    reading->more ? json_integer(next) : json_null()));
    return 0;
}

int mcp_read_file(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    int64_t offset = mcp_arg_int(args, "offset", 0);
    struct reading reading = {.skip = offset,
                              .limit = (size_t)mcp_arg_int(args, "limit", READ_DEFAULT)};
    struct str path = json_get_str(args, "path"), id;
    int r;

    if (mcp_sandbox(call, args, &id, err) < 0)
        return -1;
    buf_init_charged(&reading.data, PICTURE_MAX);
    r = runtime_file_read(runtime_of(call), &call->caller, id, path.p, take, &reading, err);
    if (reading.data.refused)
        r = buf_refuse(&reading.data, err);
    /* To have had enough is no failure. */
    else if (r == 0 || reading.more)
        r = answer_read(call, &reading, path, id, offset, out, err);
    buf_done(&reading.data);
    return r;
}

/* ---- write ---- */

static ssize_t give(void *arg, void *p, size_t size)
{
    struct str *left = arg;
    size_t n = left->len < size ? left->len : size;

    if (n)
        memcpy(p, left->p, n);
    *left = str_skip(*left, n);
    return (ssize_t)n;
}

int mcp_write_file(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct str path = json_get_str(args, "path"), content = json_get_str(args, "content"), id, left;
    auto_buf struct buf bytes = {0};

    buf_init(&bytes, MCP_BODY_MAX);
    if (str_is(json_get_str(args, "encoding"), "base64")) {
        if (!base64_decode(content, &bytes))
            return error_set(err, ERROR_INVALID, "'content' is not base64");
        content = bytes.len ? buf_str(&bytes) : STR("");
    }
    left = content;
    if (mcp_sandbox(call, args, &id, err) < 0 ||
        runtime_file_write(runtime_of(call), &call->caller, id, path.p, give, &left,
                           (int64_t)content.len, err) < 0)
        return -1;
    mcp_outcome_json(out, json_pack("{s:o, s:o, s:I}", "sandbox_id", json_str(id), "path",
                                    json_str(path), "size", (json_int_t)content.len));
    return 0;
}

/* ---- list ---- */

static json_t *entry(const struct provider_file *file)
{
    char mode[8];

    (void)snprintf(mode, sizeof(mode), "%04o", file->mode & 07777);
    return json_pack("{s:o, s:o, s:s, s:I, s:s, s:o}", "name", json_str(file->name), "path",
                     json_str(file->path), "type", file->directory ? "directory" : "file", "size",
                     (json_int_t)file->size, "mode", mode, "modified_at",
                     mcp_time(file->modified_at_us));
}

int mcp_list_files(struct mcp_call *call, json_t *args, struct mcp_outcome *out, struct error *err)
{
    struct str path = json_get_str(args, "path"), id;
    struct provider_file *items = NULL;
    size_t count = 0;
    json_t *array;

    if (mcp_sandbox(call, args, &id, err) < 0 ||
        runtime_file_list(runtime_of(call), &call->caller, id, path.p, &call->arena, &items, &count,
                          err) < 0)
        return -1;
    array = json_array();
    for (size_t i = 0; i < count && i < ENTRIES_MAX; i++)
        (void)json_array_append_new(array, entry(&items[i]));
    mcp_outcome_json(out,
                     json_pack("{s:o, s:o, s:o, s:b}", "sandbox_id", json_str(id), "path",
                               json_str(path), "entries", array, "truncated", count > ENTRIES_MAX));
    return 0;
}
