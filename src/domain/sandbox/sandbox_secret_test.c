/* Secrets in policies: what is stored, what the egress process gets, and what it gets when a secret changes. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/path.h"
#include "domain/network/egress_authority.h"
#include "domain/network/egress_link.h"
#include "domain/network/network_policy.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "domain/secret/secret.h"
#include "domain/secret/team_secret.h"
#include "protocol/json/json_shape.h"

/* In the place of the egress process: takes every line, and keeps the last of each kind. */
static struct peer {
    pthread_mutex_t lock;
    char set[4096], first[4096];
    const char *answer_to_authority;
} peer = {.lock = PTHREAD_MUTEX_INITIALIZER, .answer_to_authority = ""};

static void take(const char *line, int number, FILE *to)
{
    bool authority = strncmp(line, "{\"authority\"", 12) == 0;

    (void)pthread_mutex_lock(&peer.lock);
    if (number == 1)
        (void)str_copy(str_of(line), peer.first, sizeof(peer.first));
    if (strncmp(line, "{\"set\"", 6) == 0)
        (void)str_copy(str_of(line), peer.set, sizeof(peer.set));
    (void)pthread_mutex_unlock(&peer.lock);
    (void)fprintf(to, "{\"ok\":%d%s}\n", number, authority ? peer.answer_to_authority : "");
    (void)fflush(to);
}

static void *serve(void *arg)
{
    int listening = *(int *)arg, fd = accept(listening, NULL, NULL), number = 0;
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    char line[8192];

    while (fgets(line, sizeof(line), in))
        take(line, ++number, out);
    (void)fclose(in);
    (void)fclose(out);
    return NULL;
}

struct rig {
    struct env env;
    char directory[40];
    struct secrets *secrets;
    struct egress_authority *authority;
    struct egress_link *link;
    int listening;
    pthread_t thread;
    struct arena arena;
};

static void open_rig(struct rig *rig)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    env_open(&rig->env, 0);
    (void)str_copy(STR("/tmp/sandbox-secret-XXXXXX"), rig->directory, sizeof(rig->directory));
    CHECK(mkdtemp(rig->directory) != NULL);
    OK(secrets_open(rig->directory, &rig->secrets, &err));
    OK(egress_authority_open(rig->directory, &rig->authority, &err));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", rig->directory);
    rig->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(rig->listening, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_INT(listen(rig->listening, 1), 0);
    CHECK_INT(pthread_create(&rig->thread, NULL, serve, &rig->listening), 0);
    rig->link = egress_link_open(address.sun_path);
    egress_link_authority(rig->link, buf_str(&rig->authority->certificate),
                          buf_str(&rig->authority->key));
    rig->env.config.egress = rig->link;
    rig->env.config.secrets = rig->secrets;
    rig->env.config.authority = rig->authority;
    env_reopen(&rig->env);
    egress_link_start(rig->link);
}

static void close_rig(struct rig *rig)
{
    env_close(&rig->env);
    egress_link_close(rig->link);
    (void)pthread_join(rig->thread, NULL);
    (void)close(rig->listening);
    secrets_close(rig->secrets);
    egress_authority_close(rig->authority);
    arena_done(&rig->arena);
    CHECK_INT(path_remove_tree(AT_FDCWD, rig->directory), 0);
}

static void put_secret(struct rig *rig, const char *value, const char *host)
{
    const struct str hosts[] = {str_of(host)};
    const struct team_secret_words words = {.name = STR("key"),
                                            .value = str_of(value),
                                            .hosts = hosts,
                                            .host_count = host ? 1 : 0,
                                            .hosts_given = true};
    struct store_secret secret;
    struct error ignored = {0};

    if (team_secret_change(rig->env.store, rig->secrets, TEAM, STR("key"), &words, &rig->arena,
                           &secret, &ignored) < 0)
        OK(team_secret_create(rig->env.store, rig->secrets, TEAM, &words, &rig->arena, &secret,
                              &err));
    sandboxes_secret_changed(rig->env.all, TEAM, STR("key"));
}

