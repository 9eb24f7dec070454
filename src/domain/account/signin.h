/* Browsers that are signed in, and links that sign one in, once.
 *
 * Both are tokens of 160 random bits that are kept as SHA-256, together with the hash of the API key in whose name
 * they are: what the key may do, they may, and with the key they end. A browser keeps its token in a cookie
 * (edge/call/call_cookie.c); a link is good for nothing but to get such a token. */
#pragma once

#include <stdbool.h>

#include "domain/account/api_key.h"

enum {
    SIGNIN_TOKEN_SIZE = 4 + 40 + 1,
    SIGNIN_BROWSER_S = 7 * 24 * 60 * 60,
    SIGNIN_LINK_S = 60 * 60,
    SIGNIN_KEY_MAX = 64, /* of one API key; the oldest ends */
};

/* key: an API key, or the token of a browser. Whether it is a good one was asked before. */
int signin_link(struct store *store, struct str key, char out_link[SIGNIN_TOKEN_SIZE],
                struct error *err);
int signin_browser(struct store *store, struct str key, char out_token[SIGNIN_TOKEN_SIZE],
                   struct error *err);
/* Uses the link up. ERROR_UNAUTHORIZED when it is none, or was used. */
int signin_redeem(struct store *store, struct str link, char out_token[SIGNIN_TOKEN_SIZE],
                  struct error *err);
/* Nothing happens when it has ended already. */
int signin_end(struct store *store, struct str token, struct error *err);

/* By its form. */
bool signin_is_browser(struct str token);
/* Of the API key of a browser's token. ERROR_NOT_FOUND when it has ended. */
int signin_key_hash(struct store *store, struct str token, char out_hash[API_KEY_HASH_SIZE],
                    struct error *err);
