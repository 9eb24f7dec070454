#include <math.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"

struct limits {
    int64_t cpu, memory;
};

struct shape {
    struct str id;
    bool secure, has_timeout;
    int64_t timeout;
    double ratio;
    json_t *env;
    struct limits limits;
};

static const struct json_field limit_fields[] = {
    JSON_FIELD(struct limits, cpu, "cpu", JSON_OMIT_EMPTY),
    JSON_FIELD(struct limits, memory, "memory", JSON_OMIT_EMPTY),
    JSON_END,
};

static const struct json_field fields[] = {
    JSON_FIELD(struct shape, id, "id", JSON_REQUIRED),
    JSON_FIELD(struct shape, secure, "secure", 0),
    JSON_FIELD_SEEN(struct shape, timeout, "timeout", 0, has_timeout),
    JSON_FIELD(struct shape, ratio, "ratio", JSON_OMIT_EMPTY),
    JSON_FIELD(struct shape, env, "env", JSON_OMIT_EMPTY),
    JSON_FIELD_NESTED(struct shape, limits, "limits", JSON_OMIT_EMPTY, limit_fields),
    JSON_END,
};

static int read_text(const char *text, struct shape *out, json_t **tree, struct error *err)
{
    return json_parse_as(fields, str_of(text), out, tree, err);
}

TEST(json_pairs_are_the_strings_of_an_object)
{
    auto_arena struct arena arena = {0};
    auto_json json_t *object = NULL, *again = NULL;
    struct pair *pairs, *none;
    struct error err;

    CHECK_INT(json_parse(STR("{\"a\":\"b\",\"n\":1,\"\":\"\"}"), &object, &err), 0);
    CHECK_INT(json_pairs(object, &arena, &pairs), 2);
    again = json_of_pairs(pairs, 2);
    CHECK_INT(json_object_size(again), 2);
    CHECK(str_is(json_get_str(again, "a"), "b") && json_get_str(again, "").p);
    CHECK_INT(json_pairs(NULL, &arena, &none), 0);
    pairs = arena_pairs(&arena, pairs, 2);
    CHECK(str_is(pairs[0].name, "a") && str_is(pairs[0].value, "b") && !pairs[1].name.len);
}

TEST(json_reads_all_kinds)
{
    auto_json json_t *tree = NULL;
    struct shape shape = {.timeout = 15};
    struct error err = {0};

    CHECK_INT(read_text("{\"id\":\"a\\u00e9\",\"secure\":true,\"timeout\":\"-7\",\"ratio\":1.5,"
                        "\"env\":{\"a\":\"b\"},\"limits\":{\"cpu\":2.0},\"new\":[1]}",
                        &shape, &tree, &err),
              0);
    CHECK_STR(shape.id, "a\xc3\xa9");
    CHECK(shape.secure && shape.has_timeout);
    CHECK_INT(shape.timeout, -7);
    CHECK(fabs(shape.ratio - 1.5) < 1e-9);
    CHECK_STR(json_get_str(shape.env, "a"), "b");
    CHECK(!json_get_str(shape.env, "none").p);
    CHECK_INT(shape.limits.cpu, 2);
}

TEST(json_absent_keeps_defaults)
{
    auto_json json_t *tree = NULL;
    struct shape shape = {.timeout = 15, .secure = true};
    struct error err = {0};

    CHECK_INT(read_text("{\"id\":\"x\",\"secure\":null}", &shape, &tree, &err), 0);
    CHECK(shape.secure && !shape.has_timeout);
    CHECK_INT(shape.timeout, 15);
}

TEST(json_wrong_types_name_the_member)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{}", "'id' is missing"},
        {"{\"id\":1}", "'id' must be a string"},
        {"{\"id\":\"a\",\"timeout\":\"1x\"}", "'timeout' must be an integer"},
        {"{\"id\":\"a\",\"timeout\":1.5}", "'timeout' must be an integer"},
        {"{\"id\":\"a\",\"timeout\":1e300}", "'timeout' must be an integer"},
        {"{\"id\":\"a\",\"secure\":0}", "'secure' must be true or false"},
        {"{\"id\":\"a\",\"limits\":[]}", "'limits' must be an object"},
        {"{\"id\":\"a\",\"limits\":{\"cpu\":[]}}", "in 'limits': 'cpu' must be an integer"},
        {"[]", "a JSON object is expected"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        auto_json json_t *tree = NULL;
        struct shape shape = {0};
        struct error err = {0};

        CHECK_INT(read_text(cases[i].text, &shape, &tree, &err), -1);
        CHECK_INT(err.code, ERROR_INVALID);
        CHECK_STR(str_of(err.message), cases[i].message);
        CHECK(!tree);
    }
}

TEST(json_refuses_bad_texts)
{
    static const char *const bad[] = {
        "",           "{",
        "{\"a\":1}x", "{\"a\":1,\"a\":2}",
        "1",          "\"text\"",
        "{'a'}",      "{\"a\":\"\xff\"}",
        "[1,]",       "{\"a\":\"\\u0000\"}",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_json json_t *tree = NULL;
        struct error err = {0};

        CHECK_INT(json_parse(str_of(bad[i]), &tree, &err), -1);
        CHECK_INT(err.code, ERROR_INVALID);
    }
}

