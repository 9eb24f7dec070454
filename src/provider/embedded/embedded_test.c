#include "provider/embedded/embedded.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "domain/sandbox/sandbox_creates.h"
#include "domain/sandbox/test/sandbox_test_env.h"
#include "protocol/fetch/fetch.h"
#include "protocol/fetch/test/fetch_rig.h"
#include "protocol/json/json_shape.h"

struct here {
    struct env env;
    struct provider_embedded engine;
    struct fetch *fetch;
    struct provider *provider;
    struct arena arena;
};

static int find_socket(void *arg, struct str id, char *out, size_t size, struct error *err)
{
    struct here *here = arg;
    struct route route;

    if (!routes_find(here->env.routes, id, &route) || route.state != ROUTE_RUNNING) {
        (void)error_set(err, ERROR_CONFLICT, "it is paused");
        err->errnum = EHOSTDOWN;
        return -1;
    }
    CHECK(str_copy(STR("embedded_test.sock"), out, size));
    return 0;
}

static void here_open(struct here *here, size_t creates)
{
    env_open(&here->env, 0);
    here->arena = (struct arena){0};
    here->fetch = fetch_new();
    here->engine = (struct provider_embedded){.open = provider_embedded_open,
                                              .sandboxes = here->env.all,
                                              .creates = sandbox_creates_new(creates),
                                              .arg = here,
                                              .envd_socket = find_socket,
                                              .proxy_url = "http://127.0.0.1:3000"};
    OK(provider_new(&(struct provider_config){.name = "here",
                                              .type = "e2b",
                                              .api_url = "embedded",
                                              .domain = "box.test",
                                              .fetch = here->fetch,
                                              .embedded = &here->engine},
                    &here->provider, &err));
}

static void here_close(struct here *here)
{
    provider_free(here->provider);
    fetch_free(here->fetch);
    sandbox_creates_free(here->engine.creates);
    arena_done(&here->arena);
    env_close(&here->env);
}

#define auto_here __attribute__((cleanup(here_close)))

static struct provider_ref made(struct here *here, const struct provider_spec *spec,
                                struct provider_sandbox *out)
{
    OK(provider_create(here->provider, spec, &here->arena, out, &err));
    return (struct provider_ref){.team_id = TEAM, .id = out->id, .token = out->token};
}

TEST(embedded_machine)
{
    const struct pair label = {STR("app"), STR("x")}, variable = {STR("A"), STR("b")};
    const struct provider_spec spec = {.team_id = TEAM,
                                       .labels = &label,
                                       .label_count = 1,
                                       .env = &variable,
                                       .env_count = 1,
                                       .egress = EGRESS_DENY_ALL,
                                       .mem_mb = 128};
    struct provider_sandbox machine, again, *found;
    struct provider_address address;
    struct provider_ref ref;
    char id[ID_SIZE], sent[1024];
    auto_here struct here here;
    struct box_spec box;
    struct str snapshot;
    size_t count;

    here_open(&here, 0);
    CHECK_INT(provider_caps(here.provider)->egress,
              EGRESS_ALLOW_ALL | EGRESS_DENY_ALL | EGRESS_RESTRICTED);
    CHECK(provider_caps(here.provider)->features & PROVIDER_JOB_STOP);
    OK(provider_check(here.provider, &err));
    ref = made(&here, &spec, &machine);
    CHECK(machine.token.len && machine.started_at_us && machine.label_count == 1);
    CHECK_STR(machine.image, "base");
    CHECK(str_copy(machine.id, id, sizeof(id)) && engine_fake_spec(here.env.engine, id, &box));
    CHECK(box.network.mode == NETWORK_NONE && box.limits.mem_bytes == 128 << 20);
    engine_fake_last_request(here.env.engine, sent, sizeof(sent));
    CHECK(strstr(sent, "{\"A\":\"b\"}"));

    OK(provider_get(here.provider, &ref, &here.arena, &again, &err));
    CHECK(str_eq(again.token, machine.token) && again.state == PROVIDER_RUNNING);
    CHECK_STR(again.labels[0].value, "x");
    OK(provider_find(here.provider,
                     &(struct provider_query){.team_id = TEAM, .labels = &label, .label_count = 1},
                     &here.arena, &found, &count, &err));
    CHECK(count == 1 && str_eq(found[0].id, machine.id));
    OK(provider_find(here.provider,
                     &(struct provider_query){.team_id = OTHER, .labels = &label, .label_count = 1},
                     &here.arena, &found, &count, &err));
    CHECK_INT(count, 0);

    OK(provider_extend(here.provider, &ref, 1800, &err));
    OK(provider_extend(here.provider, &ref, 7200, &err));
    OK(provider_pause(here.provider, &ref, &err));
    OK(provider_pause(here.provider, &ref, &err)); /* paused already */
    OK(provider_get(here.provider, &ref, &here.arena, &again, &err));
    CHECK_INT(again.state, PROVIDER_PAUSED);
    OK(provider_connect(here.provider, &ref, 600, &here.arena, &again, &err));
    CHECK_INT(again.state, PROVIDER_RUNNING);
    OK(provider_snapshot(here.provider, &ref, "kept", &here.arena, &snapshot, &err));
    (void)made(&here, &(struct provider_spec){.team_id = TEAM, .snapshot = snapshot}, &again);
    OK(provider_snapshot_delete(here.provider, TEAM, snapshot, &err));
    OK(provider_snapshot_delete(here.provider, TEAM, snapshot, &err));
    OK(provider_address(here.provider, &ref, 80, &here.arena, &address, &err));
    CHECK(str_starts(address.url, STR("http://80-i")));
    CHECK(str_ends(address.url, STR(".box.test:3000")));
    CHECK_STR(address.local_url, "http://127.0.0.1:3000");
    CHECK_INT(address.header_count, 2);
    here.engine.https_domain = "box.test:8443";
    OK(provider_address(here.provider, &ref, 80, &here.arena, &address, &err));
    CHECK(str_starts(address.url, STR("https://80-i")));
    CHECK(str_ends(address.url, STR(".box.test:8443")));
    OK(provider_kill(here.provider, &ref, &err));
    OK(provider_kill(here.provider, &ref, &err)); /* gone already */
}

