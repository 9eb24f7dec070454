#include "protocol/netlink/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "base/program.h"

enum { SAID_MAX = 64 * 1024 };

int nft_load(const char *commands, struct error *err)
{
    const struct program nft = {
        .name = "nft", .package = "nftables", .args = {"-f", "-"}, .input = str_of(commands)};
    auto_buf struct buf said = {0};
    struct str text, line;
    int status;

    buf_init(&said, SAID_MAX);
    status = program_run(&nft, &said, err);
    if (status <= 0)
        return status;
    text = buf_str(&said);
    line = str_split(&text, '\n');
    return error_set(err, ERROR_INTERNAL, "nft: %.*s", STR_ARG(line));
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

/* `mark` is only part of what is put, not of what is asked for or removed. */
static void put_element(struct netlink_batch *batch, uint16_t type, const struct nft_map *map,
                        uint32_t address, const uint32_t *mark)
{
    uint16_t flags = type == NFT_MSG_GETSETELEM ? 0 : NLM_F_ACK;
    struct nlattr *elements, *element, *nest;
    struct nlmsghdr *message;

    if (type == NFT_MSG_NEWSETELEM)
        flags |= NLM_F_CREATE;
    message =
        put_message(batch, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, NFPROTO_INET, 0);
    mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_TABLE, map->table);
    mnl_attr_put_strz(message, NFTA_SET_ELEM_LIST_SET, map->name);
    elements = mnl_attr_nest_start(message, NFTA_SET_ELEM_LIST_ELEMENTS);
    element = mnl_attr_nest_start(message, NFTA_LIST_ELEM);
    nest = mnl_attr_nest_start(message, NFTA_SET_ELEM_KEY);
    mnl_attr_put_u32(message, NFTA_DATA_VALUE, htonl(address));
    mnl_attr_nest_end(message, nest);
    if (mark) {
        nest = mnl_attr_nest_start(message, NFTA_SET_ELEM_DATA);
        mnl_attr_put_u32(message, NFTA_DATA_VALUE, *mark);
        mnl_attr_nest_end(message, nest);
    }
    mnl_attr_nest_end(message, element);
    mnl_attr_nest_end(message, elements);
}

static int change(struct netlink *netlink, uint16_t type, const struct nft_map *map,
                  uint32_t address, const uint32_t *mark)
{
    struct netlink_batch batch;

    netlink_batch_init(&batch);
    (void)put_message(&batch, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    put_element(&batch, type, map, address, mark);
    (void)put_message(&batch, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
    return netlink_send(netlink, &batch);
}

int nft_map_put(struct netlink *netlink, const struct nft_map *map, uint32_t address, uint32_t mark)
{
    return change(netlink, NFT_MSG_NEWSETELEM, map, address, &mark);
}

int nft_map_remove(struct netlink *netlink, const struct nft_map *map, uint32_t address)
{
    int r = change(netlink, NFT_MSG_DELSETELEM, map, address, NULL);

    return r == -ENOENT ? 0 : r < 0 ? r : 1;
}

static void note_element(const struct nlmsghdr *message, void *arg)
{
    (void)message;
    *(bool *)arg = true;
}

int nft_map_has(struct netlink *netlink, const struct nft_map *map, uint32_t address)
{
    struct netlink_batch batch;
    bool found = false;
    int r;

    netlink_batch_init(&batch);
    put_element(&batch, NFT_MSG_GETSETELEM, map, address, NULL);
    r = netlink_dump(netlink, &batch, note_element, &found);
    if (r == -ENOENT)
        return 0;
    return r < 0 ? r : found;
}
