/* How it works
 *
 * Each request but the first is signed and carries a number that the authority gave with an earlier answer (a nonce);
 * one that it does not like is tried again with the one it gives instead. An order has a list of authorizations, one for
 * each name, each with challenges of several types: one of ours is shown, the authority told to look, and asked until
 * it has. Then the order is finalized with a request for a certificate, and asked about until that is there. */
#include "extra/acme/acme.h"

#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/encode.h"
#include "extra/acme/acme_jws.h"
#include "protocol/fetch/fetch.h"
#include "protocol/json/json_out.h"
#include "protocol/json/json_shape.h"
#include "protocol/tls/tls_make.h"

enum {
    TEXT_MAX = 1024, /* of a nonce, of a URL */
    ANSWER_MAX = 256 * 1024,
    CALL_MS = 30 * 1000,
    NONCE_TRIES = 4,
    WAIT_MS = 180 * 1000, /* for a challenge to be looked at, for a certificate to be made */
    PAUSE_MIN_MS = 250,
    PAUSE_MAX_MS = 5000,
};

struct session {
    const struct acme_config *config;
    struct fetch *fetch;
    struct acme_key *key;
    struct arena arena;
    char nonce[TEXT_MAX], location[TEXT_MAX]; /* of the last answer */
    char account[TEXT_MAX];
    struct str new_nonce, new_account, new_order;
};

static bool is_token(struct str text)
{
    return base64url_is(text) && text.len < 256;
}

static void on_header(void *arg, struct str name, struct str value)
{
    struct session *session = arg;

    if (str_eq_nocase(name, STR("replay-nonce")) && is_token(value))
        (void)str_copy(value, session->nonce, sizeof(session->nonce));
    else if (str_eq_nocase(name, STR("location")))
        (void)str_copy(value, session->location, sizeof(session->location));
}

static int call(struct session *session, const char *method, const char *url, struct str body,
                struct fetch_response *out, struct error *err)
{
    struct pair type = {STR("Content-Type"), STR("application/jose+json")};
    struct fetch_request request = {
        .method = method,
        .url = url,
        .headers = &type,
        .header_count = body.len ? 1 : 0,
        .body = body,
        .timeout_ms = CALL_MS,
        .response_max = ANSWER_MAX,
        .ca_file = session->config->ca_file,
        .on_header = on_header,
        .header_arg = session,
    };

    if (!fetch_url_ok(url))
        return error_set(err, ERROR_INVALID, "'%.200s' is no address", url);
    session->location[0] = '\0';
    return fetch_call(session->fetch, &request, out, err);
}

/* What the authority says about a failure. */
static int refused(const struct fetch_response *response, struct error *err)
{
    auto_json json_t *problem = NULL;
    struct error ignored;
    struct str detail = STR_NONE, type = STR_NONE;

    if (json_parse(buf_str(&response->body), &problem, &ignored) == 0) {
        detail = json_get_str(problem, "detail");
        type = json_get_str(problem, "type");
    }
    return error_set(err, ERROR_FORBIDDEN, "the authority answers %d: %.*s (%.*s)",
                     response->status, STR_ARG(detail), STR_ARG(type));
}

static bool is_bad_nonce(const struct fetch_response *response)
{
    return response->status == 400 && str_find_str(buf_str(&response->body), STR(":badNonce")) >= 0;
}

static int first_nonce(struct session *session, struct error *err)
{
    auto_response struct fetch_response response = {0};

    if (session->nonce[0])
        return 0;
    if (call(session, "HEAD", session->new_nonce.p, STR(""), &response, err) < 0)
        return -1;
    return session->nonce[0] ? 0
                             : error_set(err, ERROR_UNAVAILABLE, "the authority gives no nonce");
}

/* payload: JSON; "" only reads. */
static int post(struct session *session, const char *url, struct str payload,
                struct fetch_response *out, struct error *err)
{
    for (int i = 0; i < NONCE_TRIES; i++) {
        char nonce[TEXT_MAX];
        struct str body;

        if (first_nonce(session, err) < 0)
            return -1;
        memcpy(nonce, session->nonce, sizeof(nonce));
        session->nonce[0] = '\0'; /* each is good for one request */
        fetch_response_done(out);
        *out = (struct fetch_response){0};
        if (acme_jws(session->key, &session->arena, session->account[0] ? session->account : NULL,
                     nonce, url, payload, &body, err) < 0 ||
            call(session, "POST", url, body, out, err) < 0)
            return -1;
        if (out->status < 400)
            return 0;
        if (!is_bad_nonce(out))
            break;
    }
    return refused(out, err);
}

static void free_tree(void *tree)
{
    json_decref(tree);
}

/* The same, for an answer in JSON, which lives as long as the session. */
static int ask(struct session *session, const char *url, struct str payload, json_t **out,
               struct error *err)
{
    auto_response struct fetch_response response = {0};

