/* Any bytes: parsed or refused; what was parsed survives writing and parsing again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sample {
    struct str name;
    int64_t number;
    double real;
    bool flag;
    json_t *raw;
};

static const struct json_field sample_fields[] = {
    JSON_FIELD(struct sample, name, "name", JSON_REQUIRED),
    JSON_FIELD(struct sample, number, "number", 0),
    JSON_FIELD(struct sample, real, "real", JSON_OMIT_EMPTY),
    JSON_FIELD(struct sample, flag, "flag", 0),
    JSON_FIELD(struct sample, raw, "raw", 0),
    JSON_END,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json json_t *tree = NULL, *again = NULL, *written = NULL;
    auto_free char *text = NULL;
    struct sample sample = {0};
    struct error err = {0};

    if (json_parse_as(sample_fields, str_n(data, size), &sample, &tree, &err) != 0)
        return 0;
    written = json_write(sample_fields, &sample);
    text = json_text(written);
    if (json_parse(str_of(text), &again, &err) != 0 || !json_equal(written, again))
        abort();
    return 0;
}