TEST(json_limits)
{
    struct error err = {0};
    json_t *tree = NULL;
    size_t len = 9 * 1024 * 1024;
    auto_free char *text = xmalloc(len);

    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    CHECK_INT(json_parse(str_n(text, 66), &tree, &err), -1);
    CHECK(strstr(err.message, "deeper"));
    CHECK_INT(json_parse(str_n(text + 1, 64), &tree, &err), 0);
    json_decref(tree);
    /* Brackets inside strings do not count. */
    memset(text, '[', 100);
    memcpy(text, "[\"\\\"", 4);
    memcpy(text + 98, "\"]", 2);
    CHECK_INT(json_parse(str_n(text, 100), &tree, &err), 0);
    json_decref(tree);
    memset(text, ' ', len);
    CHECK_INT(json_parse(str_n(text, len), &tree, &err), -1);
    CHECK_INT(err.code, ERROR_LIMIT);
}

static void check_written(const struct shape *shape, const char *want)
{
    auto_json json_t *json = json_write(fields, shape);
    auto_free char *text = json_text(json);

    CHECK_STR(str_of(text), want);
}

TEST(json_writes)
{
    auto_json json_t *env = json_object();

    check_written(&(struct shape){0}, "{\"id\":null,\"secure\":false,\"timeout\":0}");
    check_written(&(struct shape){.id = STR("q\"\n"), .secure = true, .timeout = 9, .env = env},
                  "{\"id\":\"q\\\"\\n\",\"secure\":true,\"timeout\":9,\"env\":{}}");
    check_written(&(struct shape){.id = STR(""), .limits.memory = 4},
                  "{\"id\":\"\",\"secure\":false,\"timeout\":0,\"limits\":{\"memory\":4}}");
}

TEST(json_replaces_bad_utf8)
{
    check_written(&(struct shape){.id = STR("a\xff\xc3\xa9\xc3")},
                  "{\"id\":\"a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\",\"secure\":false,\"timeout\":0}");
}

TEST(json_adds_strings)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 100);
    CHECK(json_add_str(&out, STR("a\"\\\n\xff\xc3\xa9")));
    CHECK_STR(buf_str(&out), "\"a\\\"\\\\\\n\xef\xbf\xbd\xc3\xa9\"");
    CHECK(!json_add_str(&out, STR("0123456789012345678901234567890123456789"
                                  "0123456789012345678901234567890123456789"
                                  "01234567890123456789")));
}

TEST(json_out_writes_commas_where_they_belong)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 1000);
    json_out_open(&out, NULL, '{');
    json_out_str(&out, "s", STR("a\"[{:"));
    json_out_int(&out, "low", INT64_MIN);
    json_out_uint_str(&out, "high", UINT64_MAX);
    json_out_open(&out, "list", '[');
    json_out_bool(&out, NULL, true);
    json_out_null(&out, NULL);
    json_out_open(&out, NULL, '{');
    json_out_close(&out, "}");
    json_out_open(&out, NULL, '[');
    json_out_close(&out, "]");
    json_out_uint(&out, NULL, 0);
    json_out_close(&out, "]");
    json_out_name(&out, STR("x\ny"));
    json_out_raw(&out, NULL, STR("[1,2]"));
    json_out_members(&out, STR("{}"));
    json_out_members(&out, STR("{\"m\":1}"));
    json_out_base64(&out, "b", STR("hi"));
    json_out_close(&out, "}");
    CHECK_STR(buf_str(&out), "{\"s\":\"a\\\"[{:\",\"low\":-9223372036854775808,"
                             "\"high\":\"18446744073709551615\",\"list\":[true,null,{},[],0],"
                             "\"x\\ny\":[1,2],\"m\":1,\"b\":\"aGk=\"}");
}

TEST(json_out_begins_texts_in_lines_and_behind_blanks)
{
    auto_buf struct buf out = {0};

    buf_init(&out, 24);
    json_out_int(&out, NULL, 1);
    (void)buf_add_str(&out, STR("\ndata: "));
    json_out_str(&out, NULL, STR(""));
    CHECK_STR(buf_str(&out), "1\ndata: \"\"");
    json_out_str(&out, "longer", STR("than the rest"));
    CHECK(out.overflowed);
}

/* 17 digits, as jansson writes them, would be 0.28000000000000003. */
TEST(json_writes_fractions_with_the_digits_they_need)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0.28, "0.28"},
        {0.1, "0.1"},
        {-2.3, "-2.3"},
        {1e-9, "1e-9"},
        {12, "12.0"},
        /* 15 digits would be another number. */
        {0.1 + 0.2, "0.30000000000000004"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        auto_json json_t *value = json_real(cases[i].value);
        auto_json json_t *object = json_pack("{s:O}", "usd", value);
        auto_free char *text = json_text(value), *whole = json_text_as(object, JSON_INDENT(1));
        auto_free char *want = xasprintf("{\n \"usd\": %s\n}", cases[i].text);

        CHECK_STR(str_of(text), cases[i].text);
        CHECK_STR(str_of(whole), want);
    }
}
