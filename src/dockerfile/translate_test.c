/* Dockerfiles as recipes: what each instruction becomes, and what is refused with which line. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/test.h"
#include "dockerfile/translate.h"
#include "protocol/json/json_shape.h"

struct made {
    struct arena arena;
    struct dockerfile_recipe recipe;
};

#define auto_made __attribute__((cleanup(made_done)))

static void made_done(struct made *made)
{
    json_decref(made->recipe.json);
    arena_done(&made->arena);
}

static int make_with(struct made *made, const char *text, size_t arg_count, struct error *err)
{
    static const struct pair args[] = {{STR_INIT("VERSION"), STR_INIT("9")},
                                       {STR_INIT("UNUSED"), STR_INIT("x")},
                                       {STR_INIT("http_proxy"), STR_INIT("http://p:1")}};
    struct dockerfile_source source = {.text = str_of(text),
                                       .file = "Dockerfile",
                                       .args = args,
                                       .arg_count = arg_count,
                                       .platform = STR("linux/amd64")};

    made_done(made);
    *made = (struct made){0};
    return dockerfile_translate(&source, &made->arena, &made->recipe, err);
}

static int make(struct made *made, const char *text, struct error *err)
{
    return make_with(made, text, 2, err);
}

/* The steps of the one stage, each as JSON without line and text. */
static char *steps_of(const json_t *stage)
{
    auto_json json_t *steps = json_deep_copy(json_object_get(stage, "steps"));

    for (size_t i = 0; i < json_array_size(steps); i++) {
        json_t *step = json_array_get(steps, i);

        (void)json_object_del(step, "line");
        (void)json_object_del(step, "literal");
        (void)json_object_del(step, "text");
    }
    return json_dumps(steps, JSON_COMPACT | JSON_SORT_KEYS);
}

/* Steps behind "FROM x". */
static void check_steps(int line, const char *body, const char *want)
{
    auto_made struct made made = {0};
    auto_free char *text = xasprintf("FROM x\n%s\n", body), *got = NULL;
    struct error err = {0};

    if (make(&made, text, &err) < 0)
        test_fail(__FILE__, line, "%s: %s", body, err.message);
    got = steps_of(made.recipe.json);
    if (strcmp(got, want) != 0)
        test_fail(__FILE__, line, "%s is\n%s, not\n%s", body, got, want);
}
#define STEPS(body, want) check_steps(__LINE__, body, want)

static void check_fault(int line, const char *body, const char *want)
{
    auto_made struct made made = {0};
    auto_free char *text = xasprintf("FROM x\n%s\n", body);
    struct error err = {0};

    if (make(&made, text, &err) == 0)
        test_fail(__FILE__, line, "%s is taken", body);
    if (!strstr(err.message, want) || !strstr(err.message, "Dockerfile:"))
        test_fail(__FILE__, line, "%s: '%s', not '%s'", body, err.message, want);
}
#define FAULT(body, want) check_fault(__LINE__, body, want)

TEST(run)
{
    STEPS("RUN a && b",
          "[{\"args\":[\"a && b\"],\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"}]");
    STEPS("RUN [\"a\", \"b c\"]", "[{\"exec\":[\"a\",\"b c\"],\"type\":\"RUN\"}]");
    STEPS("SHELL [\"bash\",\"-ec\"]\nrun  x",
          "[{\"args\":[\"x\"],\"shell\":[\"bash\",\"-ec\"],\"type\":\"RUN\"}]");
    /* No list of strings: a text. */
    STEPS("RUN [ -e /x ] || y",
          "[{\"args\":[\"[ -e /x ] || y\"],\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"}]");
    FAULT("RUN", "needs a command");
    FAULT("RUN []", "needs a command");
    FAULT("RUN --security=insecure x", "not --security");
    FAULT("RUN --network=host x", "--network=host is not supported");
}

