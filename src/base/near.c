#include "base/near.h"

#include <ctype.h>

enum { WORD_MAX = 48 };

/* Without case and '_'; 0 when it is too long. */
static size_t plain(struct str word, char out[WORD_MAX])
{
    size_t len = 0;

    for (size_t i = 0; i < word.len; i++) {
        if (word.p[i] == '_' || word.p[i] == '-')
            continue;
        if (len == WORD_MAX)
            return 0;
        out[len++] = ascii_lower(word.p[i]);
    }
    return len;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Restricted Damerau-Levenshtein, by rows. */
static size_t distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t rows[3][WORD_MAX + 1];

    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_len; i++) {
        size_t *now = rows[i % 3], *last = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= b_len; j++) {
            size_t cost = a[i - 1] != b[j - 1];

            now[j] = least(least(last[j] + 1, now[j - 1] + 1), last[j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

size_t near_allowed(size_t len)
{
    size_t allowed = len < 5 ? 1 : (len + 1) / 3;

    return allowed > 3 ? 3 : allowed;
}

size_t near_changes(struct str a, struct str b)
{
    char left[WORD_MAX], right[WORD_MAX];
    size_t a_len = plain(a, left), b_len = plain(b, right);

    return a_len && b_len ? distance(left, a_len, right, b_len) : WORD_MAX;
}

const char *near_word(struct str word, const char *const *known)
{
    char wanted[WORD_MAX], other[WORD_MAX];
    size_t len = plain(word, wanted), best_far = near_allowed(len);
    const char *best = NULL;

    if (len == 0)
        return NULL;
    for (; *known; known++) {
        size_t other_len = plain(str_of(*known), other);
        size_t far = other_len ? distance(wanted, len, other, other_len) : WORD_MAX;

        if (far < best_far || (far == best_far && !best)) {
            best = *known;
            best_far = far;
        }
    }
    return best;
}

bool near_snake(const char *name, char out[NEAR_NAME_SIZE])
{
    size_t len = 0;

    for (size_t i = 0; name[i]; i++) {
        bool upper = isupper((unsigned char)name[i]) != 0;
        bool begins = upper && i > 0 && name[i - 1] != '_' &&
                      (!isupper((unsigned char)name[i - 1]) ||
                       (name[i + 1] && islower((unsigned char)name[i + 1])));

        if (len + 2 >= NEAR_NAME_SIZE)
            return false;
        if (begins)
            out[len++] = '_';
        out[len++] = ascii_lower(name[i]);
    }
    out[len] = '\0';
    return true;
}
