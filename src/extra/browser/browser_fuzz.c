/* Any bytes: a body of a session, or a query, or refused as either. What was taken keeps the bounds. */
#include <stdint.h>
#include <stdlib.h>

#include "extra/browser/browser.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json json_t *body = NULL;
    auto_arena struct arena arena = {0};
    struct browser_filter filter = {0};
    struct browser_new wish = {0};
    struct error err = {0};

    if (browser_filter_read(str_n(data, size), &arena, &filter, &err) == 0 &&
        filter.name.len + filter.value.len > size)
        abort();
    if (json_parse(str_n(data, size), &body, &err) < 0 ||
        browser_new_read(body, &arena, &wish, &err) < 0)
        return 0;
    if (wish.metadata.len > BROWSER_METADATA_MAX || wish.width > BROWSER_SIDE_MAX ||
        wish.height > BROWSER_SIDE_MAX || (wish.timeout_s && wish.timeout_s < 60))
        abort();
    return 0;
}
