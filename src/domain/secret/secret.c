/* A sealed secret is the hex of: nonce (12 bytes), tag (16 bytes), ciphertext. */
#include "domain/secret/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/encode.h"
#include "base/fd.h"
#include "base/id.h"

#define KEY_FILE "secret.key"

enum { KEY_LEN = 32, NONCE_LEN = 12, TAG_LEN = 16, HEAD_LEN = NONCE_LEN + TAG_LEN };

struct secrets {
    unsigned char key[KEY_LEN];
};

static int read_key(int dir_fd, const char *directory, unsigned char key[KEY_LEN],
                    struct error *err)
{
    auto_close int fd = openat(dir_fd, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    unsigned char more;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set_errno(err, errno, "open %s/" KEY_FILE, directory);
    if (st.st_mode & 077)
        return error_set(err, ERROR_INTERNAL,
                         "%s/" KEY_FILE " can be read by others: give it mode 0600", directory);
    if (fd_read_full(fd, key, KEY_LEN) != KEY_LEN || fd_read_full(fd, &more, 1) != 0)
        return error_set(err, ERROR_INTERNAL,
                         "%s/" KEY_FILE " is damaged: bring it back from a copy, or remove it and "
                         "give the teams' secrets and registry passwords again",
                         directory);
    return 0;
}

static int make_key(int dir_fd, const char *directory, struct error *err)
{
    unsigned char key[KEY_LEN];
    int r;

    random_bytes(key, sizeof(key));
    r = fd_make_file_at(dir_fd, KEY_FILE, str_n(key, sizeof(key)));
    OPENSSL_cleanse(key, sizeof(key));
    return r < 0 ? error_set_errno(err, -r, "make %s/" KEY_FILE, directory) : 0;
}

int secrets_open(const char *directory, struct secrets **out, struct error *err)
{
    auto_close int dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_secrets struct secrets *secrets = xcalloc(1, sizeof(*secrets));

    if (dir_fd < 0)
        return error_set_errno(err, errno, "open %s", directory);
    if (faccessat(dir_fd, KEY_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
        (errno != ENOENT || make_key(dir_fd, directory, err) < 0))
        return err->code ? -1 : error_set_errno(err, errno, "look for %s/" KEY_FILE, directory);
    if (read_key(dir_fd, directory, secrets->key, err) < 0)
        return -1;
    *out = secrets;
    secrets = NULL;
    return 0;
}

void secrets_close(struct secrets *secrets)
{
    if (!secrets)
        return;
    OPENSSL_cleanse(secrets->key, sizeof(secrets->key));
    free(secrets);
}

static void derive(const struct secrets *secrets, const char *purpose, unsigned char out[KEY_LEN])
{
    unsigned len = KEY_LEN;

    (void)HMAC(EVP_sha256(), secrets->key, KEY_LEN, (const unsigned char *)purpose, strlen(purpose),
               out, &len);
}

/* The cipher with key, nonce and `about`; *out is for EVP_CIPHER_CTX_free(). */
static bool begin(const struct secrets *secrets, bool seal, const unsigned char *nonce,
                  struct str about, EVP_CIPHER_CTX **out)
{
    unsigned char key[KEY_LEN];
    int len;
    bool ok;

    derive(secrets, "seal", key);
    *out = EVP_CIPHER_CTX_new();
    ok = *out && EVP_CipherInit_ex(*out, EVP_aes_256_gcm(), NULL, key, nonce, seal) == 1 &&
         EVP_CipherUpdate(*out, NULL, &len, (const unsigned char *)about.p, (int)about.len) == 1;
    OPENSSL_cleanse(key, sizeof(key));
    return ok;
}

int secret_seal(const struct secrets *secrets, struct str about, struct str text,
                struct arena *arena, struct str *out, struct error *err)
{
    size_t size = HEAD_LEN + text.len;
    unsigned char *bytes = arena_alloc(arena, size);
    char *hex = arena_alloc(arena, 2 * size + 1);
    EVP_CIPHER_CTX *context = NULL;
    int len = 0, rest = 0;
    bool ok;

    if (text.len > SECRET_TEXT_MAX)
        return error_set(err, ERROR_LIMIT, "a secret has at most %d bytes", SECRET_TEXT_MAX);
    random_bytes(bytes, NONCE_LEN);
    ok = begin(secrets, true, bytes, about, &context) &&
         EVP_EncryptUpdate(context, bytes + HEAD_LEN, &len, (const unsigned char *)text.p,
                           (int)text.len) == 1 &&
         EVP_EncryptFinal_ex(context, bytes + HEAD_LEN + len, &rest) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, TAG_LEN, bytes + NONCE_LEN) == 1;
    EVP_CIPHER_CTX_free(context);
    if (!ok)
        return error_set(err, ERROR_INTERNAL, "a secret cannot be encrypted");
    hex_encode(hex, bytes, size);
    *out = str_n(hex, 2 * size);
    return 0;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool unhex(struct str hex, unsigned char *out)
{
    for (size_t i = 0; i + 1 < hex.len; i += 2) {
        int high = digit(hex.p[i]), low = digit(hex.p[i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i / 2] = (unsigned char)(high << 4 | low);
    }
    return hex.len % 2 == 0;
}

int secret_unseal(const struct secrets *secrets, struct str about, struct str sealed,
                  struct arena *arena, struct str *out, struct error *err)
{
    size_t size = sealed.len / 2, text_len = size < HEAD_LEN ? 0 : size - HEAD_LEN;
    unsigned char *bytes = arena_alloc(arena, size + 1);
    char *text = arena_alloc(arena, text_len + 1);
    EVP_CIPHER_CTX *context = NULL;
    int len = 0, rest = 0;
    bool ok;

    ok = size >= HEAD_LEN && text_len <= SECRET_TEXT_MAX && unhex(sealed, bytes) &&
         begin(secrets, false, bytes, about, &context) &&
         EVP_DecryptUpdate(context, (unsigned char *)text, &len, bytes + HEAD_LEN, (int)text_len) ==
             1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, TAG_LEN, bytes + NONCE_LEN) == 1 &&
         EVP_DecryptFinal_ex(context, (unsigned char *)text + len, &rest) == 1;
    EVP_CIPHER_CTX_free(context);
    if (!ok)
        return error_set(err, ERROR_INTERNAL,
                         "a stored secret cannot be decrypted: it was stored under another "
                         "" KEY_FILE "; give it again");
    *out = str_n(text, text_len);
    return 0;
}

void secret_sign(const struct secrets *secrets, const char *purpose, struct str text,
                 char out[SECRET_SIGNATURE_SIZE])
{
    unsigned char key[KEY_LEN], digest[SHA256_DIGEST_LENGTH];
    unsigned len = sizeof(digest);

    derive(secrets, purpose, key);
    (void)HMAC(EVP_sha256(), key, sizeof(key), (const unsigned char *)text.p, text.len, digest,
               &len);
    OPENSSL_cleanse(key, sizeof(key));
    hex_encode(out, digest, sizeof(digest));
}

bool secret_signed(const struct secrets *secrets, const char *purpose, struct str text,
                   struct str signature)
{
    char right[SECRET_SIGNATURE_SIZE];

    secret_sign(secrets, purpose, text, right);
    return signature.len == SECRET_SIGNATURE_SIZE - 1 &&
           CRYPTO_memcmp(right, signature.p, signature.len) == 0;
}
