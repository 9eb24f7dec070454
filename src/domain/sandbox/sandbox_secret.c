/* Secrets and policies of sandboxes: what of a policy may be stored, and what the egress process gets of it. A secret that changes
 * is told to it for every box whose rules name it.
 *
 * A secret may change while a policy with it is on its way. Who fills one in looks at a counter before and after: whoever
 * changes a secret counts first and then looks for the sandboxes in the store, so one of the two sees the other. */
#include <string.h>

#include "base/log.h"
#include "domain/network/egress_authority.h"
#include "domain/network/egress_link.h"
#include "domain/network/network_policy.h"
#include "domain/network/network_secret.h"
#include "domain/sandbox/sandbox_internal.h"
#include "domain/sandbox/sandbox_network.h"
#include "domain/secret/secret.h"
#include "domain/secret/team_secret.h"

struct filling {
    struct sandboxes *all;
    struct str team_id;
};

/* What arenas hold of it is overwritten: they only free. */
static void wipe(struct str text)
{
    explicit_bzero((char *)(uintptr_t)text.p, text.len);
}

static int fill_secret(void *arg, struct str name, struct str host, struct buf *out,
                       struct error *err)
{
    const struct filling *filling = arg;
    auto_arena struct arena arena = {0};
    struct store_secret secret;
    struct str value;

    if (team_secret_find(filling->all->store, filling->team_id, name, &arena, &secret, err) < 0)
        return err->code == ERROR_NOT_FOUND
                   ? error_set(err, ERROR_NOT_FOUND,
                               "the rule for '%.*s' names a secret that does not exist: '%.*s'",
                               STR_ARG(host), STR_ARG(name))
                   : -1;
    if (!team_secret_is_for(&secret, host))
        return error_set(err, ERROR_FORBIDDEN,
                         "the secret '%.*s' is not for '%.*s': its hosts are others", STR_ARG(name),
                         STR_ARG(host));
    if (team_secret_value(filling->all->secrets, &secret, &arena, &value, err) < 0)
        return error_prefix(err, "the secret '%.*s'", STR_ARG(name));
    (void)buf_add_str(out, value);
    wipe(value);
    return 0;
}

/* Sealed so that it is worth nothing in the row of another team. */
static struct str about(struct str team_id, struct arena *arena)
{
    return str_of(arena_printf(arena, "egress proxy %.*s", STR_ARG(team_id)));
}

static int unseal(void *arg, struct str sealed, struct buf *out, struct error *err)
{
    const struct filling *filling = arg;
    auto_arena struct arena arena = {0};
    struct str text;

    if (secret_unseal(filling->all->secrets, about(filling->team_id, &arena), sealed, &arena, &text,
                      err) < 0)
        return -1;
    (void)buf_add_str(out, text);
    wipe(text);
    return 0;
}

static int seal(void *arg, struct str password, struct arena *arena, struct str *out,
                struct error *err)
{
    const struct filling *filling = arg;

    return secret_seal(filling->all->secrets, about(filling->team_id, arena), password, arena, out,
                       err);
}

static int fill(struct sandboxes *all, struct str team_id, struct str policy, bool strict,
                struct buf *out, struct error *err)
{
    struct filling filling = {all, team_id};
    const struct network_filler filler = {
        .arg = &filling, .secret = fill_secret, .unseal = unseal, .strict = strict};

    return network_fill(policy, &filler, out, err);
}

int secret_policy(struct sandboxes *all, struct str team_id, const struct network_policy *policy,
                  struct arena *arena, struct str *out, struct error *err)
{
    struct filling filling = {all, team_id};
    auto_wiped struct buf filled = {0};

    *out = policy->text;
    if (!policy->has_rules && !policy->has_proxy)
        return 0;
    if (!all->secrets || !all->authority)
        return error_set(err, ERROR_UNAVAILABLE,
                         "this server has no authority or key file for rules; its log says why");
    if (egress_link_signs(all->egress, err) < 0)
        return -1;
    if (network_policy_seal(policy, seal, &filling, arena, out, err) < 0)
        return -1;
    if (fill(all, team_id, *out, true, &filled, err) == 0)
        return 0;
    if (err->code == ERROR_NOT_FOUND || err->code == ERROR_FORBIDDEN)
        err->code = ERROR_INVALID;
    return -1;
}

/* group: NULL = the one that it has. */
static int set(struct sandboxes *all, const char *id, struct str text, const uint32_t *group,
               struct error *err)
{
    return group ? egress_link_set(all->egress, str_of(id), text, *group, err)
                 : egress_link_renew(all->egress, str_of(id), text, err);
}

static int tell(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                const uint32_t *group, struct error *err)
{
    uint64_t seen;
    int r;

    if (!network_fill_needed(policy))
        return set(all, id, policy, group, err);
    do {
        auto_wiped struct buf filled = {0};

        seen = secret_seen(all);
        r = fill(all, team_id, policy, false, &filled, err);
        if (r == 0)
            r = set(all, id, buf_str(&filled), group, err);
    } while (r == 0 && secret_seen(all) != seen);
    return r;
}

int secret_tell(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                uint32_t group, struct error *err)
{
    return tell(all, team_id, id, policy, &group, err);
}

uint64_t secret_seen(struct sandboxes *all)
{
    return atomic_load(&all->secret_changes);
}

void secret_tell_again(struct sandboxes *all, struct str team_id, const char *id, struct str policy,
                       uint64_t seen)
{
    struct error err = {0};

    if (all->egress && secret_seen(all) != seen && network_fill_needed(policy) &&
        tell(all, team_id, id, policy, NULL, &err) < 0)
        log_warn("sandbox", "id=%s: %s", id, err.message);
}

void sandboxes_secret_changed(struct sandboxes *all, struct str team_id, struct str name)
{
    auto_arena struct arena arena = {0};
    struct store_sandbox_policy *rows = NULL;
    struct str placeholder = str_of(
        arena_printf(&arena, NETWORK_SECRET_OPEN "%.*s" NETWORK_SECRET_CLOSE, STR_ARG(name)));
    struct error err = {0};
    size_t count = 0;

    if (!all->egress)
        return;
    atomic_fetch_add(&all->secret_changes, 1);
    if (store_sandbox_policies(all->store, team_id, &arena, &rows, &count, &err) < 0)
        log_error("sandbox", "%s; a secret that changed is not told to the egress process",
                  err.message);
    for (size_t i = 0; i < count; i++) {
        char id[ID_SIZE];

        /* Without a box there is nothing to tell: it is when it gets one. */
        if (str_find_str(rows[i].network, placeholder) >= 0 &&
            str_copy(rows[i].id, id, sizeof(id)) &&
            tell(all, team_id, id, rows[i].network, NULL, &err) < 0 && err.code != ERROR_CONFLICT)
            log_warn("sandbox", "id=%s: %s", id, err.message);
    }
}

const struct egress_authority *secret_authority(const struct sandboxes *all, struct str policy)
{
    return network_has_rules(policy) ? all->authority : NULL;
}
