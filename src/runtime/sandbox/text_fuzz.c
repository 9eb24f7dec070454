/* Text of callers and guests that decides something: what is masked, which host a repository is at, which
 * commands may run, and the operator's file. The first byte chooses. */
#include <stdint.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "protocol/json/json_shape.h"
#include "runtime/config/config.h"
#include "runtime/core/runtime_parts.h"
#include "runtime/run/run.h"
#include "runtime/sandbox/sandbox.h"
#include "runtime/session/pull.h"

#define SECRET "very\"secret"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct runtime runtime;

/* What was JSON is JSON afterwards, and no secret is in it. */
static void try_mask(struct str text)
{
    auto_free char *plain = str_dup(text), *quoted = str_dup(text);
    auto_json json_t *before = NULL, *after = NULL;
    struct error err;

    runtime_mask(&runtime, STR("team"), plain);
    if (strstr(plain, SECRET) || strlen(plain) > text.len)
        abort();
    if (json_parse(str_of(quoted), &before, &err) < 0)
        return;
    runtime_mask_json(&runtime, STR("team"), quoted);
    if (json_parse(str_of(quoted), &after, &err) < 0 || json_typeof(before) != json_typeof(after))
        abort();
    if (json_is_string(after) && strstr(json_string_value(after), SECRET))
        abort();
}

static bool is_plain(struct str word, const char *more)
{
    for (size_t i = 0; i < word.len; i++)
        if (strchr("@/\\?#%& \t\r\n\"'", word.p[i]) && !strchr(more, word.p[i]))
            return false;
    return word.len > 0;
}

static void try_repository(struct str text)
{
    auto_arena struct arena arena = {0};
    struct pull_place place;

    if (pull_place_of(text, &arena, &place) &&
        (!is_plain(place.host, "") || !is_plain(place.owner, "") || !is_plain(place.name, "")))
        abort();
}

static void try_command(struct str text)
{
    struct runtime_command command = {.command = text};
    struct error err;

    if (runtime_command_check(&runtime, &command, &err) < 0)
        return;
    for (size_t i = 0; i < text.len; i++)
        if (strchr(";|&$()<>`\\\n\r", text.p[i]))
            abort();
    if (str_find_str(text, STR("git")) < 0)
        abort();
}

static const char *no_variable(const char *name)
{
    (void)name;
    return NULL;
}

static void try_settings(struct str text)
{
    struct runtime_settings settings = {0};
    auto_buf struct buf faults = {0}, told = {0};
    bool remote;

    buf_init(&faults, 1 << 20);
    buf_init(&told, 1 << 20);
    if (runtime_settings_load(text, no_variable, NULL, &settings, &faults) == 0) {
        runtime_settings_default(&settings, &told, &remote);
        runtime_settings_done(&settings);
    } else if (faults.len == 0) {
        abort();
    }
}

static void open_runtime(void)
{
    static struct runtime_settings settings;

    settings.allow = json_pack("[s]", "git status");
    runtime.config.settings = &settings;
    (void)runtime_secrets_open(&runtime);
    runtime_secret_add(&runtime, STR_NONE, STR(SECRET));
    runtime_secret_add(&runtime, STR("team"), STR("another-word"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const readers[])(struct str) = {try_mask, try_repository, try_command,
                                                  try_settings};

    if (!runtime.secrets)
        open_runtime();
    if (size > 0)
        readers[data[0] % 4](str_n(data + 1, size - 1));
    return 0;
}
