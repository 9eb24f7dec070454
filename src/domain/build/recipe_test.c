#include "domain/build/recipe.h"

#include "base/test.h"
#include "protocol/json/json_shape.h"

struct read_recipe {
    struct arena arena;
    json_t *tree;
    struct recipe recipe;
};

static void done(struct read_recipe *read)
{
    json_decref(read->tree);
    arena_done(&read->arena);
}
#define auto_recipe __attribute__((cleanup(done)))

static int parse(const char *text, struct read_recipe *out, struct error *err)
{
    return recipe_parse(str_of(text), &out->arena, &out->tree, &out->recipe, err);
}

TEST(a_recipe_is_read)
{
    auto_recipe struct read_recipe read = {0};
    const struct recipe_step *steps;

    OK(parse("{\"fromTemplate\":\"base:v1\",\"startCmd\":\"run\",\"force\":false,\"steps\":["
             "{\"type\":\"RUN\",\"args\":[\"echo a\",\"root\"],\"force\":true},"
             "{\"type\":\"copy\",\"args\":[\"a\",\"/b\",\"\",\"0644\"],\"filesHash\":\"x\","
             "\"resolveSymlinks\":false,\"gzip\":true},"
             "{\"type\":\"ENV\",\"args\":[\"A\",\"1\"]}]}",
             &read, &err));
    CHECK_INT(read.recipe.stage_count, 1);
    CHECK_INT(read.recipe.stages[0].from, RECIPE_FROM_TEMPLATE);
    CHECK_STR(read.recipe.stages[0].from_name, "base:v1");
    CHECK_STR(read.recipe.start_cmd, "run");
    CHECK(!read.recipe.ready_cmd.p && !read.recipe.docker);
    steps = read.recipe.stages[0].steps;
    CHECK_INT(read.recipe.stages[0].step_count, 3);
    CHECK(steps[0].force && steps[0].number == 1);
    CHECK_STR(steps[0].text, "RUN echo a root");
    CHECK_INT(steps[1].kind, RECIPE_COPY);
    CHECK_STR(steps[1].args.items[3], "0644");
    CHECK_STR(steps[2].text, "ENV A 1");
}

TEST(stages_are_found_by_name_and_number)
{
    auto_recipe struct read_recipe read = {0};

    OK(parse("{\"defaults\":{\"user\":\"root\",\"shell\":[\"/bin/sh\",\"-c\"]},\"target\":\"b\","
             "\"stages\":[{\"name\":\"a\",\"fromImage\":\"x\",\"steps\":[{\"type\":\"RUN\","
             "\"exec\":[\"true\"]}]},{\"name\":\"B\",\"fromStage\":\"a\",\"steps\":[{\"type\":"
             "\"COPY\",\"args\":[\"/a\",\"/b\"],\"fromStage\":\"0\"}]},{\"name\":\"c\"}]}",
             &read, &err));
    CHECK_INT(read.recipe.target, 1);
    CHECK(read.recipe.docker);
    CHECK_INT(read.recipe.shell.count, 2);
    CHECK_INT(read.recipe.step_count, 2);
    CHECK_INT(read.recipe.stages[1].steps[0].number, 2);
    CHECK_INT(recipe_find_stage(&read.recipe, STR("A"), 3), 0);
    CHECK_INT(recipe_find_stage(&read.recipe, STR("2"), 2), -1);
}

TEST(what_is_wrong_names_its_step)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"[]", "the recipe must be an object"},
        {"{\"x\":1}", "unknown member 'x'"},
        {"{\"steps\":{}}", "'steps' must be an array"},
        {"{\"steps\":[1]}", "step 1: it must be an object"},
        {"{\"steps\":[{\"args\":[]}]}", "step 1: 'type' is missing"},
        {"{\"steps\":[{\"type\":\"RUN\",\"args\":[1]}]}",
         "step 1: 'args' must be strings of at most 262144 bytes"},
        {"{\"steps\":[{\"type\":\"RUN\",\"args\":[\"a\"],\"exec\":[\"b\"]}]}",
         "step 1: RUN needs a command, in 'args' or in 'exec'"},
        {"{\"steps\":[{\"type\":\"ENV\",\"args\":[\"A=B\",\"1\"]}]}",
         "step 1: ENV: 'A=B' is not a valid name of an environment variable: it must have 1 to "
         "1024 "
         "bytes, without '=' and control characters"},
        {"{\"steps\":[{\"type\":\"WORKDIR\",\"args\":[\"\"]}]}", "step 1: the argument is empty"},
        {"{\"steps\":[{\"type\":\"RUN\",\"args\":[\"a\"],\"mounts\":[{\"type\":\"tmpfs\"}]}]}",
         "step 1: a mount is of type cache, secret or bind, not 'tmpfs'"},
        {"{\"fromImage\":\"a\",\"fromImageRegistry\":{\"type\":\"azure\"}}",
         "fromImageRegistry: type 'azure' is none of registry, gcp and aws"},
        {"{\"stages\":[{\"fromStage\":\"x\"}]}", "stage 1: there is no stage 'x' before it"},
        {"{\"stages\":[{}],\"steps\":[]}", "'stages' and steps of their own exclude each other"},
        {"{\"stages\":[{}],\"target\":\"x\"}", "target: there is no stage 'x'"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_recipe struct read_recipe read = {0};
        struct error refusal = {0};

        CHECK_INT(parse(bad[i].text, &read, &refusal), -1);
        CHECK_INT(refusal.code, ERROR_INVALID);
        CHECK_STR(str_of(refusal.message), bad[i].message);
    }
}

