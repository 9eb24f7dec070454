/* A thread takes what is due from the queue in the store. A delivery that fails is put off: 5 s, 10 s,
 * 20 s ... one hour, and everything else for that webhook with it, so that one that is down does not
 * hold up the others. One that succeeds is deleted; when the server dies in between, it comes again,
 * with the same event id.
 *
 * Signatures: e2b-signature is base64(SHA-256(secret + body)) without padding, as clients of the
 * reference platform verify it; x-quicksand-signature is an HMAC-SHA256 of the body, in hex. */
#include "domain/delivery/webhook.h"

#include <inttypes.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "base/log.h"
#include "domain/account/team.h"
#include "domain/sandbox/sandbox_history.h"
#include "domain/sandbox/sandbox_internal.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_shape.h"

enum {
    NAME_MAX_LEN = 128,
    URL_MAX = 1024,
    SECRET_MAX = 256,
    BATCH = 16,
    WEBHOOK_MS = 5000,
    SEND_MS = 10 * 1000,
    ANSWER_MAX = 4096,
    IDLE_US = 60 * 1000 * 1000,
};
#define LAST_PAUSE_US ((int64_t)3600 * 1000000)

static bool text_ok(struct str text, size_t min, size_t max)
{
    return text.len >= min && text.len <= max && !memchr(text.p, '\0', text.len) &&
           str_valid_utf8(text);
}

static bool url_ok(struct str url)
{
    auto_free char *text = str_dup(url);

    return text_ok(url, 1, URL_MAX) && fetch_url_ok(text);
}

static int check(const struct store_webhook *webhook, struct error *err)
{
    if (!text_ok(webhook->name, 1, NAME_MAX_LEN))
        return error_set(err, ERROR_INVALID, "'name' must have 1 to %d characters", NAME_MAX_LEN);
    if (!url_ok(webhook->url))
        return error_set(err, ERROR_INVALID, "'url' must be an http or https URL");
    if (!text_ok(webhook->secret, 1, SECRET_MAX))
        return error_set(err, ERROR_INVALID, "'signatureSecret' must have 1 to %d characters",
                         SECRET_MAX);
    if (webhook->events.len < 3)
        return error_set(err, ERROR_INVALID, "'events' must not be empty");
    return 0;
}

int webhook_put(struct sandboxes *all, struct store_webhook *webhook, struct arena *arena,
                struct error *err)
{
    struct store_webhook *others;
    char id[UUID_SIZE];
    size_t count;

    if (check(webhook, err) < 0)
        return -1;
    if (!webhook->id.len) {
        if (store_webhook_list(all->store, webhook->team_id, arena, &others, &count, err) < 0)
            return -1;
        if (count >= WEBHOOKS_PER_TEAM)
            return error_set(err, ERROR_QUOTA, "your team's limit of %d webhooks is reached",
                             WEBHOOKS_PER_TEAM);
        id_uuid(id);
        webhook->id = arena_str(arena, str_of(id));
        webhook->created_at_us = clock_wall_us();
    }
    if (store_webhook_put(all->store, webhook, err) < 0)
        return -1;
    atomic_store(&all->webhooks.any, true);
    return 0;
}

int webhook_list(struct sandboxes *all, struct str team_id, struct arena *arena,
                 struct store_webhook **out, size_t *out_count, struct error *err)
{
    return store_webhook_list(all->store, team_id, arena, out, out_count, err);
}

int webhook_get(struct sandboxes *all, struct str team_id, struct str id, struct arena *arena,
                struct store_webhook *out, struct error *err)
{
    struct store_webhook *list;
    size_t count;

    if (store_webhook_list(all->store, team_id, arena, &list, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (str_eq(list[i].id, id)) {
            *out = list[i];
            return 0;
        }
    return error_set(err, ERROR_NOT_FOUND, "webhook not found");
}

int webhook_delete(struct sandboxes *all, struct str team_id, struct str id, struct error *err)
{
    return store_webhook_delete(all->store, team_id, id, err);
}

struct signatures {
    char plain[BASE64_LEN(SHA256_DIGEST_LENGTH) + 1];
    char hmac[sizeof("sha256=") + 2 * SHA256_DIGEST_LENGTH];
};

static void sign(struct str secret, struct str body, struct signatures *out)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    auto_buf struct buf both = {0};

    buf_init(&both, secret.len + body.len);
    (void)buf_add_str(&both, secret);
    (void)buf_add_str(&both, body);
    (void)SHA256((const unsigned char *)both.p, both.len, digest);
    base64_encode(out->plain, digest, sizeof(digest));
    out->plain[sizeof(out->plain) - 1] = '\0';
    out->plain[strcspn(out->plain, "=")] = '\0';
    (void)HMAC(EVP_sha256(), secret.p, (int)secret.len, (const unsigned char *)body.p, body.len,
               digest, NULL);
    memcpy(out->hmac, "sha256=", 7);
    hex_encode(out->hmac + 7, digest, sizeof(digest));
}

/* Only the status of the answer counts. */
static int post(const struct webhooks *webhooks, const struct fetch_request *request,
                struct error *err)
{
    auto_response struct fetch_response response = {0};

