#include "image/registry/challenge.h"

#include <string.h>

static void skip_blanks(struct str *rest)
{
    while (rest->len > 0 && (rest->p[0] == ' ' || rest->p[0] == '\t' || rest->p[0] == ','))
        *rest = str_skip(*rest, 1);
}

static struct str take_word(struct str *rest)
{
    size_t len = 0;
    struct str word;

    while (len < rest->len &&
           (ascii_is_token(rest->p[len]) || rest->p[len] == '/' || rest->p[len] == ':'))
        len++;
    word = str_n(rest->p, len);
    *rest = str_skip(*rest, len);
    return word;
}

/* "quoted \"text\"" or a word; too long a value becomes "". */
static void take_value(struct str *rest, char *out, size_t size)
{
    size_t len = 0;
    bool whole = true;

    out[0] = '\0';
    if (rest->len == 0 || rest->p[0] != '"') {
        if (!str_copy(take_word(rest), out, size))
            out[0] = '\0';
        return;
    }
    *rest = str_skip(*rest, 1);
    while (rest->len > 0 && rest->p[0] != '"') {
        if (rest->p[0] == '\\' && rest->len > 1)
            *rest = str_skip(*rest, 1);
        if (len + 1 < size && rest->p[0] != '\0')
            out[len++] = rest->p[0];
        else
            whole = false;
        *rest = str_skip(*rest, 1);
    }
    *rest = str_skip(*rest, rest->len > 0);
    out[whole ? len : 0] = '\0';
}

static void take_parameter(struct challenge *challenge, struct str name, struct str *rest)
{
    char ignored[CHALLENGE_TEXT_SIZE];

    if (str_eq_nocase(name, STR("realm")))
        take_value(rest, challenge->realm, sizeof(challenge->realm));
    else if (str_eq_nocase(name, STR("service")))
        take_value(rest, challenge->service, sizeof(challenge->service));
    else if (str_eq_nocase(name, STR("scope")))
        take_value(rest, challenge->scope, sizeof(challenge->scope));
    else
        take_value(rest, ignored, sizeof(ignored));
}

void challenge_parse(struct str header, struct challenge *out)
{
    struct challenge one = {0};

    *out = (struct challenge){0};
    for (;;) {
        struct str word;

        skip_blanks(&header);
        word = take_word(&header);
        if (word.len > 0 && header.len > 0 && header.p[0] == '=') {
            header = str_skip(header, 1);
            take_parameter(&one, word, &header);
            continue;
        }
        /* A scheme begins, or all has ended: the one before is complete. */
        if (one.kind > out->kind)
            *out = one;
        if (word.len == 0)
            return;
        one = (struct challenge){.kind = str_eq_nocase(word, STR("bearer"))  ? CHALLENGE_BEARER
                                         : str_eq_nocase(word, STR("basic")) ? CHALLENGE_BASIC
                                                                             : CHALLENGE_NONE};
    }
}