TEST(lines_that_go_on)
{
    STEPS("RUN a \\\n  # no\n\n  b \\  \n c",
          "[{\"args\":[\"a   b  c\"],\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"}]");
    STEPS("RUN a \\\\\nUSER b", "[{\"args\":[\"a \\\\\\\\\"],\"shell\":[\"/bin/sh\",\"-c\"],"
                                "\"type\":\"RUN\"},{\"args\":[\"b\"],\"type\":\"USER\"}]");
    STEPS("USER a\r\nUSER b\\\r\nc\r", "[{\"args\":[\"a\"],\"type\":\"USER\"},{\"args\":[\"bc\"],"
                                       "\"type\":\"USER\"}]");
}

TEST(directives)
{
    auto_made struct made made = {0};
    auto_free char *got = NULL;

    OK(make(&made,
            "# syntax=docker/dockerfile:1\n# Escape = `\n# x=y\nFROM x\nENV A=c:\\d `\n  B=`$A\n",
            &err));
    got = steps_of(made.recipe.json);
    CHECK_STR(str_of(got), "[{\"args\":[\"A\",\"c:\\\\d\",\"B\",\"$A\"],\"type\":\"ENV\"}]");
    FAILS(make(&made, "# escape=x\nFROM x\n", &err), ERROR_INVALID, "Dockerfile:1: the directive");
    FAILS(make(&made, "", &err), ERROR_INVALID, "has no FROM");
    FAILS(make(&made, "FROM x\xff\n", &err), ERROR_INVALID, "not a text");
}

TEST(heredocs)
{
    STEPS("RUN <<EOF\na $x\nb\nEOF\nUSER u",
          "[{\"args\":[\"a $x\\nb\\n\"],\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"},"
          "{\"args\":[\"u\"],\"type\":\"USER\"}]");
    STEPS("RUN cat <<A <<-'B' >y\n1\nA\n\t2\n\tB",
          "[{\"args\":[\"cat <<A <<-'B' "
          ">y\\n1\\nA\\n\\t2\\n\\tB\\n\"],\"shell\":[\"/bin/sh\",\"-c\"],"
          "\"type\":\"RUN\"}]");
    FAULT("RUN <<EOF\nx\n EOF", "'EOF' does not end");
}

TEST(heredoc_with_an_interpreter)
{
    auto_made struct made made = {0};
    const json_t *exec;

    OK(make(&made, "FROM x\nRUN <<EOF\n#!/usr/bin/python3\nprint(1)\nEOF\n", &err));
    exec = json_object_get(json_array_get(json_object_get(made.recipe.json, "steps"), 0), "exec");
    CHECK_INT(json_array_size(exec), 5);
    CHECK_STR(str_of(json_string_value(json_array_get(exec, 4))), "#!/usr/bin/python3\nprint(1)\n");
}

TEST(copied_heredocs)
{
    auto_made struct made made = {0};
    const struct dockerfile_files *files;

    OK(make(&made, "FROM x\nARG V=1\nCOPY <<one <<\"two\" /d/\nv=$V \"q\" \\$V\none\n$V\ntwo\n",
            &err));
    CHECK_INT(made.recipe.file_count, 1);
    files = made.recipe.files;
    CHECK_INT(files->own_count, 2);
    CHECK_STR(files->own[0].name, "one");
    CHECK_STR(files->own[0].content, "v=1 \"q\" $V\n");
    CHECK_STR(files->own[1].content, "$V\n");
    CHECK(files->to_dir && !files->sources.count);
}