    if (fetch_call(webhooks->fetch, request, &response, err) < 0 && err->code != ERROR_LIMIT)
        return -1;
    if (response.status < 200 || response.status > 299)
        return error_set(err, ERROR_UNAVAILABLE, "answered %d", response.status);
    return 0;
}

static int send_event(const struct sandboxes *all, const struct store_webhook *webhook,
                      const struct store_event *event, struct error *err)
{
    auto_json json_t *json = sandbox_event_json(event);
    auto_free char *body = json_text(json), *url = str_dup(webhook->url);
    bool anywhere = all->webhooks.private_ok || str_is(webhook->team_id, TEAM_DEFAULT_ID);
    char delivery_id[UUID_SIZE];
    struct signatures signatures;

    id_uuid(delivery_id);
    sign(webhook->secret, str_of(body), &signatures);
    return post(&all->webhooks,
                &(struct fetch_request){
                    .method = "POST",
                    .url = url,
                    .headers =
                        (struct http_header[]){
                            {STR("content-type"), STR("application/json")},
                            {STR("e2b-webhook-id"), webhook->id},
                            {STR("e2b-delivery-id"), str_of(delivery_id)},
                            {STR("e2b-signature-version"), STR("v1")},
                            {STR("e2b-signature"), str_of(signatures.plain)},
                            {STR("x-quicksand-signature"), str_of(signatures.hmac)},
                        },
                    .header_count = 6,
                    .body = str_of(body),
                    .timeout_ms = SEND_MS,
                    .response_max = ANSWER_MAX,
                    .ca_file = all->webhooks.ca_file,
                    .reach = anywhere ? FETCH_DIRECT : FETCH_PUBLIC,
                    .repeatable = true,
                },
                err);
}

/* 1 = there, 0 = it is too old and was forgotten. */
static int load_event(struct sandboxes *all, int64_t seq, struct arena *arena,
                      struct store_event *out, struct error *err)
{
    struct store_event_query query = {.after_seq = seq - 1, .limit = 1};
    struct store_event *events;
    size_t count;

