#include "protocol/netlink/nft.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/process.h"

enum { SAID_MAX = 64 * 1024 };

static int run(const struct program *nft, struct buf *out, struct error *err)
{
    struct str text, line;
    int status = program_run(nft, out, err);

    if (status <= 0)
        return status;
    text = buf_str(out);
    line = str_split(&text, '\n');
    return error_set(err, ERROR_INTERNAL, "nft: %.*s", STR_ARG(line));
}

int nft_load(const char *commands, struct error *err)
{
    const struct program nft = {
        .name = "nft", .package = "nftables", .args = {"-f", "-"}, .input = str_of(commands)};
    auto_buf struct buf said = {0};

    buf_init(&said, SAID_MAX);
    return run(&nft, &said, err);
}

int nft_show(const char *commands, struct buf *out, struct error *err)
{
    const struct program nft = {
        .name = "nft", .package = "nftables", .args = {"-a", "-f", "-"}, .input = str_of(commands)};

    return run(&nft, out, err);
}

static struct nlmsghdr *put_message(struct netlink_batch *batch, uint16_t type, uint16_t flags,
                                    uint8_t family, uint16_t resource)
{
    struct nlmsghdr *message;
    struct nfgenmsg *head;
    void *header;

    message = netlink_batch_add(batch, type, flags, sizeof(*head), &header);
    head = header;
    head->nfgen_family = family;
    head->version = NFNETLINK_V0;
    head->res_id = htons(resource);
    return message;
}

/* A key is one word or two; data is only part of what is put. */
struct element {
    uint32_t key[2];
    size_t words;
    const uint32_t *mark;
};

static void put_element(struct netlink_batch *batch, uint16_t type, uint16_t flags,
                        const struct nft_map *map, const struct element *given)
{
    struct nlattr *elements, *element, *nest;
    struct nlmsghdr *message;

    if (type == NFT_MSG_NEWSETELEM)
        flags |= NLM_F_CREATE;
    message =
        put_message(batch, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, NFPROTO_INET, 0);
    mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_TABLE, map->table);
    mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_SET, map->name);
    if (!given)
        return;
    elements = mnl_attr_nest_start(message, NFTA_SET_ELEM_LIST_ELEMENTS);
    element = mnl_attr_nest_start(message, NFTA_LIST_ELEM);
    nest = mnl_attr_nest_start(message, NFTA_SET_ELEM_KEY);
    mnl_attr_put(message, NFTA_DATA_VALUE, given->words * sizeof(uint32_t), given->key);
    mnl_attr_nest_end(message, nest);
    if (given->mark) {
        nest = mnl_attr_nest_start(message, NFTA_SET_ELEM_DATA);
        mnl_attr_put_u32(message, NFTA_DATA_VALUE, *given->mark);
        mnl_attr_nest_end(message, nest);
    }
    mnl_attr_nest_end(message, element);
    mnl_attr_nest_end(message, elements);
}

static struct element element_of(uint32_t address, const uint32_t *mark)
{
    return (struct element){.key = {htonl(address)}, .words = 1, .mark = mark};
}

