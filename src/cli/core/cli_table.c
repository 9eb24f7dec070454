#include "cli/core/cli_table.h"

#include <stdarg.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "cli/core/cli_screen.h"

struct cli_table {
    const char *const *columns;
    size_t column_count;
    char **cells;
    size_t cell_count;
};

struct cli_table *cli_table_new(const char *const *columns)
{
    struct cli_table *table = xcalloc(1, sizeof(*table));

    table->columns = columns;
    while (columns[table->column_count])
        table->column_count++;
    return table;
}

void cli_table_free(struct cli_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    free(table);
}

/* How many bytes at p a terminal would obey, or take for another direction of writing. */
static size_t obeyed(const unsigned char *p, bool lines)
{
    if (*p < 0x20)
        return lines && (*p == '\n' || *p == '\t') ? 0 : 1;
    if (*p == 0x7f)
        return 1;
    if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) /* the same as ESC and a letter */
        return 2;
    if (p[0] == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) ||
                         (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)))
        return 3;
    return 0;
}

char *cli_defuse(char *text, bool lines)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        size_t n = obeyed(p, lines);

        if (n) {
            memset(p, '?', n);
            p += n - 1;
        }
    }
    return text;
}

void cli_table_add(struct cli_table *table, struct str cell)
{
    char *copy = cli_defuse(xstrndup(cell.p ? cell.p : "", cell.len), false);

    table->cells = xrealloc(table->cells, (table->cell_count + 1) * sizeof(*table->cells));
    table->cells[table->cell_count++] = copy;
}

void cli_table_addf(struct cli_table *table, const char *fmt, ...)
{
    auto_free char *text = NULL;
    va_list args;
    int len;

    va_start(args, fmt);
    len = vasprintf(&text, fmt, args);
    va_end(args);
    cli_table_add(table, len < 0 ? STR("") : str_n(text, (size_t)len));
    if (len < 0)
        text = NULL;
}

/* Characters, not bytes; wide and combining ones are not told apart. */
static size_t width_of(const char *text)
{
    size_t width = 0;

    for (; *text; text++)
        if (((unsigned char)*text & 0xc0) != 0x80)
            width++;
    return width;
}

/* For cells of the column STATE; NULL: the terminal's own colour. */
static const char *colour_of(const char *state)
{
    static const struct {
        const char *state, *colour;
    } colours[] = {
        {"running", "\033[32m"},  {"ready", "\033[32m"},    {"ok", "\033[32m"},
        {"paused", "\033[33m"},   {"creating", "\033[33m"}, {"waiting", "\033[33m"},
        {"building", "\033[33m"}, {"degraded", "\033[33m"}, {"warn", "\033[33m"},
        {"error", "\033[31m"},    {"failed", "\033[31m"},   {"FAIL", "\033[31m"},
        {"offline", "\033[31m"},  {"open", "\033[31m"},     {"killed", "\033[2m"},
        {"completed", "\033[2m"}, {"expired", "\033[2m"},   {"cancelled", "\033[2m"},
        {"canceled", "\033[2m"},
    };

    for (size_t i = 0; i < sizeof(colours) / sizeof(*colours); i++)
        if (strcmp(colours[i].state, state) == 0)
            return colours[i].colour;
    return NULL;
}

static void print_cell(const char *text, const char *colour, size_t width, bool last, FILE *to)
{
    (void)fprintf(to, "%s%s%s", colour ? colour : "", text, colour ? "\033[0m" : "");
    if (last) {
        (void)fputc('\n', to);
        return;
    }
    for (size_t n = width_of(text); n < width + 2; n++)
        (void)fputc(' ', to);
}

void cli_table_print(const struct cli_table *table, FILE *to)
{
    size_t n = table->column_count;
    auto_free size_t *widths = xcalloc(n ? n : 1, sizeof(*widths));
    int fd = fileno(to);
    bool colours = fd >= 0 && cli_screen_colours(fd);

    if (n == 0)
        return;
    for (size_t i = 0; i < n; i++)
        widths[i] = width_of(table->columns[i]);
    for (size_t i = 0; i < table->cell_count; i++)
        if (width_of(table->cells[i]) > widths[i % n])
            widths[i % n] = width_of(table->cells[i]);
    for (size_t i = 0; i < n; i++)
        print_cell(table->columns[i], colours ? "\033[1m" : NULL, widths[i], i + 1 == n, to);
    for (size_t i = 0; i < table->cell_count; i++) {
        bool is_state = colours && strcmp(table->columns[i % n], "STATE") == 0;

        print_cell(table->cells[i], is_state ? colour_of(table->cells[i]) : NULL, widths[i % n],
                   (i + 1) % n == 0, to);
    }
}

void cli_age(int64_t span_us, char out[CLI_AGE_SIZE])
{
    int64_t seconds = span_us > 0 ? span_us / 1000000 : 0;

    if (seconds < 60)
        (void)snprintf(out, CLI_AGE_SIZE, "%ds", (int)seconds);
    else if (seconds < 3600)
        (void)snprintf(out, CLI_AGE_SIZE, "%dm", (int)(seconds / 60));
    else if (seconds < 48 * 3600)
        (void)snprintf(out, CLI_AGE_SIZE, "%dh", (int)(seconds / 3600));
    else
        (void)snprintf(out, CLI_AGE_SIZE, "%lldd", (long long)(seconds / 86400));
}
