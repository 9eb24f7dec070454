#include "backup/backup_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

static const char *const kinds[BACKUP_KIND_COUNT] = {
    [BACKUP_STORE] = "store", [BACKUP_TLS] = "tls",       [BACKUP_INSTALLED] = "installed",
    [BACKUP_TREES] = "trees", [BACKUP_LAYERS] = "layers", [BACKUP_VOLUMES] = "volumes",
    [BACKUP_BOXES] = "boxes",
};

void backup_parts_done(struct backup_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        free(parts->list[i].mark);
    free(parts->list);
    *parts = (struct backup_parts){0};
}

struct backup_part *backup_parts_add(struct backup_parts *parts, enum backup_kind kind,
                                     struct str name)
{
    struct backup_part *part;

    if (parts->count == parts->capacity) {
        parts->capacity = parts->capacity ? 2 * parts->capacity : 64;
        parts->list = xrealloc(parts->list, parts->capacity * sizeof(*parts->list));
    }
    part = &parts->list[parts->count++];
    *part = (struct backup_part){.kind = kind};
    (void)str_copy(name, part->name, sizeof(part->name));
    return part;
}

void backup_part_path(const struct backup_part *part, char out[BACKUP_PATH_SIZE])
{
    (void)snprintf(out, BACKUP_PATH_SIZE, "%s/%s", kinds[part->kind], part->name);
}

bool backup_kind_in_pool(enum backup_kind kind)
{
    return kind >= BACKUP_LAYERS;
}

void backup_parts_count(const struct backup_parts *parts, struct backup_result *out)
{
    for (size_t i = 0; i < parts->count; i++) {
        enum backup_kind kind = parts->list[i].kind;

        out->sandboxes += kind == BACKUP_BOXES;
        out->volumes += kind == BACKUP_VOLUMES;
        out->layers += kind == BACKUP_INSTALLED || kind == BACKUP_TREES || kind == BACKUP_LAYERS;
    }
}

void backup_list_write(const struct backup_parts *parts, int64_t schema, struct buf *out)
{
    char now[CLOCK_TEXT_SIZE];

    clock_format(clock_wall_us(), now);
    json_out_open(out, NULL, '{');
    json_out_int(out, "format", BACKUP_FORMAT);
    json_out_str(out, "program", STR(QUICKSAND_VERSION));
    json_out_int(out, "schema", schema);
    json_out_str(out, "madeAt", str_of(now));
    json_out_open(out, "parts", '[');
    for (size_t i = 0; i < parts->count; i++) {
        (void)buf_add_str(out, i ? STR(",\n") : STR("\n")); /* a line for each */
        json_out_open(out, NULL, '{');
        json_out_str(out, "kind", str_of(kinds[parts->list[i].kind]));
        json_out_str(out, "name", str_of(parts->list[i].name));
        json_out_uint(out, "bytes", parts->list[i].bytes);
        json_out_close(out, "}");
    }
    json_out_close(out, "]}\n");
}

static bool name_ok(struct str name)
{
    size_t ok = 0;

    while (
        ok < name.len &&
        (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", name.p[ok]) ||
         (name.p[ok] == '.' && ok > 0)))
        ok++;
    return ok > 0 && ok == name.len && ok < BACKUP_NAME_SIZE;
}

static int read_part(const json_t *json, struct backup_parts *out, struct error *err)
{
    struct str kind = json_get_str(json, "kind"), name = json_get_str(json, "name");
    json_int_t bytes = json_integer_value(json_object_get(json, "bytes"));
    size_t i = 0;

    while (i < BACKUP_KIND_COUNT && !str_is(kind, kinds[i]))
        i++;
    if (i == BACKUP_KIND_COUNT || !name_ok(name) || bytes < 0)
        return error_set(err, ERROR_INVALID, "the backup has a part of no known kind or name");
    if ((out->count == 0) != (i == BACKUP_STORE) ||
        (out->count && (size_t)out->list[out->count - 1].kind > i))
        return error_set(err, ERROR_INVALID, "the parts of the backup are in no order");
    backup_parts_add(out, (enum backup_kind)i, name)->bytes = (uint64_t)bytes;
    return 0;
}

static int check_versions(const json_t *json, int64_t known, struct error *err)
{
    json_int_t format = json_integer_value(json_object_get(json, "format"));
    json_int_t schema = json_integer_value(json_object_get(json, "schema"));
    struct str program = json_get_str(json, "program");

    if (format < 1 || schema < 1)
        return error_set(err, ERROR_INVALID, "the list in the backup has no format");
    if (format > BACKUP_FORMAT || schema > known)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the backup was made by a newer program (%.*s; format %lld, schema %lld; "
                         "this one knows %d and %lld): install that, or a newer one",
                         (int)(program.len < 40 ? program.len : 40), program.p ? program.p : "",
                         (long long)format, (long long)schema, BACKUP_FORMAT, (long long)known);
    return 0;
}

int backup_list_read(struct str text, int64_t known, struct backup_parts *out, struct error *err)
{
    auto_json json_t *json = NULL;
    json_t *part;
    size_t i;

    if (json_parse(text, &json, err) < 0)
        return error_prefix(err, "the list in the backup");
    if (check_versions(json, known, err) < 0)
        return -1;
    if (json_array_size(json_object_get(json, "parts")) > BACKUP_PARTS_MAX)
        return error_set(err, ERROR_LIMIT, "the backup has more than %d parts", BACKUP_PARTS_MAX);
    json_array_foreach (json_object_get(json, "parts"), i, part)
        if (read_part(part, out, err) < 0)
            return -1;
    return out->count ? 0 : error_set(err, ERROR_INVALID, "the backup has no store");
}
