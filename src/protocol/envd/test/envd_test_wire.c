#include "protocol/envd/test/envd_test_wire.h"

#include "base/test.h"
#include "protocol/rpc/connect.h"
#include "protocol/rpc/proto.h"

extern const struct connect_method codec_methods[]; /* made by tools/proto_tables.py */

static const struct connect_method *find(struct str path)
{
    for (const struct connect_method *method = codec_methods; method->path; method++)
        if (str_is(path, method->path))
            return method;
    return NULL;
}

void envd_test_answer(struct buf *out, const char *method, const char *json, bool framed)
{
    const struct proto_message *format = find(str_of(method))->response;
    struct error err = {0};

    CHECK_INT(framed ? connect_add_message(out, format, str_of(json), &err)
                     : proto_encode(format, str_of(json), out, &err),
              0);
}

json_t *envd_test_request(struct str path, struct str message)
{
    const struct connect_method *method = find(path);
    struct error err = {0};
    json_t *json = NULL;

    return method && proto_decode(method->request, message, &json, &err) == 0 ? json : NULL;
}
