#include "envd/core/journal.h"

#include "base/test.h"
#include "protocol/json/json_shape.h"

static const char *told(const char *script)
{
    auto_json json_t *config = json_pack("{s:s,s:[s,s,s],s:{s:s}}", "cmd", "bash", "args", "-l",
                                         "-c", script, "envs", "NAME", "secret");
    static struct buf text;

    buf_done(&text);
    buf_init(&text, 8192);
    journal_command(config, &text);
    CHECK(text.p);
    CHECK(strncmp(text.p, "bash -l -c ", 11) == 0);
    return text.p + 11;
}

TEST(commands_are_told_without_secrets)
{
    static const char *const cases[][2] = {
        {"ls -la /tmp", "ls -la /tmp"},
        {"A=b c", "A=*** c"},
        {"A='x y'\"z q\" c", "A=*** c"},
        {"A=\"unclosed quote", "A=***"},
        {"run --password=x --level=3", "run --password=*** --level=3"},
        {"python3 -c 'x=bytearray(16 << 20)'", "python3 -c 'x=bytearray(16 << 20)'"},
        {"pgpass=a my_cred='b c' d", "pgpass=*** my_cred=*** d"},
        {"x=ghp_a1b2c3d4e5f6g7h8", "x=***"},
        {"x=/usr/share/doc/python3", "x=/usr/share/doc/python3"},
        {"run --api-key x y", "run --api-key *** y"},
        {"curl -H 'Authorization: Bearer abc.def' u", "curl -H 'Authorization: Bearer ***"},
        {"git clone https://u:p@h/r.git", "git clone https://***@h/r.git"},
        {"curl https://host/a@b", "curl https://host/a@b"},
        {"two\nlines", "two lines"},
        {"", ""},
        {"TOKEN", "TOKEN"},
        {"TOKEN ", "TOKEN "},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        CHECK_STR(str_of(told(cases[i][0])), cases[i][1]);
}

TEST(long_commands_are_cut)
{
    char script[9000];

    memset(script, 'x', sizeof(script) - 1);
    script[sizeof(script) - 1] = '\0';
    CHECK_INT(strlen(told(script)), 256 + 3 - 11);
    memset(script, '=', sizeof(script) - 1);
    CHECK(strlen(told(script)) < 300);
    for (size_t i = 0; i < sizeof(script) - 1; i++)
        script[i] = (char)(i % 94 + 33);
    CHECK(strlen(told(script)) < 300);
}