TEST(variables)
{
    STEPS("ENV A=1 B=$A", "[{\"args\":[\"B\",\"${A}\",\"A\",\"1\"],\"type\":\"ENV\"}]");
    STEPS("ENV A='$' B=$A", "[{\"args\":[\"B\",\"${A}\"],\"type\":\"ENV\"},{\"args\":[\"A\",\"$\"],"
                            "\"type\":\"ENV\"}]");
    STEPS("ENV A=\\$x:$PATH",
          "[{\"args\":[\"A\",\"${QUICKSAND_DOLLAR:-$}x:${PATH}\"],\"type\":\"ENV\"}]");
    STEPS("ENV A=1\nENV B=$A C=${A}x D=\"a b\" E='$A' F=a\\ b",
          "[{\"args\":[\"A\",\"1\"],\"type\":\"ENV\"},{\"args\":[\"B\",\"1\",\"C\",\"1x\",\"D\","
          "\"a b\",\"E\",\"$A\",\"F\",\"a b\"],\"type\":\"ENV\"}]");
    STEPS("ENV A the rest  of it", "[{\"args\":[\"A\",\"the rest  of it\"],\"type\":\"ENV\"}]");
    STEPS("ENV PATH=/x:$PATH\nENV P=$PATH",
          "[{\"args\":[\"PATH\",\"/x:${PATH}\"],\"type\":\"ENV\"},"
          "{\"args\":[\"P\",\"${PATH}\"],\"type\":\"ENV\"}]");
    STEPS("ARG X\nENV A=${X:-d} B=${X:+y}z C=${X-e} D=${NO:-${NO2:-q}}",
          "[{\"args\":[\"D\",\"${NO:-${NO2:-q}}\",\"A\",\"d\",\"B\",\"z\",\"C\",\"e\"],\"type\":"
          "\"ENV\"}]");
    STEPS("ARG X=v\nENV A=${X:-d} B=${X:+y} C=a$",
          "[{\"args\":[\"A\",\"v\",\"B\",\"y\",\"C\",\"a$\"],\"type\":\"ENV\"}]");
    FAULT("ENV A=${X", "only ${name}");
    FAULT("ENV A=${X/a/b}", "only ${name}");
    FAULT("ENV A=${NO:?x}", "not known here");
    FAULT("ENV A='x", "not closed");
    FAULT("ENV A", "has no value");
    FAULT("ENV A=1 B", "not name=value");
    FAULT("ARG X\nENV A=${X:?must}", "must");
}

TEST(arguments)
{
    auto_made struct made made = {0};
    auto_free char *got = NULL;

    STEPS("ARG VERSION=1\nARG Q\nENV Q=e\nRUN x",
          "[{\"args\":[\"Q\",\"e\"],\"type\":\"ENV\"},{\"args\":[\"x\"],\"env\":{\"VERSION\":\"9\"}"
          ",\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"}]");
    OK(make(&made,
            "ARG VERSION=1\nARG B=b$VERSION\nFROM x:$VERSION\nARG B\nARG TARGETARCH\nENV "
            "A=$B-$TARGETARCH-$VERSION\n",
            &err));
    CHECK_STR(json_get_str(made.recipe.json, "fromImage"), "x:9");
    got = steps_of(made.recipe.json);
    CHECK_STR(str_of(got), "[{\"args\":[\"A\",\"b9-amd64-${VERSION}\"],\"type\":\"ENV\"}]");
    CHECK_INT(made.recipe.unused.count, 1);
    CHECK_STR(made.recipe.unused.items[0], "UNUSED");
    FAILS(make(&made, "FROM $NO\n", &err), ERROR_INVALID, "Dockerfile:1: '$NO' is empty");
    FAULT("COPY $NO /x", "not known here");
}

TEST(a_proxy_needs_no_arg)
{
    auto_made struct made made = {0};
    auto_free char *got = NULL;

    OK(make_with(&made, "FROM x\nRUN a\n", 3, &err));
    got = steps_of(made.recipe.json);
    CHECK_STR(str_of(got), "[{\"args\":[\"a\"],\"env\":{\"http_proxy\":\"http://p:1\"},"
                           "\"shell\":[\"/bin/sh\",\"-c\"],\"type\":\"RUN\"}]");
    CHECK_INT(made.recipe.unused.count, 2);
}

TEST(directories_and_users)
{
    STEPS("WORKDIR a", "[{\"args\":[\"a\"],\"type\":\"WORKDIR\"}]");
    STEPS("WORKDIR /a/\nWORKDIR b/../c\nUSER u:g",
          "[{\"args\":[\"/a\"],\"type\":\"WORKDIR\"},{\"args\":[\"/a/c\"],\"type\":\"WORKDIR\"},"
          "{\"args\":[\"u:g\"],\"type\":\"USER\"}]");
    STEPS("WORKDIR $HOME/x\nCOPY --from=y a b",
          "[{\"args\":[\"${HOME}/x\"],\"type\":\"WORKDIR\"},{\"args\":[\"/a\",\"b\",\"keep\",\"\"],"
          "\"fromImage\":\"y\",\"type\":\"COPY\"}]");
    FAULT("USER", "needs one user");
    FAULT("WORKDIR", "needs a directory");
}

