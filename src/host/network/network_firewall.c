/* Firewalls of others: chains on the host's forward hook that drop what nobody accepted, as Docker's does. Our table cannot
 * overrule them: a packet must be accepted by all. They are found and told at start; where the operator lets us, two rules in front
 * of theirs let our own link through, and go when the network does. (Rules of iptables before nftables are not seen.) */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "host/network/network_internal.h"
#include "protocol/netlink/nft.h"

enum { LISTED_MAX = 1 << 20, CHAINS_MAX = 16, WORD_SIZE = 64, RULES_MAX = 4096 };

/* "ip filter FORWARD" */
struct chain {
    char family[WORD_SIZE], table[WORD_SIZE], name[WORD_SIZE];
    bool drops;
};

/* Only what can stand in a command as it is. */
static bool take_word(struct str *line, char out[WORD_SIZE])
{
    struct str word = str_split(line, ' ');

    for (size_t i = 0; i < word.len; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.", word.p[i]))
            return false;
    return word.len > 0 && str_copy(word, out, WORD_SIZE);
}

static bool take_head(struct str line, const char *kind, char first[WORD_SIZE],
                      char second[WORD_SIZE])
{
    struct str word = str_split(&line, ' ');

    return str_is(word, kind) && take_word(&line, first) && (!second || take_word(&line, second));
}

/* Base chains of forwarded packets. */
static int find_chains(struct chain out[CHAINS_MAX], size_t *out_count, struct error *err)
{
    struct chain now = {0};
    auto_buf struct buf text = {0};
    struct str rest;

    *out_count = 0;
    buf_init(&text, LISTED_MAX);
    if (nft_show("list chains\n", &text, err) < 0)
        return -1;
    rest = buf_str(&text);
    while (rest.p && *out_count < CHAINS_MAX) {
        struct str line = str_trim(str_split(&rest, '\n'));

        if (take_head(line, "table", now.family, now.table) ||
            take_head(line, "chain", now.name, NULL))
            continue;
        if (str_find_str(line, STR(" hook forward ")) < 0 ||
            (strcmp(now.family, "ip") != 0 && strcmp(now.family, "inet") != 0))
            continue;
        now.drops = str_find_str(line, STR("policy drop;")) >= 0;
        out[(*out_count)++] = now;
    }
    return 0;
}

/* Calls for each of our rules in the chain: commands that remove it. Returns how many there are. */
static int find_rules(const struct chain *chain, const struct network_names *names,
                      struct buf *removal, struct error *err)
{
    auto_buf struct buf text = {0};
    char command[4 * WORD_SIZE], comment[WORD_SIZE];
    struct str rest;
    int count = 0;

    buf_init(&text, LISTED_MAX);
    (void)snprintf(command, sizeof(command), "list chain %s %s %s\n", chain->family, chain->table,
                   chain->name);
    (void)snprintf(comment, sizeof(comment), "comment \"%s\" # handle ", names->table);
    if (nft_show(command, &text, err) < 0)
        return -1;
    rest = buf_str(&text);
    while (rest.p) {
        struct str line = str_split(&rest, '\n');
        ptrdiff_t at = str_find_str(line, str_of(comment));
        uint64_t handle;

        if (at < 0 || !str_to_u64(str_skip(line, (size_t)at + strlen(comment)), &handle))
            continue;
        count++;
        (void)buf_printf(removal, "delete rule %s %s %s handle %llu\n", chain->family, chain->table,
                         chain->name, (unsigned long long)handle);
    }
    return count;
}

static int open_chain(const struct chain *chain, const struct network_names *names,
                      struct error *err)
{
    auto_buf struct buf text = {0};

    buf_init(&text, RULES_MAX);
    (void)buf_printf(&text,
                     "insert rule %s %s %s iifname %s accept comment \"%s\"\n"
                     "insert rule %s %s %s oifname %s ct state established,related accept comment "
                     "\"%s\"\n",
                     chain->family, chain->table, chain->name, names->uplink, names->table,
                     chain->family, chain->table, chain->name, names->uplink, names->table);
    if (nft_load(text.p, err) < 0)
        return error_prefix(err, "open the chain '%s' of '%s'", chain->name, chain->table);
    log_info("network", "the chain '%s' of '%s %s' lets our link '%s' through now", chain->name,
             chain->family, chain->table, names->uplink);
    return 0;
}

static int look_at(const struct chain *chain, const struct network_names *names, bool manage,
                   struct error *err)
{
    auto_buf struct buf ignored = {0};
    int count;

    buf_init(&ignored, RULES_MAX);
    count = find_rules(chain, names, &ignored, err);
    if (count != 0)
        return count < 0 ? -1 : 0;
    if (manage)
        return open_chain(chain, names, err);
    log_warn("network",
             "the chain '%s' of the table '%s %s' drops what is forwarded: sandboxes reach nothing "
             "unless a "
             "rule there accepts '%s'; start with --manage-firewall 1 to have one",
             chain->name, chain->family, chain->table, names->uplink);
    return 0;
}

int network_firewall_open(const struct network_names *names, bool manage, struct error *err)
{
    struct chain chains[CHAINS_MAX];
    size_t count;

    if (find_chains(chains, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (chains[i].drops && look_at(&chains[i], names, manage, err) < 0)
            return -1;
    return 0;
}

int network_firewall_close(const struct network_names *names, struct error *err)
{
    struct chain chains[CHAINS_MAX];
    auto_buf struct buf removal = {0};
    size_t count;

    buf_init(&removal, RULES_MAX);
    if (find_chains(chains, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (find_rules(&chains[i], names, &removal, err) < 0)
            return -1;
    return removal.len ? nft_load(removal.p, err) : 0;
}
