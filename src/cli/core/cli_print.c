#include "cli/core/cli_print.h"

#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/core/cli_table.h"
#include "protocol/json/json_shape.h"

enum { COLUMNS_MAX = 12, WORDS_MAX = 64 * 1024 };

void cli_print_json(const json_t *json)
{
    /* For a terminal nothing but ASCII: it means the same. */
    auto_free char *text = !json ? NULL
                           : isatty(STDOUT_FILENO)
                               ? json_text_as(json, JSON_COMPACT | JSON_ENSURE_ASCII)
                               : json_text(json);

    printf("%s\n", text ? text : "null");
}

void cli_print_json_new(json_t *json_consume)
{
    cli_print_json(json_consume);
    json_decref(json_consume);
}

/* "a, b" when they are all strings. */
static char *words_of(const json_t *list)
{
    struct buf out;

    buf_init(&out, WORDS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));

        if (!word || !buf_printf(&out, "%s%s", i ? ", " : "", word)) {
            buf_done(&out);
            return json_text(list);
        }
    }
    return out.len ? buf_take(&out) : xstrdup("-");
}

char *cli_print_text(const json_t *value)
{
    if (!value || json_is_null(value))
        return xstrdup("-");
    if (json_is_string(value))
        return json_string_length(value)
                   ? str_dup(str_n(json_string_value(value), json_string_length(value)))
                   : xstrdup("-");
    if (json_is_boolean(value))
        return xstrdup(json_is_true(value) ? "yes" : "no");
    if (json_is_real(value))
        return xasprintf("%.6g", json_real_value(value));
    if (json_is_object(value) && json_object_size(value) == 0)
        return xstrdup("-");
    return json_is_array(value) ? words_of(value) : json_text(value);
}

void cli_print_members(const json_t *json)
{
    static const char *const columns[] = {"FIELD", "VALUE", NULL};
    struct cli_table *table = cli_table_new(columns);
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)(uintptr_t)json, name, value) {
        auto_free char *text = cli_print_text(value);

        if (strcmp(name, "envdAccessToken") == 0)
            continue;
        cli_table_add(table, str_of(name));
        cli_table_add(table, str_of(text));
    }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

const json_t *cli_print_member(const json_t *row, const char *path)
{
    struct str rest = str_of(path);

    while (row && rest.p) {
        auto_free char *name = str_dup(str_split(&rest, '.'));

        row = json_object_get(row, name);
    }
    return row;
}

static void add_age(struct cli_table *table, const json_t *value, int64_t now_us)
{
    char age[CLI_AGE_SIZE] = "-";
    int64_t at_us;

    if (json_is_string(value) && clock_parse(str_of(json_string_value(value)), &at_us))
        cli_age(now_us - at_us, age);
    cli_table_add(table, str_of(age));
}

void cli_print_rows(const json_t *rows, const struct cli_column *columns)
{
    const char *titles[COLUMNS_MAX + 1] = {NULL};
    int64_t now_us = clock_wall_us();
    struct cli_table *table;
    size_t count = 0;

    while (count < COLUMNS_MAX && columns[count].title) {
        titles[count] = columns[count].title;
        count++;
    }
    table = cli_table_new(titles);
    for (size_t i = 0; i < json_array_size(rows); i++)
        for (size_t k = 0; k < count; k++) {
            const json_t *value =
                columns[k].text ? NULL
                                : cli_print_member(json_array_get(rows, i), columns[k].member);
            auto_free char *text =
                columns[k].text ? columns[k].text(json_array_get(rows, i)) : cli_print_text(value);

            if (columns[k].age)
                add_age(table, value, now_us);
            else
                cli_table_add(table, str_of(text));
        }
    cli_table_print(table, stdout);
    cli_table_free(table);
}

void cli_print_list(const struct cli *cli, const json_t *answer, const char *member,
                    const struct cli_column *columns)
{
    const json_t *rows = json_object_get(answer, member);

    if (cli->json)
        cli_print_json(rows);
    else
        cli_print_rows(rows, columns);
}

void cli_print_id(const struct cli *cli, const json_t *answer)
{
    if (cli->json)
        cli_print_json(answer);
    else
        printf("%.*s\n", STR_ARG(json_get_str(answer, "id")));
}

char *cli_print_str(const json_t *object, const char *member)
{
    struct str text = json_get_str(object, member);

    return cli_defuse(str_dup(text.p ? text : STR("")), false);
}
