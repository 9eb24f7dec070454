/* A message behind a line of three headers, "VERSION METHOD NAME": parsed, checked, and what is wrong with it told. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "extra/mcp/mcp_message.h"
#include "protocol/json/json_shape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n(data, size), line = str_split(&text, '\n');
    struct mcp_heads heads = {0};
    struct mcp_fault fault = {0};
    struct mcp_message message;

    heads.version = str_split(&line, ' ');
    if (!heads.version.len)
        heads.version = STR_NONE;
    heads.method = str_split(&line, ' ');
    heads.name = line;
    if (mcp_message_parse(text, &message, &fault) < 0 ||
        mcp_message_check(&message, &heads, &fault) < 0) {
        json_t *json = mcp_fault_json(&fault, message.id);
        char *told = json ? json_text(json) : NULL;

        if (!told || fault.status != 400)
            __builtin_trap();
        free(told);
        json_decref(json);
    } else if (message.kind != MCP_RESPONSE && !message.method.len) {
        __builtin_trap();
    }
    mcp_message_done(&message);
    return 0;
}
