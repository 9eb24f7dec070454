/* Beside v1_fake.c: what the tools of other extras ask of the runtime, and the table of those extras. */
#include "edge/api_runtime/test/v1_fake.h"
#include "extra/browser/browser_page.h"
#include "extra/core/extra.h"
#include "extra/desktop/desktop.h"

int desktop_screenshot(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                       struct str display, struct buf *out, struct error *err)
{
    (void)runtime;
    if (v1_fake_asked(err, "screenshot(%.*s) ", STR_ARG(display)) < 0 ||
        v1_fake_find(caller, id, err) < 0)
        return -1;
    (void)buf_add_str(out, STR("\x89PNG\r\n\x1a\n"));
    return 0;
}

int browser_page_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
                    const struct browser_page *page, struct buf *out, struct error *err)
{
    (void)runtime;
    if (v1_fake_asked(err, "browser(%s,%.*s) ", page->act, STR_ARG(page->url)) < 0 ||
        v1_fake_find(caller, id, err) < 0)
        return -1;
    (void)buf_add_str(out, STR("{\"url\":\"about:blank\"}"));
    return 0;
}

int desktop_do(struct runtime *runtime, const struct runtime_caller *caller, struct str id,
               const struct desktop_act *act, struct error *err)
{
    (void)runtime;
    if (v1_fake_asked(err, "desktop(%d,%d,%d,%d,%zu) ", (int)act->kind, act->x, act->y, act->count,
                      json_array_size(act->keys)) < 0)
        return -1;
    return v1_fake_find(caller, id, err);
}

extern const struct extra extra_browser_tools, extra_desktop_tools, extra_interpreter_tools;

const struct extra *const *extras_all(void)
{
    static const struct extra *const all[] = {&extra_browser_tools, &extra_desktop_tools,
                                              &extra_interpreter_tools, NULL};

    return all;
}
