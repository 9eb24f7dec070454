/* Trace ids of callers, as OpenTelemetry sends them: "00-TRACE-SPAN-FLAGS" (W3C Trace Context). */
#include "edge/call/call.h"

enum { TRACE_LEN = CALL_TRACE_ID_SIZE - 1, SPAN_LEN = 16 };

static bool is_hex(struct str text, size_t len)
{
    size_t zeros = 0;

    if (text.len != len)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!((text.p[i] >= '0' && text.p[i] <= '9') || (text.p[i] >= 'a' && text.p[i] <= 'f')))
            return false;
        zeros += text.p[i] == '0';
    }
    return len == 2 || zeros < len; /* an id of zeros is none */
}

/* Later versions may have more behind the flags. */
void call_trace(struct str given, char out[CALL_TRACE_ID_SIZE])
{
    struct str rest = str_trim(given), version, trace, span, flags;

    out[0] = '\0';
    version = str_split(&rest, '-');
    trace = str_split(&rest, '-');
    span = str_split(&rest, '-');
    flags = str_split(&rest, '-');
    if (!is_hex(version, 2) || str_is(version, "ff") || !is_hex(trace, TRACE_LEN) ||
        !is_hex(span, SPAN_LEN) || !is_hex(flags, 2) || (str_is(version, "00") && rest.p))
        return;
    (void)str_copy(trace, out, CALL_TRACE_ID_SIZE);
}
