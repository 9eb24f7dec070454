/* Secrets in text that others wrote. Known ones are looked for literally, also in the form they have
 * inside JSON text; besides, what looks like a token or like a password in a URL is taken for one. A
 * secret becomes "***", which is never longer than what it replaces. */
#include <ctype.h>
#include <stdlib.h>

#include "agent/agent_internal.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "json/json_shape.h"

enum { SECRET_MIN = 6, SECRETS_MAX = 4096, URL_USER_MAX = 1024 };

struct agent_secrets {
    pthread_rwlock_t lock;
    char **items;
    size_t count, cap;
};

int agent_secrets_open(struct agents *agents)
{
    agents->secrets = xcalloc(1, sizeof(*agents->secrets));
    (void)pthread_rwlock_init(&agents->secrets->lock, NULL);
    return 0;
}

void agent_secrets_close(struct agents *agents)
{
    struct agent_secrets *secrets = agents->secrets;

    if (!secrets)
        return;
    for (size_t i = 0; i < secrets->count; i++)
        free(secrets->items[i]);
    free(secrets->items);
    (void)pthread_rwlock_destroy(&secrets->lock);
    free(secrets);
    agents->secrets = NULL;
}

static void add_one(struct agent_secrets *secrets, struct str secret)
{
    for (size_t i = 0; i < secrets->count; i++)
        if (str_is(secret, secrets->items[i]))
            return;
    if (secrets->count == SECRETS_MAX) { /* the oldest go: of runners that came and went */
        free(secrets->items[0]);
        memmove(&secrets->items[0], &secrets->items[1],
                (secrets->count - 1) * sizeof(*secrets->items));
        secrets->count--;
    }
    if (secrets->count == secrets->cap) {
        secrets->cap = secrets->cap ? secrets->cap * 2 : 16;
        secrets->items = xrealloc(secrets->items, secrets->cap * sizeof(*secrets->items));
    }
    secrets->items[secrets->count++] = str_dup(secret);
}

void agent_secret_add(struct agents *agents, struct str secret)
{
    auto_buf struct buf quoted = {0};

    if (secret.len < SECRET_MIN || memchr(secret.p, '\0', secret.len))
        return;
    buf_init(&quoted, 1 << 20);
    (void)json_add_str(&quoted, secret);
    (void)pthread_rwlock_wrlock(&agents->secrets->lock);
    add_one(agents->secrets, secret);
    if (!quoted.overflowed && quoted.len > secret.len + 2)
        add_one(agents->secrets, str_n(quoted.p + 1, quoted.len - 2));
    (void)pthread_rwlock_unlock(&agents->secrets->lock);
}

/* Replaces [at, at + len) of text by "***"; returns what follows. */
static char *blot(char *at, size_t len)
{
    memmove(at + 3, at + len, strlen(at + len) + 1);
    memcpy(at, "***", 3);
    return at + 3;
}

static void mask_known(struct agent_secrets *secrets, char *text)
{
    (void)pthread_rwlock_rdlock(&secrets->lock);
    for (size_t i = 0; i < secrets->count; i++) {
        size_t len = strlen(secrets->items[i]);
        char *at = text;

        while ((at = strstr(at, secrets->items[i])))
            at = blot(at, len);
    }
    (void)pthread_rwlock_unlock(&secrets->lock);
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

void agent_mask(const struct agents *agents, char *text)
{
    static const char *const shapes[] = {"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"};

    if (!text || !*text)
        return;
    mask_known(agents->secrets, text);
    mask_urls(text);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        mask_shape(text, shapes[i], 16);
    mask_shape(text, "e2b_", 16);
}