static enum provider_state state_of(struct here *here, const struct provider_ref *ref)
{
    struct provider_sandbox now = {0};

    OK(provider_get(here->provider, ref, &here->arena, &now, &err));
    return now.state;
}

TEST(a_machine_is_paused_at_the_end_of_its_time_once_it_stands_still)
{
    const struct provider_spec spec = {.team_id = TEAM, .ttl_s = 1, .pause_at_ttl = true};
    struct provider_sandbox machine;
    struct provider_ref ref;
    auto_here struct here here;

    here_open(&here, 0);
    ref = made(&here, &spec, &machine);
    engine_fake_hold_freezes(here.env.engine, true);
    WAIT_FOR(engine_fake_waiting(here.env.engine) == 1);
    CHECK_INT(state_of(&here, &ref), PROVIDER_PAUSING);
    engine_fake_hold_freezes(here.env.engine, false);
    WAIT_FOR(state_of(&here, &ref) == PROVIDER_PAUSED);
}

TEST(ports_are_those_the_engine_reports)
{
    const struct provider_spec spec = {.team_id = TEAM, .ttl_s = 60};
    struct provider_sandbox machine;
    struct provider_ports ports;
    struct provider_ref ref;
    auto_here struct here here;

    here_open(&here, 0);
    ref = made(&here, &spec, &machine);
    OK(provider_ports(here.provider, &ref, &ports, &err));
    CHECK_INT(ports.count, 2);
    CHECK(ports.at[0].number == 443 && !ports.at[0].loopback);
    CHECK(ports.at[1].number == 8080 && ports.at[1].loopback);
    OK(provider_kill(here.provider, &ref, &err));
    FAILS(provider_ports(here.provider, &ref, &ports, &err), ERROR_NOT_FOUND);
}

TEST(private_ports_are_told_with_their_token)
{
    struct sandbox_new request = {.team_id = TEAM,
                                  .template_name = STR("base"),
                                  .timeout_s = 60,
                                  .secure = true,
                                  .is_private = true};
    struct provider_address address;
    auto_here struct here here;
    struct sandbox_view view;
    struct provider_ref ref;

    here_open(&here, 0);
    OK(sandbox_create(here.env.all, &request, &here.arena, &view, &err));
    ref = (struct provider_ref){.team_id = TEAM, .id = view.id};
    OK(provider_address(here.provider, &ref, 80, &here.arena, &address, &err));
    CHECK_INT(address.header_count, 3);
    CHECK_STR(address.headers[2].name, "E2b-Traffic-Access-Token");
    CHECK(str_eq(address.headers[2].value, view.traffic_token));
    OK(sandbox_kill(here.env.all, TEAM, view.id, &err));
}

static void check_create(struct here *here, const struct provider_spec *spec, enum error_code code,
                         const char *words)
{
    struct provider_sandbox machine;
    struct error err = {0};

    CHECK_INT(provider_create(here->provider, spec, &here->arena, &machine, &err), -1);
    CHECK_INT(err.code, code);
    CHECK_STR(str_of(err.message), words);
}

