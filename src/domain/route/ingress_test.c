#include "domain/route/ingress.h"

#include "base/test.h"

TEST(mask_names_the_port)
{
    struct ingress ingress = {0};
    char out[INGRESS_MASK_SIZE];

    ingress_mask(&ingress, 80, out);
    CHECK_STR(str_of(out), "");
    CHECK(ingress_set_mask(&ingress, STR("localhost:${PORT}")));
    ingress_mask(&ingress, 3000, out);
    CHECK_STR(str_of(out), "localhost:3000");
    CHECK(ingress_set_mask(&ingress, STR("${PORT}-${PORT}.Example.com")));
    ingress_mask(&ingress, 65535, out);
    CHECK_STR(str_of(out), "65535-65535.Example.com");
    CHECK(ingress_set_mask(&ingress, STR("[::1]:${PORT}")));
}

TEST(mask_that_is_no_host_is_refused)
{
    static const char *const bad[] = {"",           "a b",       "a\r\nX: y", "a\n",   "h\xc3\xa9",
                                      "${PORT",     "$",         "{PORT}",    "a/b",   "a,b",
                                      "${port}.de", "user@host", "a\"b",      "a\tb;", "a%41"};
    char longest[INGRESS_MASK_SIZE + 1];
    struct ingress ingress = {0};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!ingress_set_mask(&ingress, str_of(bad[i])));
    memset(longest, 'a', sizeof(longest));
    CHECK(!ingress_set_mask(&ingress, str_n(longest, INGRESS_MASK_SIZE)));
    CHECK(!ingress_set_mask(&ingress, STR_NONE));
    CHECK_STR(str_of(ingress.mask), "");
    CHECK(ingress_set_mask(&ingress, str_n(longest, INGRESS_MASK_SIZE - 1)));
}

TEST(ingress_is_read_as_it_was_written)
{
    struct ingress ingress = {0}, again;
    char text[INGRESS_TEXT_SIZE], longest[INGRESS_MASK_SIZE];

    ingress_write(&ingress, text);
    CHECK_STR(str_of(text), "");
    CHECK(ingress_set_mask(&ingress, STR("a:${PORT}")) && ingress_add_https(&ingress, 443) &&
          ingress_add_https(&ingress, 8443) && ingress_add_https(&ingress, 443));
    ingress_write(&ingress, text);
    CHECK_STR(str_of(text), "mask a:${PORT}\nhttps 443 8443\n");
    ingress_read(str_of(text), &again);
    CHECK_STR(str_of(again.mask), "a:${PORT}");
    CHECK_INT(again.https_count, 2);
    CHECK(ingress_is_https(&again, 8443) && !ingress_is_https(&again, 80));

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    CHECK(ingress_set_mask(&ingress, str_of(longest)));
    for (int i = 2; i < INGRESS_HTTPS_MAX; i++)
        CHECK(ingress_add_https(&ingress, (uint16_t)(60000 + i)));
    CHECK(!ingress_add_https(&ingress, 1));
    ingress_write(&ingress, text);
    ingress_read(str_of(text), &again);
    CHECK_INT(again.https_count, INGRESS_HTTPS_MAX);
    CHECK_INT(strlen(again.mask), INGRESS_MASK_SIZE - 1);
    ingress_read(STR("later thing\nhttps 0 70000 x 5\nmask a b\n"), &again);
    CHECK_INT(again.https_count, 1);
    CHECK_STR(str_of(again.mask), "");
}
