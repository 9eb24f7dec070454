#include "cli/core/cli_names.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "cli/core/cli_v1.h"
#include "protocol/json/json_shape.h"

enum { PAGE = 1000, RUNTIME_ID_LEN = 24, FEW = 4 };

/* ---- all of them ---- */

static void add_parameter(struct buf *path, const char *name, const char *value)
{
    if (!value)
        return;
    (void)buf_printf(path, "&%s=", name);
    cli_escape(path, value);
}

/* before_us: made before; 0 = any. */
static json_t *list_page(struct cli *cli, const struct cli_wanted *wanted, int64_t before_us,
                         struct error *err)
{
    auto_buf struct buf path = {0};
    auto_json json_t *answer = NULL;

    buf_init(&path, HTTP_URL_MAX);
    (void)buf_printf(&path, CLI_V1 "/sandboxes?limit=%d", PAGE);
    if (before_us)
        (void)buf_printf(&path, "&before=%lld", (long long)before_us);
    add_parameter(&path, "state", wanted->state);
    add_parameter(&path, "agent_id", wanted->agent_id);
    add_parameter(&path, "team", wanted->team);
    add_parameter(&path, "ports", wanted->ports ? "true" : NULL);
    if (cli_v1(cli, "GET", buf_take(&path), NULL, &answer, err) < 0)
        return NULL;
    return json_incref(json_object_get(answer, "sandboxes"));
}

/* Those that are new go to the end of all; how many. */
static size_t add_new(json_t *all, json_t *known, const json_t *page)
{
    size_t added = 0;

    for (size_t i = 0; i < json_array_size(page); i++) {
        json_t *one = json_array_get(page, i);
        const char *id = json_string_value(json_object_get(one, "id"));

        if (!id || json_object_get(known, id))
            continue;
        (void)json_object_set_new(known, id, json_true());
        (void)json_array_append(all, one);
        added++;
    }
    return added;
}

json_t *cli_sandboxes(struct cli *cli, const struct cli_wanted *wanted, struct error *err)
{
    auto_json json_t *all = json_array(), *known = json_object();
    int64_t before_us = 0;

    for (;;) {
        auto_json json_t *page = list_page(cli, wanted, before_us, err);
        size_t count = json_array_size(page);

        if (!page)
            return NULL;
        /* Several may be made in one moment: that one is asked for again. */
        if (add_new(all, known, page) == 0 || count < PAGE ||
            !clock_parse(json_get_str(json_array_get(page, count - 1), "created_at"), &before_us))
            return json_incref(all);
        before_us++;
    }
}

/* ---- one of them ---- */

bool cli_name_is_id(struct str word)
{
    return id_valid(word) || str_starts(word, STR("key:")) ||
           (str_starts(word, STR("sbx_")) && word.len == RUNTIME_ID_LEN);
}

static bool is_called(const json_t *row, struct str word)
{
    if (!word.len)
        return false;
    return str_eq(json_get_str(row, "key"), word) ||
           str_eq(json_get_str(json_object_get(row, "metadata"), "name"), word) ||
           str_eq(json_get_str(row, "id"), word);
}

/* Two names that are the same, or two ids that begin the same: who asked has to say more. */
static const char *several(const json_t *found, const char *word, struct error *err)
{
    auto_buf struct buf ids = {0};

    buf_init(&ids, 1024);
    for (size_t i = 0; i < json_array_size(found) && i < FEW; i++)
        (void)buf_printf(&ids, "%s%s", i ? ", " : "",
                         json_string_value(json_object_get(json_array_get(found, i), "id")));
    (void)error_set(err, ERROR_CONFLICT, "'%s' is the name of %zu sandboxes: %s%s", word,
                    json_array_size(found), ids.p, json_array_size(found) > FEW ? ", ..." : "");
    return NULL;
}

const char *cli_name_find(const json_t *rows, const char *word, struct error *err)
{
    auto_json json_t *called = json_array(), *begin = json_array();
    const json_t *found;
    json_t *row;
    size_t i;

    json_array_foreach (rows, i, row) {
        if (is_called(row, str_of(word)))
            (void)json_array_append(called, row);
        else if (word[0] && str_starts(json_get_str(row, "id"), str_of(word)))
            (void)json_array_append(begin, row);
    }
    found = json_array_size(called) ? called : begin;
    if (json_array_size(found) > 1)
        return several(found, word, err);
    if (json_array_size(found) == 1)
        return json_string_value(json_object_get(json_array_get(found, 0), "id"));
    (void)error_set(
        err, ERROR_NOT_FOUND,
        "there is no sandbox '%s': no id begins so, and none has it as its key or name; see "
        "'quicksand ls'",
        word);
    return NULL;
}

static const char *keep(struct cli *cli, const char *id)
{
    cli->names = xrealloc(cli->names, (cli->name_count + 1) * sizeof(*cli->names));
    cli->names[cli->name_count] = xstrdup(id);
    return cli->names[cli->name_count++];
}

const char *cli_name_id(struct cli *cli, const char *word, struct error *err)
{
    auto_json json_t *rows = NULL;
    const char *id;

    if (cli_name_is_id(str_of(word)))
        return word;
    rows = cli_sandboxes(cli, &(struct cli_wanted){0}, err);
    if (!rows)
        return NULL;
    id = cli_name_find(rows, word, err);
    return id ? keep(cli, id) : NULL;
}

const char *cli_name_engine_id(struct cli *cli, const char *word, struct error *err)
{
    auto_json json_t *row = NULL;

    if (!str_starts(str_of(word), STR("key:")))
        return cli_name_id(cli, word, err);
    if (cli_v1(cli, "GET", cli_v1_path("sandboxes", word), NULL, &row, err) < 0)
        return NULL;
    return keep(cli, json_get_str(row, "id").p);
}

int cli_connect_to(struct cli *cli, char **words, int count, struct error *err)
{
    if (cli_connect(cli, err) < 0)
        return -1;
    for (int i = 0; i < count; i++) {
        const char *id = cli_name_id(cli, words[i], err);

        if (!id)
            return -1;
        words[i] = (char *)(uintptr_t)id;
    }
    return 0;
}
