/* Keys of session tickets: made here, never stored, replaced every hour. A ticket can be used as long as its key
 * is one of the last three; so whoever takes the memory of a server reads no session that is older than that. */
#include <openssl/core_names.h>
#include <openssl/rand.h>

#include "base/clock.h"
#include "protocol/tls/tls_internal.h"

enum { KEY_MS = 3600 * 1000 };

void tls_tickets_init(struct tls_tickets *tickets)
{
    (void)pthread_mutex_init(&tickets->lock, NULL);
}

void tls_tickets_done(struct tls_tickets *tickets)
{
    OPENSSL_cleanse(tickets->keys, sizeof(tickets->keys));
    (void)pthread_mutex_destroy(&tickets->lock);
}

static bool rotate(struct tls_tickets *tickets, int64_t now)
{
    struct tls_ticket_key key = {.born_ms = now};

    if (RAND_bytes(key.name, sizeof(key.name)) != 1 ||
        RAND_bytes(key.cipher, sizeof(key.cipher)) != 1 ||
        RAND_bytes(key.mac, sizeof(key.mac)) != 1)
        return false;
    memmove(tickets->keys + 1, tickets->keys, sizeof(key) * (TLS_TICKET_KEYS - 1));
    tickets->keys[0] = key;
    OPENSSL_cleanse(&key, sizeof(key));
    return true;
}

static bool newest(struct tls_tickets *tickets, struct tls_ticket_key *out)
{
    int64_t now = clock_mono_ms();
    bool ok = true;

    (void)pthread_mutex_lock(&tickets->lock);
    if (!tickets->keys[0].born_ms || now - tickets->keys[0].born_ms > KEY_MS)
        ok = rotate(tickets, now);
    *out = tickets->keys[0];
    (void)pthread_mutex_unlock(&tickets->lock);
    return ok;
}

static bool named(struct tls_tickets *tickets, const unsigned char *name,
                  struct tls_ticket_key *out)
{
    int64_t now = clock_mono_ms();
    bool found = false;

    (void)pthread_mutex_lock(&tickets->lock);
    for (size_t i = 0; i < TLS_TICKET_KEYS && !found; i++) {
        const struct tls_ticket_key *key = &tickets->keys[i];

        found = key->born_ms && now - key->born_ms <= (int64_t)KEY_MS * TLS_TICKET_KEYS &&
                memcmp(key->name, name, sizeof(key->name)) == 0;
        if (found)
            *out = *key;
    }
    (void)pthread_mutex_unlock(&tickets->lock);
    return found;
}

static bool set_mac(EVP_MAC_CTX *mac, struct tls_ticket_key *key)
{
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof(key->mac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };

    return EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* 1: the key is there, 2: there, and the client is to get a newer ticket, 0: a full handshake, -1: broken. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int seals)
{
    struct tls_tickets *tickets = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct tls_ticket_key key;
    int result = -1;

    if (seals && newest(tickets, &key) && RAND_bytes(iv, EVP_MAX_IV_LENGTH) == 1 &&
        EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv) == 1 &&
        set_mac(mac, &key)) {
        memcpy(name, key.name, sizeof(key.name));
        result = 1;
    } else if (!seals && !named(tickets, name, &key)) {
        result = 0;
    } else if (!seals && set_mac(mac, &key) &&
               EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv) == 1) {
        /* Of TLS 1.3 clients use each ticket once. */
        result =
            SSL_version(ssl) == TLS1_3_VERSION || clock_mono_ms() - key.born_ms > KEY_MS ? 2 : 1;
    }
    OPENSSL_cleanse(&key, sizeof(key));
    return result;
}

void tls_tickets_use(struct tls_tickets *tickets, SSL_CTX *ssl_ctx)
{
    (void)SSL_CTX_set_app_data(ssl_ctx, tickets);
    (void)SSL_CTX_set_session_cache_mode(ssl_ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(ssl_ctx, 1);
    (void)SSL_CTX_set_tlsext_ticket_key_evp_cb(ssl_ctx, on_ticket);
}
