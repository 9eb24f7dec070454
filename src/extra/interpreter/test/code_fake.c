/* Beside v1_fake.c: runs no code, and answers as if it had. */
#include "edge/api_runtime/test/v1_fake.h"
#include "extra/interpreter/code.h"

int runtime_code(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                 const struct runtime_code *code, json_t **out, struct error *err)
{
    (void)runtime;
    if (v1_fake_asked(err, "code(%.*s,%.*s,%d) ", STR_ARG(code->code), STR_ARG(code->language),
                      (int)code->timeout_ms) < 0 ||
        v1_fake_find(caller, id, err) < 0)
        return -1;
    if (code->on_line)
        (void)code->on_line(code->arg, STR("{\"type\":\"stdout\",\"text\":\"x\"}"));
    if (code->on_line && str_is(code->code, "plot"))
        (void)code->on_line(code->arg, STR("{\"type\":\"result\",\"is_main_result\":false,\"text\":"
                                           "\"<Figure>\",\"png\":\"aGk=\\n\"}"));
    *out = json_pack("{s:i}", "execution_count", 4);
    return 0;
}
