#include "protocol/netlink/nft.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <nftables/libnftables.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

int nft_load(const char *commands, char *reason, size_t reason_size)
{
    struct nft_ctx *nft = nft_ctx_new(NFT_CTX_DEFAULT);
    struct str text, line;
    int r;

    if (!nft) {
        (void)snprintf(reason, reason_size, "out of memory");
        return -1;
    }
    (void)nft_ctx_buffer_output(nft);
    (void)nft_ctx_buffer_error(nft);
    r = nft_run_cmd_from_buffer(nft, commands);
    text = str_of(nft_ctx_get_error_buffer(nft));
    line = str_split(&text, '\n');
    (void)snprintf(reason, reason_size, "%.*s", STR_ARG(line));
    nft_ctx_free(nft);
    return r == 0 ? 0 : -1;
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