TEST(secrets_are_not_kept)
{
    auto_recipe struct read_recipe read = {0};
    char *text;

    OK(parse("{\"fromImage\":\"x\",\"fromImageRegistry\":{\"type\":\"registry\",\"username\":\"u\","
             "\"password\":\"hidden\"},\"buildSecrets\":{\"a\":\"hidden\"}}",
             &read, &err));
    CHECK_STR(read.recipe.stages[0].password, "hidden");
    CHECK_INT(read.recipe.secrets.count, 1);
    text = recipe_public_text(read.tree);
    CHECK(str_find_str(str_of(text), STR("hidden")) < 0);
    CHECK(str_find_str(str_of(text), STR("fromImage")) >= 0);
    free(text);
}

TEST(registries_of_clouds)
{
    auto_recipe struct read_recipe gcp = {0}, aws = {0}, other = {0};
    struct error refusal = {0};
    char *text;

    OK(parse("{\"fromImage\":\"gcr.io/x\",\"fromImageRegistry\":{\"type\":\"gcp\","
             "\"serviceAccountJson\":\"{hidden}\"}}",
             &gcp, &err));
    CHECK_STR(gcp.recipe.stages[0].username, "_json_key");
    CHECK_STR(gcp.recipe.stages[0].password, "{hidden}");
    text = recipe_public_text(gcp.tree);
    CHECK(str_find_str(str_of(text), STR("hidden")) < 0);
    free(text);
    OK(parse("{\"fromImage\":\"x\",\"fromImageRegistry\":{\"type\":\"aws\",\"awsAccessKeyId\":"
             "\"a\",\"awsSecretAccessKey\":\"hidden\",\"awsRegion\":\"r\"}}",
             &aws, &err));
    CHECK(aws.recipe.stages[0].amazon);
    text = recipe_public_text(aws.tree);
    CHECK(str_find_str(str_of(text), STR("hidden")) < 0);
    free(text);
    CHECK_INT(
        parse("{\"fromImage\":\"x\",\"fromImageRegistry\":{\"type\":\"azure\"}}", &other, &refusal),
        -1);
    CHECK(strstr(refusal.message, "azure") != NULL);
}

TEST(the_base_image_of_the_sdks_is_our_base)
{
    static const struct {
        const char *image;
        bool is_base;
    } rows[] = {{"e2bdev/base", true},
                {"e2bdev/base:latest", true},
                {"docker.io/e2bdev/base", true},
                {"e2bdev/base:v1", false},
                {"e2bdev/code-interpreter", false},
                {"ghcr.io/e2bdev/base", false}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        auto_recipe struct read_recipe read = {0};
        char text[128];

        (void)snprintf(text, sizeof(text), "{\"fromImage\":\"%s\"}", rows[i].image);
        OK(parse(text, &read, &err));
        CHECK_INT(read.recipe.stages[0].from,
                  rows[i].is_base ? RECIPE_FROM_BASE : RECIPE_FROM_IMAGE);
    }
}

TEST(a_release_is_named_by_letters)
{
    static const char *const good[] = {"debian:bookworm", "debian:sid"};
    static const char *const bad[] = {
        "debian",           "debian:",
        "ubuntu:jammy",     "debian:12",
        "debian:a b",       "debian:../x",
        "debian:bookworm:", "debian:x;reboot;",
        ":bookworm",        "debian:abcdefghijklmnopqrstuvwxyzabcdefg"};
    char text[128];

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        auto_recipe struct read_recipe read = {0};

        (void)snprintf(text, sizeof(text), "{\"fromBootstrap\":\"%s\"}", good[i]);
        OK(parse(text, &read, &err));
        CHECK_INT(read.recipe.stages[0].from, RECIPE_FROM_BOOTSTRAP);
        CHECK_STR(read.recipe.stages[0].from_name, good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        auto_recipe struct read_recipe read = {0};

        (void)snprintf(text, sizeof(text), "{\"fromBootstrap\":\"%s\"}", bad[i]);
        FAILS(parse(text, &read, &err), ERROR_INVALID, "debian:RELEASE");
    }
}

static struct str value_of(void *arg, struct str name)
{
    (void)arg;
    return str_is(name, "A") ? STR("one") : str_is(name, "EMPTY") ? STR("") : STR_NONE;
}

TEST(variables_are_replaced_and_nothing_else)
{
    static const char *const pairs[][2] = {
        {"plain", "plain"},
        {"$A/${A}x$Ax", "one/onex"},
        {"$NONE|${NONE}|", "||"},
        {"${NONE:-word}${A:-word}${EMPTY:-$A}", "wordoneone"},
        {"${A:+set}${NONE:+set}", "set"},
        {"$(id) `id` \\$A $ $1 ${ ${A", "$(id) `id` \\one $ $1 ${ ${A"},
        {"'$A' \"$A\"", "'one' \"one\""},
        {"${A?no}", "${A?no}"},
    };
    auto_arena struct arena arena = {0};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        CHECK_STR(recipe_expand(str_of(pairs[i][0]), value_of, NULL, &arena), pairs[i][1]);
}
