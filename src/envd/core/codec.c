#include "envd/core/codec.h"

extern const struct connect_method codec_methods[]; /* made by tools/proto_tables.py */

const struct connect_method *codec_find(struct str path)
{
    for (const struct connect_method *method = codec_methods; method->path; method++)
        if (str_is(path, method->path))
            return method;
    return NULL;
}
