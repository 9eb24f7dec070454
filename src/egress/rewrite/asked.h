/* Requests of one HTTP/1 connection that are not answered yet, in their order: which answer is whose. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { ASKED_MAX = 32 };
enum asked { ASKED_PLAIN, ASKED_HEAD, ASKED_UPGRADE };

struct asked_list {
    unsigned char kinds[ASKED_MAX];
    size_t first, count;
};

/* There must be room. */
void asked_push(struct asked_list *list, enum asked kind);
/* The first one was answered. A server may say goodbye without being asked. */
void asked_pop(struct asked_list *list);
/* PLAIN when there is none. */
enum asked asked_oldest(const struct asked_list *list);
enum asked asked_newest(const struct asked_list *list);