TEST(embedded_keeps_the_errors_of_the_domain)
{
    const struct pair variable = {STR("A=B"), STR("c")};
    struct provider_sandbox machine;
    struct error refusal = {0};
    auto_here struct here here;
    struct provider_ref ref;

    here_open(&here, 1);
    check_create(&here, &(struct provider_spec){.team_id = TEAM, .image = STR("nope")},
                 ERROR_NOT_FOUND, "provider 'here': template 'nope' not found");
    check_create(&here, &(struct provider_spec){.team_id = TEAM, .ttl_s = 90000}, ERROR_INVALID,
                 "provider 'here': Timeout cannot be greater than 24 hours");
    check_create(
        &here, &(struct provider_spec){.team_id = TEAM, .env = &variable, .env_count = 1},
        ERROR_INVALID,
        "provider 'here': envVars: 'A=B' is not a valid name of an environment variable: it must "
        "have 1 to 1024 bytes, without '=' and control characters");
    OK(sandbox_creates_begin(here.engine.creates, OTHER, &err));
    check_create(&here, &(struct provider_spec){.team_id = TEAM}, ERROR_QUOTA,
                 "provider 'here': as many creates are under way as may be; try again in a second");
    sandbox_creates_end(here.engine.creates, OTHER);
    ref = made(&here, &(struct provider_spec){.team_id = TEAM}, &machine);
    (void)made(&here, &(struct provider_spec){.team_id = TEAM}, &machine); /* none is under way */
    ref.team_id = OTHER;
    CHECK_INT(provider_get(here.provider, &ref, &here.arena, &machine, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_NOT_FOUND);
    OK(provider_kill(here.provider, &ref, &err));
    CHECK_INT(engine_fake_boxes(here.env.engine), 2);
    ref.id = STR("../x");
    CHECK_INT(provider_get(here.provider, &ref, &here.arena, &machine, &refusal), -1);
    CHECK_INT(refusal.code, ERROR_INVALID);
}

static void answer(struct fetch_rig_exchange *exchange, void *arg)
{
    (void)snprintf(arg, 256, "%s %s", exchange->target,
                   fetch_rig_header(exchange, "X-Access-Token").p);
    fetch_rig_answer(exchange, 204, "", STR(""));
}

TEST(embedded_speaks_to_envd)
{
    char seen[256] = "", wanted[256];
    struct fetch_rig *rig = fetch_rig_new("embedded_test.sock", answer, seen);
    struct provider_sandbox machine;
    auto_here struct here here;
    struct error paused = {0};
    struct provider_ref ref;

    here_open(&here, 0);
    ref = made(&here, &(struct provider_spec){.team_id = TEAM}, &machine);
    (void)snprintf(wanted, sizeof(wanted), "/files?path=x %.*s", STR_ARG(machine.token));
    ref.token = STR_NONE; /* it is asked for */
    OK(provider_write(here.provider, &ref, "x", NULL, NULL, 0, &err));
    CHECK(str_starts(str_of(seen), str_of(wanted)));
    OK(provider_pause(here.provider, &ref, &err));
    CHECK_INT(provider_write(here.provider, &ref, "x", NULL, NULL, 0, &paused), -1);
    CHECK(paused.code == ERROR_CONFLICT && paused.errnum == EHOSTDOWN);
    fetch_rig_free(rig);
    (void)unlink("embedded_test.sock");
}

TEST(embedded_restricted)
{
    auto_json json_t *cidrs = json_pack("[s,s]", "1.2.3.4", "198.51.100.0/24"),
                     *bad = json_pack("[s]", "a b");
    struct provider_spec spec = {
        .team_id = TEAM, .egress = EGRESS_RESTRICTED, .allow_cidrs = cidrs};
    struct provider_sandbox machine;
    auto_here struct here here;
    struct box_spec box;
    char id[ID_SIZE];

    here_open(&here, 0);
    (void)made(&here, &spec, &machine);
    CHECK(str_copy(machine.id, id, sizeof(id)) && engine_fake_spec(here.env.engine, id, &box));
    CHECK_INT(box.network.mode, NETWORK_NONE);
    CHECK_INT(box.network.allow_count, 2);
    CHECK_INT(box.network.ranges[1].prefix, 24);
    spec.allow_cidrs = NULL;
    (void)made(&here, &spec, &machine);
    CHECK(str_copy(machine.id, id, sizeof(id)) && engine_fake_spec(here.env.engine, id, &box));
    CHECK(box.network.mode == NETWORK_NONE && !box.network.allow_count);
    spec.allow_domains = bad;
    check_create(&here, &spec, ERROR_INVALID,
                 "provider 'here': 'a b' in 'allowOut' is neither an address, a range of addresses "
                 "nor a domain");
}
