/* Any bytes: parsed or refused; what was parsed survives writing and parsing again. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_out.h"
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

/* The writer makes the same tree out of its members. */
static void check_writer(const struct sample *sample)
{
    auto_json json_t *tree = NULL;
    auto_free char *raw =
        sample->raw ? json_dumps(sample->raw, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    auto_buf struct buf out = {0};
    struct error err = {0};

    buf_init(&out, SIZE_MAX);
    json_out_open(&out, NULL, '{');
    json_out_str(&out, "name", sample->name);
    json_out_int(&out, "number", sample->number);
    json_out_bool(&out, "flag", sample->flag);
    if (raw)
        json_out_raw(&out, "raw", str_of(raw));
    json_out_close(&out, "}");
    if (json_parse(buf_str(&out), &tree, &err) != 0 ||
        !str_eq(json_get_str(tree, "name"), sample->name) ||
        json_integer_value(json_object_get(tree, "number")) != sample->number ||
        json_is_true(json_object_get(tree, "flag")) != sample->flag ||
        (raw && !json_equal(json_object_get(tree, "raw"), sample->raw)))
        abort();
}

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
    check_writer(&sample);
    return 0;
}