TEST(copies)
{
    auto_made struct made made = {0};
    const struct dockerfile_files *files;

    STEPS("WORKDIR /w\nCOPY --chown=1:2 --chmod=755 --link a ./b* .",
          "[{\"args\":[\"/w\"],\"type\":\"WORKDIR\"},{\"args\":[\".\",\"/w/\",\"1:2\",\"755\"],"
          "\"link\":true,\"type\":\"COPY\"}]");
    STEPS("ADD --checksum=sha256:00 https://h/p/f.tgz?x=/y /d/",
          "[{\"args\":[\"f.tgz\",\"/d/\",\"0:0\",\"0600\"],\"checksum\":\"sha256:00\",\"type\":"
          "\"COPY\",\"url\":\"https://h/p/f.tgz?x=/y\"}]");
    STEPS("VOLUME /v w",
          "[{\"args\":[\".\",\"/v/\",\"0:0\",\"\"],\"type\":\"COPY\"},{\"args\":[\".\","
          "\"w/\",\"0:0\",\"\"],\"type\":\"COPY\"}]");
    OK(make(&made,
            "FROM x\nCOPY --exclude=*.o --exclude=t [\"a b\", \"/c/\", \"/d/\"]\nADD x.tar y\n",
            &err));
    CHECK_INT(made.recipe.file_count, 2);
    files = made.recipe.files;
    CHECK_INT(files[0].line, 2);
    CHECK_STR(files[0].sources.items[0], "a b");
    CHECK_STR(files[0].sources.items[1], "c");
    CHECK_STR(files[0].excludes.items[1], "t");
    CHECK(files[0].to_dir && !files[0].unpack);
    CHECK(files[1].unpack && !files[1].to_dir);
    FAULT("COPY a", "source and a destination");
    FAULT("COPY a b c", "ends in '/'");
    FAULT("COPY ../a b", "outside of the context");
    FAULT("COPY --parents a b", "--parents is not supported: name");
    FAULT("COPY --chmod=u+x a b", "digits like 755");
    FAULT("ADD https://h/x.git /d", "git clone");
    FAULT("ADD --from=x a b", "--from is not supported");
    FAULT("COPY --checksum=x a b", "--checksum is not supported");
    FAULT("ADD https://h/ /d/", "no file name");
}

TEST(mounts)
{
    STEPS("RUN --mount=type=cache,target=/c,sharing=locked --mount=type=secret,id=k,required x",
          "[{\"args\":[\"x\"],\"mounts\":[{\"id\":\"/c\","
          "\"target\":\"/c\",\"type\":\"cache\"},{\"id\":\"k\",\"required\":true,\"target\":"
          "\"/run/secrets/k\",\"type\":\"secret\"}],\"shell\":[\"/bin/sh\",\"-c\"],\"type\":"
          "\"RUN\"}]");
    FAULT("RUN --mount=type=ssh x", "type=ssh is not supported");
    FAULT("RUN --mount=type=tmpfs,target=/x x", "cache, secret and bind");
    FAULT("RUN --mount=type=secret,id=k,env=K x", "read the file /run/secrets/k");
    FAULT("RUN --mount=type=cache x", "needs a target");
    FAULT("RUN --mount=type=cache,target=c x", "begins with '/'");
    FAULT("RUN --mount=type=secret x", "needs an id");
    FAULT("RUN --mount=type=bind,wat=1,target=/x x", "does not know 'wat'");
}

TEST(a_mount_of_the_context_needs_files)
{
    auto_made struct made made = {0};

    OK(make(&made,
            "FROM x AS a\nFROM y\nRUN --mount=target=/src,source=s,rw --mount=from=a,target=/a z\n",
            &err));
    CHECK_INT(made.recipe.file_count, 1);
    CHECK(made.recipe.files[0].is_mount);
    CHECK_STR(made.recipe.files[0].sources.items[0], "s");
    CHECK(!json_object_get(made.recipe.files[0].step, "readonly"));
    CHECK_INT(json_array_size(json_object_get(made.recipe.json, "stages")), 2);
}

