/* Webhooks and what they are told. The sender takes what is due from the queue in the store, the
 * oldest of a webhook first. One that is not taken puts off everything else for its webhook; one
 * that is taken is deleted: when the server dies in between, it comes again, with the same event id.
 *
 * Signatures: e2b-signature is base64(SHA-256(secret + body)) without padding, as clients of the
 * reference platform verify it; x-quicksand-signature is an HMAC-SHA256 of the body, in hex. */

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
#include "domain/delivery/webhook_internal.h"
#include "domain/sandbox/sandbox.h"
#include "domain/sandbox/sandbox_history.h"
#include "protocol/json/json_shape.h"

enum {
    NAME_MAX_LEN = 128,
    URL_MAX = 1024,
    SECRET_MAX = 256,
    WEBHOOK_MS = 5000,
    SEND_MS = 10 * 1000,
};

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

int webhook_put(struct webhooks *all, struct store_webhook *webhook, struct arena *arena,
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
    atomic_store(&all->any, true);
    return 0;
}

int webhook_list(struct webhooks *all, struct str team_id, struct arena *arena,
                 struct store_webhook **out, size_t *out_count, struct error *err)
{
    return store_webhook_list(all->store, team_id, arena, out, out_count, err);
}

int webhook_get(struct webhooks *all, struct str team_id, struct str id, struct arena *arena,
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

int webhook_delete(struct webhooks *all, struct str team_id, struct str id, struct error *err)
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

void webhook_prepare(const struct webhooks *all, struct webhook_sent *sent, struct str body,
                     struct arena *arena, struct sender_item *out)
{
    const struct store_webhook *webhook = &sent->delivery.webhook;
    struct signatures signatures;
    char delivery_id[UUID_SIZE];

    id_uuid(delivery_id);
    sign(webhook->secret, body, &signatures);
    (void)str_copy(webhook->id, sent->attempt.webhook_id, sizeof(sent->attempt.webhook_id));
    *out = (struct sender_item){
        .team_id = webhook->team_id,
        .receiver = webhook->id,
        .anywhere = all->private_ok || str_is(webhook->team_id, TEAM_DEFAULT_ID),
        .failures = sent->delivery.attempts,
        .url = webhook->url.p,
        .headers =
            {
                {STR("content-type"), STR("application/json")},
                {STR("e2b-webhook-id"), webhook->id},
                {STR("e2b-delivery-id"), arena_str(arena, str_of(delivery_id))},
                {STR("e2b-signature-version"), STR("v1")},
                {STR("e2b-signature"), arena_str(arena, str_of(signatures.plain))},
                {STR("x-quicksand-signature"), arena_str(arena, str_of(signatures.hmac))},
            },
        .header_count = 6,
        .body = arena_str(arena, body),
        .row = sent,
    };
}

static void prepare(const struct webhooks *all, struct webhook_sent *sent,
                    const struct store_event *event, struct arena *arena, struct sender_item *out)
{
    auto_json json_t *json = sandbox_event_json(event);
    auto_free char *body = json_text(json);
    struct webhook_attempt *attempt = &sent->attempt;

    attempt->number = sent->delivery.attempts + 1;
    (void)snprintf(attempt->type, sizeof(attempt->type), SANDBOX_EVENT_PREFIX "%.*s",
                   STR_ARG(event->type));
    (void)str_copy(event->sandbox_id, attempt->sandbox_id, sizeof(attempt->sandbox_id));
    webhook_prepare(all, sent, str_of(body), arena, out);
}

/* 1 = there, 0 = it is too old and was forgotten. */
static int load_event(struct webhooks *all, int64_t seq, struct arena *arena,
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

static int next(void *arg, struct str busy, struct arena *arena, struct sender_item *out,
                int64_t *out_at_us, struct error *err)
{
    struct webhooks *all = arg;
    struct webhook_sent *sent = arena_alloc(arena, sizeof(*sent));
    struct store_delivery *delivery = &sent->delivery;
    struct store_event event;
    int found;

    *sent = (struct webhook_sent){0};
    if (webhook_probe_next(all, busy, arena, out))
        return 1;
    if (store_delivery_next(all->store, busy, arena, delivery, err) < 0)
        return err->code == ERROR_NOT_FOUND ? 0 : -1;
    *out_at_us = delivery->next_at_us;
    if (delivery->next_at_us > clock_wall_us())
        return 0;
    found = load_event(all, delivery->event_seq, arena, &event, err);
    if (found < 0)
        return -1;
    if (found == 0 || !delivery->webhook.enabled) /* nobody wants it any more */
        return store_delivery_done(all->store, delivery->webhook.id, delivery->event_seq, err);
    prepare(all, sent, &event, arena, out);
    return 1;
}

static int over(void *arg, const struct sender_item *item, const struct error *why,
                int64_t again_at_us)
{
    struct webhooks *all = arg;
    const struct webhook_sent *sent = item->row;
    const struct store_delivery *delivery = &sent->delivery;
    struct str id = delivery->webhook.id;
    struct error err;
    int r;

    webhook_tried_note(all, &sent->attempt, why);
    if (sent->probe) {
        webhook_probe_over(all, sent, why);
        return 0;
    }
    if (why)
        log_warn("webhook", "id=%.*s event=%" PRId64 " attempt=%" PRId64 ": %s", STR_ARG(id),
                 delivery->event_seq, delivery->attempts + 1, why->message);
    r = why ? store_delivery_later(all->store, id, delivery->event_seq, again_at_us, &err)
            : store_delivery_done(all->store, id, delivery->event_seq, &err);
    if (r < 0)
        log_warn("webhook", "id=%.*s: %s, it comes again", STR_ARG(id), err.message);
    return r;
}

static bool unwanted(void *arg, const struct sender_item *item)
{
    const struct webhook_sent *sent = item->row;

    return sent->probe && !webhook_probe_wanted(arg, sent->probe);
}

/* After something happened. */
static void kick(void *arg)
{
    struct webhooks *all = arg;

    if (atomic_load(&all->any))
        sender_kick(all->sender);
}

static int check_ca(const char *file, struct error *err)
{
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

static struct webhooks *webhooks_new(const struct webhooks_config *config, bool any)
{
    struct webhooks *all = xcalloc(1, sizeof(*all));

    all->sandboxes = config->sandboxes;
    all->store = config->store;
    all->sender = config->sender;
    all->private_ok = config->private_ok;
    atomic_init(&all->any, any);
    if (config->ca_file && config->ca_file[0])
        all->ca_file = xstrdup(config->ca_file);
    webhook_tried_init(all);
    webhook_probe_init(all);
    return all;
}

int webhooks_open(const struct webhooks_config *config, struct webhooks **out, struct error *err)
{
    struct webhooks *all;
    bool any = false;

    if (check_ca(config->ca_file, err) < 0 || store_webhook_any(config->store, &any, err) < 0)
        return -1;
    *out = all = webhooks_new(config, any);
    sender_add(all->sender,
               &(struct sender_kind){.name = "webhook",
                                     .first_pause_us =
                                         (config->pause_ms > 0 ? config->pause_ms : WEBHOOK_MS) *
                                         INT64_C(1000),
                                     .timeout_ms = SEND_MS,
                                     .reach = FETCH_DIRECT,
                                     .ca_file = all->ca_file,
                                     .next = next,
                                     .over = over,
                                     .unwanted = unwanted,
                                     .arg = all});
    sandboxes_watch(all->sandboxes, kick, all);
    return 0;
}

void webhooks_close(struct webhooks *all)
{
    if (!all)
        return;
    sandboxes_unwatch(all->sandboxes, all);
    sender_remove(all->sender, all);
    webhook_probe_done(all);
    webhook_tried_done(all);
    free(all->ca_file);
    free(all);
}
