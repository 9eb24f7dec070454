/* Extensions, as the service's clients see them. */
#include "extra/browser/bb_internal.h"
#include "protocol/json/json_shape.h"

static json_t *write_extension(const struct store_browser_extension *extension)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "id", json_str(extension->id), "fileName",
                     json_str(extension->file_name), "projectId", json_str(extension->team_id),
                     "createdAt", bb_time(extension->created_at_us), "updatedAt",
                     bb_time(extension->updated_at_us));
}

int bb_extensions_create(struct bb_call *call, struct error *err)
{
    struct store_browser_extension extension = {0};
    auto_buf struct buf data = {0};
    struct str name;

    buf_init(&data, BB_FILE_MAX);
    if (bb_read_file(call, &name, &data, err) < 0 ||
        browser_extension_create(call->bb->config.browsers, call->team_id, name, buf_str(&data),
                                 &call->arena, &extension, err) < 0)
        return -1;
    call_answer(&call->call, 201, write_extension(&extension));
    return 0;
}

int bb_extensions_get(struct bb_call *call, struct error *err)
{
    struct store_browser_extension extension = {0};

    if (browser_extension_get(call->bb->config.browsers, call->team_id, call->params[0],
                              &call->arena, &extension, err) < 0)
        return -1;
    call_answer(&call->call, 200, write_extension(&extension));
    return 0;
}

int bb_extensions_delete(struct bb_call *call, struct error *err)
{
    if (browser_extension_delete(call->bb->config.browsers, call->team_id, call->params[0], err) <
        0)
        return -1;
    call_answer(&call->call, 204, NULL);
    return 0;
}