static void put_begin(struct netlink_batch *batch)
{
    (void)put_message(batch, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
}

static void put_end(struct netlink_batch *batch)
{
    (void)put_message(batch, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
}

static int change(struct netlink *netlink, uint16_t type, const struct nft_map *map,
                  uint32_t address, const uint32_t *mark)
{
    const struct element element = element_of(address, mark);
    struct netlink_batch batch;

    netlink_batch_init(&batch);
    put_begin(&batch);
    put_element(&batch, type, NLM_F_ACK, map, &element);
    put_end(&batch);
    return netlink_send(netlink, &batch);
}

int nft_map_put(struct netlink *netlink, const struct nft_map *map, uint32_t address, uint32_t mark)
{
    return change(netlink, NFT_MSG_NEWSETELEM, map, address, &mark);
}

static void note_element(const struct nlmsghdr *message, void *arg)
{
    (void)message;
    *(bool *)arg = true;
}

int nft_map_has(struct netlink *netlink, const struct nft_map *map, uint32_t address)
{
    const struct element element = element_of(address, NULL);
    struct netlink_batch batch;
    bool found = false;
    int r;

    netlink_batch_init(&batch);
    put_element(&batch, NFT_MSG_GETSETELEM, 0, map, &element);
    r = netlink_dump(netlink, &batch, note_element, &found);
    if (r == -ENOENT)
        return 0;
    return r < 0 ? r : found;
}

/* Looked for first: a transaction that fails waits until no packet is looked at any more by what it changed, some 10 ms. */
int nft_map_remove(struct netlink *netlink, const struct nft_map *map, uint32_t address)
{
    int r = nft_map_has(netlink, map, address);

    if (r <= 0)
        return r;
    r = change(netlink, NFT_MSG_DELSETELEM, map, address, NULL);
    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

/* Only the last message asks for an answer: the kernel tells of those that fail unasked. */
struct nft_changes {
    struct netlink_batch batch;
    char bytes[] __attribute__((aligned(8)));
};

enum { CHANGE_SIZE = 128 };

struct nft_changes *nft_changes_new(size_t max)
{
    size_t size = (max + 2) * CHANGE_SIZE + NETLINK_MESSAGE_MAX;
    struct nft_changes *changes = xmalloc(sizeof(*changes) + size);

    netlink_batch_init_in(&changes->batch, changes->bytes, size);
    put_begin(&changes->batch);
    return changes;
}

void nft_changes_free(struct nft_changes *changes)
{
    free(changes);
}

void nft_changes_map(struct nft_changes *changes, const struct nft_map *map, bool put,
                     uint32_t address, uint32_t mark)
{
    const struct element element = element_of(address, put ? &mark : NULL);

    put_element(&changes->batch, put ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM, 0, map, &element);
}

void nft_changes_set(struct nft_changes *changes, const struct nft_map *set, bool put,
                     uint32_t mark, uint32_t address)
{
    const struct element element = {.key = {mark, htonl(address)}, .words = 2};

    put_element(&changes->batch, put ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM, 0, set, &element);
}

int nft_changes_send(struct netlink *netlink, struct nft_changes *changes)
{
    struct netlink_batch *batch = &changes->batch;

    batch->last->nlmsg_flags |= NLM_F_ACK;
    batch->answers = 1;
    put_end(batch);
    return netlink_send(netlink, batch);
}

struct each {
    nft_element_fn fn;
    void *arg;
};

/* The words of a key or of data, from behind: of a key with a mark the address is the last. */
static size_t words_of(const struct nlattr *nest, uint32_t out[2])
{
    const struct nlattr *value = nest ? mnl_attr_get_payload(nest) : NULL;
    size_t len;

    if (!value || mnl_attr_get_payload_len(nest) < sizeof(*value) ||
        mnl_attr_get_type(value) != NFTA_DATA_VALUE)
        return 0;
    len = mnl_attr_get_payload_len(value);
    if (len != sizeof(uint32_t) && len != 2 * sizeof(uint32_t))
        return 0;
    memcpy(out, mnl_attr_get_payload(value), len);
    return len / sizeof(uint32_t);
}

/* The next attribute of that type inside, behind `after`; NULL: from the beginning. */
static const struct nlattr *inside(const struct nlattr *nest, const struct nlattr *after, int type)
{
    const char *end = (const char *)nest + mnl_attr_get_len(nest);
    const struct nlattr *attr = after ? mnl_attr_next(after) : mnl_attr_get_payload(nest);

    for (; mnl_attr_ok(attr, (int)(end - (const char *)attr)); attr = mnl_attr_next(attr))
        if (mnl_attr_get_type(attr) == type)
            return attr;
    return NULL;
}

static void tell_element(const struct nlattr *element, const struct each *each)
{
    uint32_t words[2] = {0}, mark[2] = {0};
    size_t count = words_of(inside(element, NULL, NFTA_SET_ELEM_KEY), words);

    (void)words_of(inside(element, NULL, NFTA_SET_ELEM_DATA), mark);
    if (count)
        each->fn(ntohl(words[count - 1]), count == 2 ? words[0] : mark[0], each->arg);
}

static void tell_elements(const struct nlmsghdr *message, void *arg)
{
    const struct nlattr *list =
        netlink_attr(message, sizeof(struct nfgenmsg), NFTA_SET_ELEM_LIST_ELEMENTS);
    const struct nlattr *element = list ? inside(list, NULL, NFTA_LIST_ELEM) : NULL;

    for (; element; element = inside(list, element, NFTA_LIST_ELEM))
        tell_element(element, arg);
}

/* Of an element with one expression, or the first of several, that is a counter. */
static void read_counter(const struct nlmsghdr *message, void *arg)
{
    const struct nlattr *list =
        netlink_attr(message, sizeof(struct nfgenmsg), NFTA_SET_ELEM_LIST_ELEMENTS);
    const struct nlattr *element = list ? inside(list, NULL, NFTA_LIST_ELEM) : NULL;
    const struct nlattr *nest = element ? inside(element, NULL, NFTA_SET_ELEM_EXPR) : NULL;
    const struct nlattr *data = nest ? inside(nest, NULL, NFTA_EXPR_DATA) : NULL;
    const struct nlattr *packets = data ? inside(data, NULL, NFTA_COUNTER_PACKETS) : NULL;

    if (packets && mnl_attr_get_payload_len(packets) == sizeof(uint64_t))
        *(uint64_t *)arg = be64toh(mnl_attr_get_u64(packets));
}

int nft_counter(struct netlink *netlink, const struct nft_map *set, uint32_t address,
                uint64_t *out_packets)
{
    const struct element element = element_of(address, NULL);
    struct netlink_batch batch;
    int r;

    *out_packets = 0;
    netlink_batch_init(&batch);
    put_element(&batch, NFT_MSG_GETSETELEM, 0, set, &element);
    r = netlink_dump(netlink, &batch, read_counter, out_packets);
    return r == -ENOENT ? 0 : r;
}

int nft_each(struct netlink *netlink, const struct nft_map *map, nft_element_fn fn, void *arg)
{
    struct each each = {fn, arg};
    struct netlink_batch batch;

    netlink_batch_init(&batch);
    put_element(&batch, NFT_MSG_GETSETELEM, NLM_F_DUMP, map, NULL);
    return netlink_dump(netlink, &batch, tell_elements, &each);
}