    if (store_event_page(all->store, &query, arena, &events, &count, err) < 0)
        return -1;
    if (count == 0 || events[0].seq != seq)
        return 0;
    *out = events[0];
    return 1;
}

static int64_t pause_after(const struct sandboxes *all, int64_t attempts)
{
    int64_t pause = all->webhooks.first_pause_us;

    while (attempts-- > 0 && pause < LAST_PAUSE_US)
        pause *= 2;
    return pause < LAST_PAUSE_US ? pause : LAST_PAUSE_US;
}

/* False when the webhook did not take it. */
static bool deliver(struct sandboxes *all, const struct store_delivery *delivery)
{
    const struct store_webhook *webhook = &delivery->webhook;
    auto_arena struct arena arena = {0};
    struct store_event event;
    struct error err = {0};
    int found = load_event(all, delivery->event_seq, &arena, &event, &err);
    int result;

    if (found == 0 || !webhook->enabled)
        result = 0; /* nobody wants it any more */
    else
        result = found < 0 ? -1 : send_event(all, webhook, &event, &err);
    if (result == 0) {
        if (store_delivery_done(all->store, webhook->id, delivery->event_seq, &err) < 0)
            log_warn("webhook", "id=%.*s: %s, it comes again", STR_ARG(webhook->id), err.message);
        return true;
    }
    log_warn("webhook", "id=%.*s event=%" PRId64 " attempt=%" PRId64 ": %s", STR_ARG(webhook->id),
             delivery->event_seq, delivery->attempts + 1, err.message);
    if (store_delivery_later(all->store, webhook->id, delivery->event_seq,
                             clock_wall_us() + pause_after(all, delivery->attempts), &err) < 0)
        log_warn("webhook", "%s, ignoring", err.message);
    return false;
}

static void deliver_batch(struct sandboxes *all, const struct store_delivery *due, size_t count)
{
    struct str failed = STR_NONE; /* the last webhook that did not take something */

    for (size_t i = 0; i < count && !atomic_load(&all->webhooks.stopping); i++)
        if (!str_eq(due[i].webhook.id, failed) && !deliver(all, &due[i]))
            failed = due[i].webhook.id;
}

/* Returns when to look again. */
static int64_t deliver_due(struct sandboxes *all)
{
    auto_arena struct arena arena = {0};
    struct store_delivery *due;
    struct error err = {0};
    int64_t next_at_us = 0, left;
    size_t count = 0;

    if (store_delivery_due(all->store, clock_wall_us(), BATCH, &arena, &due, &count, &err) < 0) {
        log_warn("webhook", "%s, trying again", err.message);
        return all->webhooks.first_pause_us;
    }
    deliver_batch(all, due, count);
    if (count)
        return 0;
    if (store_delivery_next(all->store, &next_at_us, &err) < 0 || next_at_us == 0)
        return IDLE_US;
    left = next_at_us - clock_wall_us();
    return left < 0 ? 0 : left < IDLE_US ? left : IDLE_US;
}

static void *webhooks_run(void *arg)
{
    struct sandboxes *all = arg;
    struct webhooks *webhooks = &all->webhooks;

    while (!atomic_load(&webhooks->stopping)) {
        int64_t wait;

        (void)pthread_mutex_lock(&webhooks->lock);
        webhooks->kicked = false;
        (void)pthread_mutex_unlock(&webhooks->lock);
        wait = deliver_due(all);
        (void)pthread_mutex_lock(&webhooks->lock);
        if (wait > 0 && !webhooks->kicked && !atomic_load(&webhooks->stopping))
            (void)cond_wait_us(&webhooks->wake, &webhooks->lock, wait);
        (void)pthread_mutex_unlock(&webhooks->lock);
    }
    return NULL;
}

void webhooks_kick(struct sandboxes *all)
{
    if (!atomic_load(&all->webhooks.any))
        return;
    (void)pthread_mutex_lock(&all->webhooks.lock);
    all->webhooks.kicked = true;
    (void)pthread_cond_signal(&all->webhooks.wake);
    (void)pthread_mutex_unlock(&all->webhooks.lock);
}

void webhooks_init(struct sandboxes *all, const struct sandboxes_config *config)
{
    struct webhooks *webhooks = &all->webhooks;

    (void)pthread_mutex_init(&webhooks->lock, NULL);
    cond_init(&webhooks->wake);
    webhooks->fetch = fetch_new();
    webhooks->private_ok = config->private_webhooks;
    webhooks->first_pause_us = (config->webhook_ms > 0 ? config->webhook_ms : WEBHOOK_MS) * 1000;
    if (config->webhook_ca && config->webhook_ca[0])
        webhooks->ca_file = xstrdup(config->webhook_ca);
}

void webhooks_done(struct sandboxes *all)
{
    fetch_free(all->webhooks.fetch);
    free(all->webhooks.ca_file);
    (void)pthread_mutex_destroy(&all->webhooks.lock);
    (void)pthread_cond_destroy(&all->webhooks.wake);
}

int webhooks_check(const struct sandboxes_config *config, struct error *err)
{
    const char *file = config->webhook_ca;
    X509_STORE *store = X509_STORE_new();
    bool ok = !file || !file[0] || (store && X509_STORE_load_file(store, file) == 1);

    X509_STORE_free(store);
    ERR_clear_error();
    if (ok)
        return 0;
    return error_set(err, ERROR_INVALID,
                     "webhook-ca: '%s' cannot be read by the server, or has no certificates in PEM "
                     "form",
                     file);
}

int webhooks_start(struct sandboxes *all, struct error *err)
{
    bool any = false;
    int errnum;

    if (store_webhook_any(all->store, &any, err) < 0)
        return -1;
    atomic_store(&all->webhooks.any, any);
    errnum = pthread_create(&all->webhooks.thread, NULL, webhooks_run, all);
    if (errnum)
        return error_set_errno(err, errnum, "start the webhook thread");
    all->webhooks.has_thread = true;
    return 0;
}

void webhooks_stop(struct sandboxes *all)
{
    (void)pthread_mutex_lock(&all->webhooks.lock);
    atomic_store(&all->webhooks.stopping, true);
    (void)pthread_cond_signal(&all->webhooks.wake);
    (void)pthread_mutex_unlock(&all->webhooks.lock);
    if (all->webhooks.has_thread)
        (void)pthread_join(all->webhooks.thread, NULL);
}