static bool was_told(const char *text)
{
    bool told;

    (void)pthread_mutex_lock(&peer.lock);
    told = strstr(peer.set, text) != NULL;
    (void)pthread_mutex_unlock(&peer.lock);
    return told;
}

#define RULES                                                                             \
    "{\"denyOut\":[\"1.1.1.1\"],\"rules\":{\"api.example.com\":[{\"transform\":{"         \
    "\"headers\":{\"Authorization\":\"Bearer ${e2b.secrets.key}\"}}}]},\"egressProxy\":{" \
    "\"address\":\"p.example:1080\",\"username\":\"me\",\"password\":\"open sesame\"}}"

static int create(struct rig *rig, char id[ID_SIZE], struct error *err)
{
    struct sandbox_new request = {
        .team_id = TEAM, .template_name = STR("base"), .timeout_s = 60, .internet = true};
    struct network_policy policy;
    auto_json json_t *tree = NULL;
    struct sandbox_view view;

    if (json_parse(STR(RULES), &tree, err) < 0 ||
        network_policy_read(tree, true, &rig->arena, &policy, err) < 0)
        return -1;
    request.network = &policy;
    if (sandbox_create(rig->env.all, &request, &rig->arena, &view, err) < 0)
        return -1;
    CHECK(str_copy(view.id, id, ID_SIZE));
    CHECK(str_find_str(view.network, STR("sesame")) < 0);
    CHECK(str_find_str(view.network, STR("${e2b.secrets.key}")) >= 0);
    return 0;
}

TEST(secrets_are_filled_in_for_the_egress_process_alone)
{
    struct store_sandbox row;
    struct rig rig = {0};
    char id[ID_SIZE];

    open_rig(&rig);
    FAILS(create(&rig, id, &err), ERROR_INVALID, "does not exist: 'key'");
    put_secret(&rig, "one", "other.example");
    FAILS(create(&rig, id, &err), ERROR_INVALID, "is not for 'api.example.com'");
    put_secret(&rig, "one", NULL);
    OK(create(&rig, id, &err));
    CHECK(strncmp(peer.first, "{\"authority\":{\"certificate\":\"-----BEGIN", 39) == 0);
    CHECK(was_told("\"Authorization\":\"Bearer one\"") && was_told("open sesame"));
    OK(store_sandbox_get(rig.env.store, str_of(id), &rig.arena, &row, &err));
    CHECK(str_find_str(row.network, STR("Bearer ${e2b.secrets.key}")) >= 0);
    CHECK(str_find_str(row.network, STR("sesame")) < 0);
    /* Another value, other hosts, none at all. */
    put_secret(&rig, "two", NULL);
    CHECK(was_told("\"Authorization\":\"Bearer two\""));
    put_secret(&rig, "three", "other.example");
    CHECK(was_told("\"Authorization\":null"));
    put_secret(&rig, "four", "*.example.com");
    CHECK(was_told("\"Authorization\":\"Bearer four\""));
    OK(store_secret_find(rig.env.store, TEAM, STR("key"), &rig.arena, &(struct store_secret){0},
                         &err));
    OK(team_secret_delete(rig.env.store, TEAM, STR("key"), &rig.arena, &(struct store_secret){0},
                          &err));
    sandboxes_secret_changed(rig.env.all, TEAM, STR("key"));
    CHECK(was_told("\"Authorization\":null"));
    close_rig(&rig);
}

TEST(rules_that_nobody_would_follow_are_refused)
{
    struct rig rig = {0};
    char id[ID_SIZE];

    peer.answer_to_authority = ",\"error\":\"unknown record\"";
    open_rig(&rig);
    put_secret(&rig, "one", NULL);
    FAILS(create(&rig, id, &err), ERROR_UNSUPPORTED, "not supported");
    close_rig(&rig);
    peer.answer_to_authority = "";
}