TEST(stages)
{
    auto_made struct made made = {0};
    const json_t *stages;

    OK(make(&made,
            "FROM a AS Build\nENV E=1\nWORKDIR /b\nCOPY ctx /\nFROM b\nRUN no\nCOPY also /\nFROM "
            "scratch\nFROM build\nCOPY --from=2 /x y\nCOPY --from=build f g\nRUN echo $E\n",
            &err));
    stages = json_object_get(made.recipe.json, "stages");
    CHECK_INT(json_array_size(stages), 3);
    CHECK_STR(json_get_str(json_array_get(stages, 0), "name"), "Build");
    CHECK(json_is_true(json_object_get(json_array_get(stages, 1), "fromScratch")));
    CHECK_STR(json_get_str(json_array_get(stages, 1), "name"), "2");
    CHECK_STR(json_get_str(json_array_get(stages, 2), "fromStage"), "Build");
    CHECK_STR(json_get_str(made.recipe.json, "target"), "3");
    CHECK_INT(made.recipe.file_count, 1); /* what the second stage wants is not packed */
    CHECK_STR(json_get_str(json_array_get(json_object_get(json_array_get(stages, 2), "steps"), 0),
                           "fromStage"),
              "2");
    FAILS(make(&made, "FROM a AS x\nFROM b AS X\n", &err), ERROR_INVALID, "a stage 'X' already");
    FAILS(make(&made, "FROM a AS 1x\n", &err), ERROR_INVALID, "no name of a stage");
    FAILS(make(&made, "FROM --platform=linux/arm64 a\n", &err), ERROR_INVALID, "linux/amd64");
    OK(make(&made, "FROM --platform=$BUILDPLATFORM a\n", &err));
    FAILS(make(&made, "RUN x\nFROM a\n", &err), ERROR_INVALID, "Dockerfile:1: only ARG");
}

TEST(a_target_is_all_that_is_built)
{
    auto_made struct made made = {0};
    struct dockerfile_source source = {.text = STR("FROM a AS one\nFROM b AS two\nRUN x\n"),
                                       .file = "Dockerfile",
                                       .target = STR("one")};

    OK(dockerfile_translate(&source, &made.arena, &made.recipe, &err));
    CHECK_STR(json_get_str(made.recipe.json, "fromImage"), "a");
    json_decref(made.recipe.json);
    source.target = STR("three");
    FAILS(dockerfile_translate(&source, &made.arena, &made.recipe, &err), ERROR_INVALID,
          "no stage 'three'");
}

TEST(what_to_begin_with)
{
    auto_made struct made made = {0};

    OK(make(&made, "FROM template://base:v1\n", &err));
    CHECK_STR(json_get_str(made.recipe.json, "fromTemplate"), "base:v1");
    OK(make(&made, "FROM bootstrap://debian:bookworm\n", &err));
    CHECK_STR(json_get_str(made.recipe.json, "fromBootstrap"), "debian:bookworm");
    OK(make(&made, "FROM docker://ubuntu\n", &err));
    CHECK_STR(json_get_str(made.recipe.json, "fromImage"), "ubuntu");
    FAILS(make(&made, "FROM template://\n", &err), ERROR_INVALID, "names nothing");
}

static void check_start(int line, const char *body, const char *start, const char *ready)
{
    auto_made struct made made = {0};
    auto_free char *text = xasprintf("FROM x\n%s\n", body);
    struct error err = {0};

    if (make(&made, text, &err) < 0)
        test_fail(__FILE__, line, "%s: %s", body, err.message);
    if (!str_eq(json_get_str(made.recipe.json, "startCmd"), str_of(start)) ||
        !str_eq(json_get_str(made.recipe.json, "readyCmd"), str_of(ready)))
        test_fail(__FILE__, line, "%s: '%.*s', '%.*s'", body,
                  STR_ARG(json_get_str(made.recipe.json, "startCmd")),
                  STR_ARG(json_get_str(made.recipe.json, "readyCmd")));
}
#define START(body, start, ready) check_start(__LINE__, body, start, ready)

