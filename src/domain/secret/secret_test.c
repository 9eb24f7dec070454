#include "domain/secret/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"
#include "base/test.h"
#include "domain/secret/registry_login.h"
#include "store/core/store.h"
#include "store/platform/store_registry.h"

static char directory[32];

static struct secrets *open_secrets(void)
{
    struct secrets *secrets = NULL;

    if (!directory[0]) {
        (void)str_copy(STR("/tmp/secret-test-XXXXXX"), directory, sizeof(directory));
        CHECK(mkdtemp(directory) != NULL);
    }
    OK(secrets_open(directory, &secrets, &err));
    return secrets;
}

static void remove_directory(void)
{
    CHECK_INT(path_remove_tree(AT_FDCWD, directory), 0);
    directory[0] = '\0';
}

TEST(a_sealed_secret_comes_back_for_the_same_words_only)
{
    auto_secrets struct secrets *secrets = open_secrets(), *again = NULL;
    auto_arena struct arena arena = {0};
    struct str sealed, other, text;
    struct error refusal = {0};

    OK(secret_seal(secrets, STR("a"), STR("open sesame"), &arena, &sealed, &err));
    OK(secret_seal(secrets, STR("a"), STR("open sesame"), &arena, &other, &err));
    CHECK(!str_eq(sealed, other));
    CHECK(str_find_str(sealed, STR("sesame")) < 0);
    /* After the next start, too. */
    OK(secrets_open(directory, &again, &err));
    OK(secret_unseal(again, STR("a"), sealed, &arena, &text, &err));
    CHECK_STR(text, "open sesame");
    CHECK_INT(secret_unseal(again, STR("b"), sealed, &arena, &text, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_INTERNAL);
    remove_directory();
}

TEST(a_changed_secret_is_refused)
{
    auto_secrets struct secrets *secrets = open_secrets();
    auto_arena struct arena arena = {0};
    struct str sealed, text;
    struct error refusal = {0};
    char changed[128];

    OK(secret_seal(secrets, STR("a"), STR("x"), &arena, &sealed, &err));
    for (size_t i = 0; i < sealed.len; i++) {
        (void)str_copy(sealed, changed, sizeof(changed));
        changed[i] = changed[i] == '0' ? '1' : '0';
        CHECK_INT(secret_unseal(secrets, STR("a"), str_of(changed), &arena, &text, &refusal), -1);
    }
    CHECK_INT(secret_unseal(secrets, STR("a"), STR(""), &arena, &text, &refusal), -1);
    CHECK_INT(secret_unseal(secrets, STR("a"), STR("zz"), &arena, &text, &refusal), -1);
    CHECK_INT(
        secret_unseal(secrets, STR("a"), str_n(sealed.p, sealed.len - 1), &arena, &text, &refusal),
        -1);
    remove_directory();
}

TEST(the_key_is_for_the_server_alone)
{
    auto_secrets struct secrets *secrets = open_secrets(), *again = NULL;
    struct error refusal = {0};
    char path[64];
    struct stat st;

    (void)snprintf(path, sizeof(path), "%s/secret.key", directory);
    CHECK_INT(stat(path, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK_INT(st.st_size, 32);
    CHECK_INT(chmod(path, 0644), 0);
    CHECK_INT(secrets_open(directory, &again, &refusal), -1);
    CHECK(strstr(refusal.message, "mode 0600") != NULL);
    CHECK_INT(chmod(path, 0600), 0);
    CHECK_INT(truncate(path, 31), 0);
    CHECK_INT(secrets_open(directory, &again, &refusal), -1);
    CHECK(strstr(refusal.message, "is damaged") != NULL);
    remove_directory();
}

TEST(signatures_are_for_one_purpose_and_text)
{
    auto_secrets struct secrets *secrets = open_secrets();
    char signature[SECRET_SIGNATURE_SIZE];

    secret_sign(secrets, "upload", STR("a b"), signature);
    CHECK(secret_signed(secrets, "upload", STR("a b"), str_of(signature)));
    CHECK(!secret_signed(secrets, "other", STR("a b"), str_of(signature)));
    CHECK(!secret_signed(secrets, "upload", STR("a c"), str_of(signature)));
    CHECK(!secret_signed(secrets, "upload", STR("a b"), STR("")));
    signature[0] ^= 1;
    CHECK(!secret_signed(secrets, "upload", STR("a b"), str_of(signature)));
    remove_directory();
}

TEST(registry_passwords_are_stored_encrypted)
{
    auto_secrets struct secrets *secrets = open_secrets();
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct registry_login login = {STR("GHCR.io"), STR("me"), STR("open sesame")}, found;
    struct store_registry row;
    struct error refusal = {0};

    OK(store_open(":memory:", &store, &err));
    OK(registry_login_put(store, secrets, STR("team"), &login, &err));
    login.password = STR("another");
    OK(registry_login_put(store, secrets, STR("team"), &login, &err));
    OK(store_registry_find(store, STR("team"), STR("ghcr.io"), &arena, &row, &err));
    CHECK(str_find_str(row.secret, STR("another")) < 0);
    OK(registry_login_find(store, secrets, STR("team"), STR("ghcr.io"), &arena, &found, &err));
    CHECK_STR(found.username, "me");
    CHECK_STR(found.password, "another");
    CHECK_INT(
        registry_login_find(store, secrets, STR("else"), STR("ghcr.io"), &arena, &found, &refusal),
        -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    /* A row that somebody moved to another team. */
    row.team_id = STR("else");
    OK(store_registry_put(store, &row, 1, &err));
    CHECK_INT(
        registry_login_find(store, secrets, STR("else"), STR("ghcr.io"), &arena, &found, &refusal),
        -1);
    CHECK_INT(refusal.code, ERROR_INTERNAL);
    OK(registry_login_delete(store, STR("team"), STR("ghcr.io"), &err));
    CHECK_INT(registry_login_delete(store, STR("team"), STR("ghcr.io"), &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    remove_directory();
}

TEST(registries_have_one_name_and_a_number)
{
    static const struct {
        const char *given, *name; /* NULL = refused */
    } rows[] = {{"docker.io", "docker.io"},
                {"index.docker.io", "docker.io"},
                {" 127.0.0.1:5000 ", "127.0.0.1:5000"},
                {"[::1]:5000", "[::1]:5000"},
                {"", NULL},
                {"http://x", NULL},
                {"a/b", NULL},
                {"a b", NULL}};
    auto_store struct store *store = NULL;
    auto_arena struct arena arena = {0};
    struct store_registry row = {
        .team_id = STR("t"), .host = STR("a"), .username = STR("u"), .secret = STR("s")};
    struct error refusal = {0};
    struct str name;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int r = registry_host(str_of(rows[i].given), &arena, &name, &refusal);

        CHECK_INT(r, rows[i].name ? 0 : -1);
        if (r == 0)
            CHECK_STR(name, rows[i].name);
    }
    OK(store_open(":memory:", &store, &err));
    OK(store_registry_put(store, &row, 1, &err));
    OK(store_registry_put(store, &row, 1, &err));
    row.host = STR("b");
    CHECK_INT(store_registry_put(store, &row, 1, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_QUOTA);
}