    if (post(session, url, payload, &response, err) < 0 ||
        json_parse(buf_str(&response.body), out, err) < 0)
        return -1;
    arena_defer(&session->arena, free_tree, *out);
    return 0;
}

static int get_url(struct session *session, const json_t *object, const char *name, struct str *out,
                   struct error *err)
{
    struct str text = json_get_str(object, name);

    if (!text.len || text.len >= TEXT_MAX)
        return error_set(err, ERROR_UNAVAILABLE, "the authority's answer has no '%s'", name);
    *out = arena_str(&session->arena, text);
    return fetch_url_ok(out->p) ? 0 : error_set(err, ERROR_UNAVAILABLE, "'%s' is no address", name);
}

static int read_directory(struct session *session, struct error *err)
{
    auto_response struct fetch_response response = {0};
    auto_json json_t *tree = NULL;

    if (call(session, "GET", session->config->directory, STR(""), &response, err) < 0)
        return -1;
    if (response.status != 200)
        return refused(&response, err);
    if (json_parse(buf_str(&response.body), &tree, err) < 0 ||
        get_url(session, tree, "newNonce", &session->new_nonce, err) < 0 ||
        get_url(session, tree, "newAccount", &session->new_account, err) < 0)
        return -1;
    return get_url(session, tree, "newOrder", &session->new_order, err);
}

/* The one of this key: made, or found again. */
static int open_account(struct session *session, struct error *err)
{
    auto_json json_t *wanted = json_pack("{s:b}", "termsOfServiceAgreed", 1);
    auto_free char *text = NULL;
    json_t *account;

    if (session->config->email)
        (void)json_object_set_new(
            wanted, "contact",
            json_pack("[o]", json_str(str_of(arena_printf(&session->arena, "mailto:%s",
                                                          session->config->email)))));
    text = json_text(wanted);
    if (ask(session, session->new_account.p, str_of(text), &account, err) < 0)
        return error_prefix(err, "account");
    if (!session->location[0] || !fetch_url_ok(session->location))
        return error_set(err, ERROR_UNAVAILABLE, "the authority does not name the account");
    memcpy(session->account, session->location, sizeof(session->account));
    return 0;
}

/* ---- waiting ---- */

static void pause_ms(int64_t ms)
{
    struct timespec span = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&span, NULL);
}

/* Why a challenge failed, as the authority says. */
static struct str reason_of(const json_t *object)
{
    const json_t *challenge, *list = json_object_get(object, "challenges");
    struct str own = json_get_str(json_object_get(object, "error"), "detail");
    size_t i;

    json_array_foreach (list, i, challenge) {
        struct str detail = json_get_str(json_object_get(challenge, "error"), "detail");

        if (detail.len)
            return detail;
    }
    return own.len ? own : STR("no reason given");
}

/* Asks until its status is `done`, as long as it may still become so. */
static int wait_for(struct session *session, const char *url, const char *done, json_t **out,
                    struct error *err)
{
    int64_t end = clock_mono_ms() + WAIT_MS, wait = PAUSE_MIN_MS;

    for (;;) {
        struct str status;

        if (ask(session, url, STR(""), out, err) < 0)
            return -1;
        status = json_get_str(*out, "status");
        if (str_is(status, done))
            return 0;
        if (!str_is(status, "pending") && !str_is(status, "processing") && !str_is(status, "ready"))
            return error_set(err, ERROR_FORBIDDEN, "the authority says '%.*s': %.*s",
                             STR_ARG(status), STR_ARG(reason_of(*out)));
        if (clock_mono_ms() > end)
            return error_set(err, ERROR_TIMEOUT, "still '%.*s' after %d s", STR_ARG(status),
                             WAIT_MS / 1000);
        pause_ms(wait);
        wait = wait * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : wait * 2;
    }
}

/* ---- a name ---- */

static const json_t *find_challenge(const json_t *authorization, const char *type)
{
    const json_t *challenge, *list = json_object_get(authorization, "challenges");
    size_t i;

    json_array_foreach (list, i, challenge)
        if (str_is(json_get_str(challenge, "type"), type))
            return challenge;
    return NULL;
}

static int describe(struct session *session, const json_t *authorization, const json_t *challenge,
                    struct acme_challenge *out, struct error *err)
{
    struct str domain = json_get_str(json_object_get(authorization, "identifier"), "value");
    struct str token = json_get_str(challenge, "token");
    struct str print = acme_key_thumbprint(session->key, &session->arena), value;

