#include "envd/files/files_type.h"

#include "base/buf.h"

static const struct {
    const char *extension;
    struct str type;
} types[] = {
    {"avif", STR_INIT("image/avif")},
    {"bmp", STR_INIT("image/bmp")},
    {"bz2", STR_INIT("application/x-bzip2")},
    {"css", STR_INIT("text/css; charset=utf-8")},
    {"csv", STR_INIT("text/csv; charset=utf-8")},
    {"docx", STR_INIT("application/vnd.openxmlformats-officedocument.wordprocessingml.document")},
    {"gif", STR_INIT("image/gif")},
    {"gz", STR_INIT("application/gzip")},
    {"htm", STR_INIT("text/html; charset=utf-8")},
    {"html", STR_INIT("text/html; charset=utf-8")},
    {"ico", STR_INIT("image/vnd.microsoft.icon")},
    {"ics", STR_INIT("text/calendar; charset=utf-8")},
    {"jpeg", STR_INIT("image/jpeg")},
    {"jpg", STR_INIT("image/jpeg")},
    {"js", STR_INIT("text/javascript; charset=utf-8")},
    {"json", STR_INIT("application/json")},
    {"log", STR_INIT("text/plain; charset=utf-8")},
    {"md", STR_INIT("text/markdown; charset=utf-8")},
    {"mjs", STR_INIT("text/javascript; charset=utf-8")},
    {"mp3", STR_INIT("audio/mpeg")},
    {"mp4", STR_INIT("video/mp4")},
    {"ogg", STR_INIT("audio/ogg")},
    {"otf", STR_INIT("font/otf")},
    {"pdf", STR_INIT("application/pdf")},
    {"png", STR_INIT("image/png")},
    {"pptx", STR_INIT("application/vnd.openxmlformats-officedocument.presentationml.presentation")},
    {"svg", STR_INIT("image/svg+xml")},
    {"tar", STR_INIT("application/x-tar")},
    {"tif", STR_INIT("image/tiff")},
    {"tiff", STR_INIT("image/tiff")},
    {"ttf", STR_INIT("font/ttf")},
    {"txt", STR_INIT("text/plain; charset=utf-8")},
    {"wasm", STR_INIT("application/wasm")},
    {"wav", STR_INIT("audio/x-wav")},
    {"webm", STR_INIT("video/webm")},
    {"webp", STR_INIT("image/webp")},
    {"woff", STR_INIT("font/woff")},
    {"woff2", STR_INIT("font/woff2")},
    {"xlsx", STR_INIT("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet")},
    {"xml", STR_INIT("text/xml; charset=utf-8")},
    {"zip", STR_INIT("application/zip")},
};

struct str files_type_of(struct str name)
{
    size_t dot = name.len;

    while (dot > 0 && name.p[dot - 1] != '.')
        dot--;
    if (dot == 0)
        return STR("application/octet-stream");
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (str_eq_nocase(str_skip(name, dot), str_of(types[i].extension)))
            return types[i].type;
    return STR("application/octet-stream");
}

/* A character that RFC 8187 does not escape. */
static bool is_plain_char(char c)
{
    return ascii_is_token(c) && c != '%' && c != '\'' && c != '*';
}

static void add_quoted(struct buf *value, struct str name)
{
    buf_add_str(value, STR("=\""));
    for (size_t i = 0; i < name.len; i++) {
        if (name.p[i] == '"' || name.p[i] == '\\')
            buf_add_char(value, '\\');
        buf_add_char(value, name.p[i]);
    }
    buf_add_char(value, '"');
}

static void add_escaped(struct buf *value, struct str name)
{
    buf_add_str(value, STR("*=utf-8''"));
    for (size_t i = 0; i < name.len; i++) {
        if (is_plain_char(name.p[i]))
            buf_add_char(value, name.p[i]);
        else
            buf_printf(value, "%%%02X", (unsigned char)name.p[i]);
    }
}

struct str files_type_disposition(struct arena *arena, struct str name)
{
    bool token = true, ascii = true;
    struct buf value;
    struct str copy;

    for (size_t i = 0; i < name.len; i++) {
        token &= ascii_is_token(name.p[i]);
        ascii &= name.p[i] >= 0x20 && name.p[i] < 0x7f;
    }
    buf_init(&value, 4096);
    buf_add_str(&value, STR("inline; filename"));
    if (token)
        buf_printf(&value, "=%.*s", STR_ARG(name));
    else if (ascii)
        add_quoted(&value, name);
    else
        add_escaped(&value, name);
    copy = arena_str(arena, buf_str(&value));
    buf_done(&value);
    return copy;
}