TEST(start_and_ready_commands)
{
    START("CMD [\"node\", \"a b.js\"]", "exec node 'a b.js'", NULL);
    START("CMD node x", "exec /bin/sh -c 'node x'", NULL);
    START("ENTRYPOINT [\"a\"]\nCMD [\"b\"]", "exec a b", NULL);
    START("CMD [\"b\"]\nENTRYPOINT [\"a\"]", "exec a b", NULL);
    START("ENTRYPOINT a it's\nCMD [\"b\"]", "exec /bin/sh -c 'a it'\\''s'", NULL);
    START("CMD [\"b\"]\nCMD []", NULL, NULL);
    START("CMD [\"/bin/bash\"]", NULL, NULL);
    START("CMD bash", NULL, NULL);
    START("CMD [\"sh\", \"x\"]", "exec sh x", NULL);
    START("HEALTHCHECK --interval=5s CMD curl -f http://localhost/", NULL,
          "/bin/sh -c 'curl -f http://localhost/'");
    START("HEALTHCHECK CMD [\"t\"]\nHEALTHCHECK NONE", NULL, NULL);
    START("CMD [\"b\"]\nFROM 0\nENTRYPOINT [\"c\"]", "exec c", NULL);
    START("ENTRYPOINT [\"c\"]\nFROM 0\nCMD [\"d\"]", "exec c d", NULL);
    START("EXPOSE 80 8000/tcp 53/udp $NO\nCMD [\"b\"]", "exec b",
          "n=0; until grep -qE ':(0050|1F40) [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6 "
          "2>/dev/null || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done");
    FAULT("EXPOSE x", "needs a port");
    FAULT("HEALTHCHECK curl x", "'CMD command' or 'NONE'");
    FAULT("SHELL bash -c", "needs a list");
}

TEST(labels_and_what_has_no_effect)
{
    auto_made struct made made = {0};
    auto_free char *labels = NULL;

    OK(make(&made,
            "FROM x\nARG V=2\nLABEL a=1 \"b c\"=\"d $V\"\nMAINTAINER me\nEXPOSE 80/tcp "
            "$NO\nSTOPSIGNAL 9\n",
            &err));
    labels = json_dumps(json_object_get(made.recipe.json, "labels"), JSON_COMPACT | JSON_SORT_KEYS);
    CHECK_STR(str_of(labels), "{\"a\":\"1\",\"b c\":\"d 2\",\"maintainer\":\"me\"}");
    CHECK_INT(json_array_size(json_object_get(made.recipe.json, "steps")), 0);
    FAULT("ONBUILD RUN x", "ONBUILD is not supported");
    FAULT("RNU x", "did you mean RUN?");
}

static bool is_literal(const json_t *steps, size_t i)
{
    return json_is_true(json_object_get(json_array_get(steps, i), "literal"));
}

TEST(only_what_is_not_known_is_left_to_the_server)
{
    auto_made struct made made = {0};
    const json_t *steps;

    OK(make(&made, "FROM x\nENV A=\\$b\nWORKDIR $HOME\nUSER $A\nCOPY x $HOME/\n", &err));
    steps = json_object_get(made.recipe.json, "steps");
    CHECK(is_literal(steps, 0) && !is_literal(steps, 1) && is_literal(steps, 2));
    CHECK(!is_literal(steps, 3));
}

TEST(lines_and_texts_are_told)
{
    auto_made struct made made = {0};
    const json_t *step;

    OK(make(&made, "\nFROM x\n\n# c\nRUN a \\\n b\nUSER u", &err));
    step = json_array_get(json_object_get(made.recipe.json, "steps"), 0);
    CHECK_INT(json_integer_value(json_object_get(step, "line")), 5);
    CHECK_STR(json_get_str(step, "text"), "RUN a  b");
    step = json_array_get(json_object_get(made.recipe.json, "steps"), 1);
    CHECK_INT(json_integer_value(json_object_get(step, "line")), 7);
}
