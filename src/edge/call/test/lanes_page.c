#include "edge/call/test/lanes_page.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"

struct row {
    char method[16], path[256], lane[32], wait[256];
};

/* The next row of an endpoint: | `METHOD /path` | lane | wait | */
static bool next_row(FILE *page, struct row *out)
{
    char line[1024];

    while (fgets(line, sizeof(line), page))
        if (sscanf(line, "| `%15[A-Z] %255[^`]` | %31[a-z] | %255[^|]|", out->method, out->path,
                   out->lane, out->wait) == 4)
            return true;
    return false;
}

static FILE *open_page(void)
{
    FILE *page = fopen(LANES_PAGE, "re");

    if (!page)
        test_fail(__FILE__, __LINE__, "cannot open %s", LANES_PAGE);
    return page;
}

void lanes_page_check(const char *method, const char *prefix, const char *pattern, const char *lane)
{
    FILE *page = open_page();
    struct row row;
    size_t found = 0;
    char path[256];

    (void)snprintf(path, sizeof(path), "%s%s", prefix, pattern);
    while (next_row(page, &row)) {
        if (strcmp(row.method, method) != 0 || strcmp(row.path, path) != 0)
            continue;
        found++;
        if (strcmp(row.lane, lane) != 0)
            test_fail(__FILE__, __LINE__, "%s %s: the lane is '%s', the page has '%s'", method,
                      path, lane, row.lane);
    }
    (void)fclose(page);
    if (found != 1)
        test_fail(__FILE__, __LINE__, "%s %s is %zu times in docs/internals/lanes.md", method, path,
                  found);
}

size_t lanes_page_count(bool v1)
{
    FILE *page = open_page();
    struct row row;
    size_t count = 0;

    while (next_row(page, &row))
        count += (strncmp(row.path, "/api/v1/", 8) == 0) == v1;
    (void)fclose(page);
    return count;
}