    if (!is_token(token) || !domain.len || domain.len > 253)
        return error_set(err, ERROR_UNAVAILABLE, "the authority's challenge makes no sense");
    value = str_of(arena_printf(&session->arena, "%.*s.%.*s", STR_ARG(token), STR_ARG(print)));
    out->domain = arena_str(&session->arena, domain).p;
    out->token = arena_str(&session->arena, token).p;
    out->value = session->config->dns ? acme_digest(&session->arena, value).p : value.p;
    return 0;
}

static int authorize(struct session *session, const char *url, struct error *err)
{
    const struct acme_config *config = session->config;
    const char *type = config->dns ? "dns-01" : "http-01";
    const json_t *challenge;
    struct acme_challenge shown;
    struct str challenge_url;
    json_t *tree, *told;
    int r;

    if (ask(session, url, STR(""), &tree, err) < 0)
        return -1;
    if (str_is(json_get_str(tree, "status"), "valid"))
        return 0; /* from not long ago */
    challenge = find_challenge(tree, type);
    if (!challenge)
        return error_set(err, ERROR_UNSUPPORTED,
                         "the authority wants no challenge of type %s; a "
                         "wildcard needs one in DNS",
                         type);
    if (describe(session, tree, challenge, &shown, err) < 0 ||
        get_url(session, challenge, "url", &challenge_url, err) < 0 ||
        config->show(config->arg, &shown, err) < 0)
        return -1;
    r = ask(session, challenge_url.p, STR("{}"), &told, err);
    if (r == 0)
        r = wait_for(session, url, "valid", &told, err);
    config->hide(config->arg, &shown);
    return r < 0 ? error_prefix(err, "%s", shown.domain) : 0;
}

/* ---- the order ---- */

static char *order_text(const struct acme_config *config)
{
    auto_json json_t *order = json_pack("{s:[]}", "identifiers");
    json_t *list = json_object_get(order, "identifiers");

    for (size_t i = 0; i < config->name_count; i++)
        (void)json_array_append_new(list, json_pack("{s:s,s:o}", "type", "dns", "value",
                                                    json_str(str_of(config->names[i]))));
    return json_text(order);
}

static int finalize(struct session *session, const char *url, struct buf *out_key,
                    struct error *err)
{
    const struct acme_config *config = session->config;
    auto_buf struct buf der = {0}, body = {0};
    json_t *order;

    if (tls_make_request(config->names, config->name_count, out_key, &der, err) < 0)
        return -1;
    buf_init(&body, SIZE_MAX);
    json_out_open(&body, NULL, '{');
    json_out_str(&body, "csr", acme_base64(&session->arena, buf_str(&der)));
    json_out_close(&body, "}");
    return ask(session, url, buf_str(&body), &order, err);
}

static int take_certificate(struct session *session, const char *url, struct buf *out,
                            struct error *err)
{
    auto_response struct fetch_response response = {0};

    if (post(session, url, STR(""), &response, err) < 0)
        return -1;
    buf_init(out, ANSWER_MAX);
    (void)buf_add_str(out, buf_str(&response.body));
    return 0;
}

static int obtain(struct session *session, struct buf *out_chain, struct buf *out_key,
                  struct error *err)
{
    auto_free char *wanted = order_text(session->config);
    struct str order_url, finalize_url, certificate_url;
    json_t *order, *url;
    size_t i;

    if (read_directory(session, err) < 0 || open_account(session, err) < 0 ||
        ask(session, session->new_order.p, str_of(wanted), &order, err) < 0)
        return -1;
    order_url = arena_str(&session->arena, str_of(session->location));
    if (!order_url.len)
        return error_set(err, ERROR_UNAVAILABLE, "the authority does not name the order");
    if (get_url(session, order, "finalize", &finalize_url, err) < 0)
        return -1;
    json_array_foreach (json_object_get(order, "authorizations"), i, url) {
        const char *text = json_string_value(url);

        if (!text || authorize(session, text, err) < 0)
            return text ? -1 : error_set(err, ERROR_UNAVAILABLE, "the order makes no sense");
    }
    if (finalize(session, finalize_url.p, out_key, err) < 0 ||
        wait_for(session, order_url.p, "valid", &order, err) < 0 ||
        get_url(session, order, "certificate", &certificate_url, err) < 0)
        return -1;
    return take_certificate(session, certificate_url.p, out_chain, err);
}

int acme_obtain(const struct acme_config *config, struct buf *out_chain, struct buf *out_key,
                struct error *err)
{
    struct session session = {.config = config};
    int r;

    if (acme_key_parse(config->account_key, &session.key, err) < 0)
        return -1;
    session.fetch = fetch_new();
    r = obtain(&session, out_chain, out_key, err);
    fetch_free(session.fetch);
    acme_key_free(session.key);
    arena_done(&session.arena);
    return r;
}

int acme_make_key(struct buf *out, struct error *err)
{
    auto_buf struct buf unused = {0};
    const char *name = "account";

    return tls_make_request(&name, 1, out, &unused, err);
}
