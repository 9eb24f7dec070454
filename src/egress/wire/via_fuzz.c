/* Answers of proxies: the first byte says of which kind and with what, the rest comes in two parts, which must not make
 * a difference. */
#include <stdlib.h>

#include "egress/wire/via.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum via_step talk(const struct via *via, struct str first, struct str second, size_t *left)
{
    const struct via_target target = {.address = 0x01020304, .port = 443};
    struct via_dialog dialog;
    enum via_step step;
    struct buf out, in;
    struct str rest;

    buf_init(&out, 65536);
    buf_init(&in, (size_t)1024 * 1024);
    via_begin(&dialog, via, &target, &out);
    (void)buf_add_str(&in, first);
    rest = buf_str(&in);
    step = via_feed(&dialog, &rest, &out);
    buf_drop(&in, in.len - rest.len);
    (void)buf_add_str(&in, second);
    rest = buf_str(&in);
    if (step == VIA_MORE)
        step = via_feed(&dialog, &rest, &out);
    if ((step == VIA_FAILED) != (dialog.fault != NULL) || out.overflowed)
        abort();
    *left = rest.len;
    buf_done(&out);
    buf_done(&in);
    return step;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char user[] = "user", password[] = "password";
    struct via via = {.address = 0x7f000001, .port = 1080};
    size_t whole_left, cut_left;
    enum via_step whole, cut;
    struct str text;

    if (size < 2 || size > VIA_ANSWER_MAX / 2)
        return 0;
    via.http = data[0] & 1;
    if (data[0] & 2) {
        via.username = user;
        via.password = password;
    }
    text = str_n(data + 2, size - 2);
    whole = talk(&via, text, STR_NONE, &whole_left);
    cut = talk(&via, str_n(text.p, text.len * data[1] / 256),
               str_skip(text, text.len * data[1] / 256), &cut_left);
    if (whole != cut || (whole == VIA_OPEN && whole_left != cut_left))
        abort();
    return 0;
}
