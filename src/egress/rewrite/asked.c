#include "egress/rewrite/asked.h"

void asked_push(struct asked_list *list, enum asked kind)
{
    size_t at = (list->first + list->count++) % ASKED_MAX;

    list->kinds[at] = (unsigned char)kind;
}

void asked_pop(struct asked_list *list)
{
    if (!list->count)
        return;
    list->first = (list->first + 1) % ASKED_MAX;
    list->count--;
}

enum asked asked_oldest(const struct asked_list *list)
{
    return list->count ? (enum asked)list->kinds[list->first] : ASKED_PLAIN;
}

enum asked asked_newest(const struct asked_list *list)
{
    size_t at = list->first + list->count + ASKED_MAX - 1;

    return list->count ? (enum asked)list->kinds[at % ASKED_MAX] : ASKED_PLAIN;
}
