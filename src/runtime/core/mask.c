/* Secrets in text that others wrote. Known ones are looked for literally, also in the form they have
 * inside JSON text; besides, what looks like a token or like a password in a URL is taken for one. A
 * secret becomes "***", which is never longer than what it replaces.
 *
 * What a team gives as a secret is looked for in that team's texts only: it could be any word, and
 * would blot it out for everybody else. For the same reason JSON text is only changed inside of its
 * strings. The operator's secrets are looked for everywhere and stay; of a team's the oldest go. */
#include <ctype.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/map.h"
#include "protocol/json/json_shape.h"
#include "runtime/core/runtime_parts.h"

enum { SECRET_MIN = 6, TEAM_SECRETS_MAX = 256, URL_USER_MAX = 1024 };

struct secret {
    char *plain;
    char *quoted; /* inside of JSON text; NULL = the same */
};

struct secret_list {
    struct secret *items; /* oldest first */
    size_t count, cap;
};

struct runtime_secrets {
    pthread_rwlock_t lock;
    struct secret_list operators;
    struct map teams; /* id -> struct secret_list */
};

int runtime_secrets_open(struct runtime *runtime)
{
    runtime->secrets = xcalloc(1, sizeof(*runtime->secrets));
    (void)pthread_rwlock_init(&runtime->secrets->lock, NULL);
    map_init(&runtime->secrets->teams);
    return 0;
}

static void secret_free(struct secret *secret)
{
    free(secret->plain);
    free(secret->quoted);
}

static void list_free(struct secret_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        secret_free(&list->items[i]);
    free(list->items);
}

void runtime_secrets_close(struct runtime *runtime)
{
    struct runtime_secrets *secrets = runtime->secrets;
    struct map_entry *entry;

    if (!secrets)
        return;
    map_for_each (&secrets->teams, entry) {
        list_free(entry->value);
        free(entry->value);
    }
    map_done(&secrets->teams);
    list_free(&secrets->operators);
    (void)pthread_rwlock_destroy(&secrets->lock);
    free(secrets);
    runtime->secrets = NULL;
}

static void list_add(struct secret_list *list, struct str secret, size_t max)
{
    auto_buf struct buf quoted = {0};
    struct secret added;

    for (size_t i = 0; i < list->count; i++)
        if (str_is(secret, list->items[i].plain))
            return;
    if (max && list->count == max) {
        secret_free(&list->items[0]);
        list->count--;
        memmove(&list->items[0], &list->items[1], list->count * sizeof(*list->items));
    }
    buf_init(&quoted, 6 * secret.len + 2);
    (void)json_add_str(&quoted, secret);
    added = (struct secret){.plain = str_dup(secret)};
    if (quoted.len > secret.len + 2)
        added.quoted = str_dup(str_n(quoted.p + 1, quoted.len - 2));
    if (list->count == list->cap) {
        list->cap = list->cap ? list->cap * 2 : 16;
        list->items = xrealloc(list->items, list->cap * sizeof(*list->items));
    }
    list->items[list->count++] = added;
}

void runtime_secret_add(struct runtime *runtime, struct str team_id, struct str secret)
{
    struct runtime_secrets *secrets = runtime->secrets;
    struct secret_list *list = &secrets->operators;

    if (secret.len < SECRET_MIN || memchr(secret.p, '\0', secret.len))
        return;
    (void)pthread_rwlock_wrlock(&secrets->lock);
    if (team_id.len) {
        list = map_get(&secrets->teams, team_id);
        if (!list) {
            list = xcalloc(1, sizeof(*list));
            (void)map_put(&secrets->teams, team_id, list);
        }
    }
    list_add(list, secret, team_id.len ? TEAM_SECRETS_MAX : 0);
    (void)pthread_rwlock_unlock(&secrets->lock);
}

/* Replaces [at, at + len) of text by "***"; returns what follows. */
static char *blot(char *at, size_t len)
{
    memmove(at + 3, at + len, strlen(at + len) + 1);
    memcpy(at, "***", 3);
    return at + 3;
}

static void mask_text(char *text, const char *secret)
{
    size_t len = strlen(secret);

    while ((text = strstr(text, secret)))
        text = blot(text, len);
}

/* Only where a character of a string begins. A secret in its quoted form cannot reach beyond the
 * string's end. */
static void mask_strings(char *text, const char *secret)
{
    size_t len = strlen(secret);
    char *seen = text, *at = text;
    bool inside = false;

    while ((at = strstr(at, secret))) {
        for (; seen < at; seen++) {
            if (*seen == '"')
                inside = !inside;
            else if (*seen == '\\')
                seen++;
        }
        if (inside && seen == at)
            seen = at = blot(at, len);
        else
            at++;
    }
}

static void mask_list(const struct secret_list *list, char *text, bool json)
{
    for (size_t i = 0; list && i < list->count; i++) {
        const struct secret *secret = &list->items[i];

        if (json) {
            mask_strings(text, secret->quoted ? secret->quoted : secret->plain);
            continue;
        }
        mask_text(text, secret->plain);
        if (secret->quoted)
            mask_text(text, secret->quoted);
    }
}

static bool word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* "ghp_" and so on, followed by at least `min` characters of a token. */
static void mask_shape(char *text, const char *prefix, size_t min)
{
    size_t prefix_len = strlen(prefix);
    char *at = text;

    while ((at = strstr(at, prefix))) {
        size_t len = prefix_len;

        while (word_char(at[len]))
            len++;
        if (len < prefix_len + min || (at > text && word_char(at[-1])))
            at += prefix_len;
        else
            at = blot(at, len);
    }
}

/* "scheme://user:password@host" and "scheme://token@host". */
static void mask_urls(char *text)
{
    char *at = text;

    while ((at = strstr(at, "://"))) {
        size_t len = 0;

        at += 3;
        while (len < URL_USER_MAX && at[len] && at[len] != '@' &&
               !strchr("/?#\"\\'<> \t\r\n", at[len]))
            len++;
        if (at[len] == '@' && len >= 3 && strncmp(at, "git@", 4) != 0)
            at = blot(at, len);
    }
}

static void mask(const struct runtime *runtime, struct str team_id, char *text, bool json)
{
    static const char *const shapes[] = {"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"};
    struct runtime_secrets *secrets = runtime->secrets;

    if (!text || !*text)
        return;
    (void)pthread_rwlock_rdlock(&secrets->lock);
    mask_list(&secrets->operators, text, json);
    mask_list(team_id.len ? map_get(&secrets->teams, team_id) : NULL, text, json);
    (void)pthread_rwlock_unlock(&secrets->lock);
    mask_urls(text);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        mask_shape(text, shapes[i], 16);
    mask_shape(text, "e2b_", 16);
}

void runtime_mask(const struct runtime *runtime, struct str team_id, char *text)
{
    mask(runtime, team_id, text, false);
}

void runtime_mask_json(const struct runtime *runtime, struct str team_id, char *text)
{
    mask(runtime, team_id, text, true);
}
