#include "late/late.h"

#include <archive.h>
#include <archive_entry.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <errno.h>

#include "base/test.h"

/* This program is linked with both, and yet has neither until it asks. */
TEST(loaded_by_the_first_call)
{
    CURL *easy;

    CHECK(!dlopen("libcurl.so.4", RTLD_NOW | RTLD_NOLOAD));
    CHECK(!dlopen("libarchive.so.13", RTLD_NOW | RTLD_NOLOAD));
    easy = curl_easy_init();
    CHECK(easy);
    CHECK(dlopen("libcurl.so.4", RTLD_NOW | RTLD_NOLOAD));
    CHECK(!dlopen("libarchive.so.13", RTLD_NOW | RTLD_NOLOAD));
    curl_easy_cleanup(easy);
    OK(late_load(&err));
    CHECK(dlopen("libarchive.so.13", RTLD_NOW | RTLD_NOLOAD));
}

/* Longs, large numbers and pointers get through as they are. */
TEST(values_of_options)
{
    CURL *easy = curl_easy_init();
    void *kept = NULL;
    long code = -1;

    CHECK_INT(curl_easy_setopt(easy, CURLOPT_PRIVATE, &code), CURLE_OK);
    CHECK_INT(curl_easy_setopt(easy, CURLOPT_MAXREDIRS, -2L), CURLE_BAD_FUNCTION_ARGUMENT);
    CHECK_INT(curl_easy_setopt(easy, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)-1),
              CURLE_BAD_FUNCTION_ARGUMENT);
    CHECK_INT(curl_easy_setopt(easy, CURLOPT_MAX_RECV_SPEED_LARGE, (curl_off_t)1 << 40), CURLE_OK);
    CHECK_INT(curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&kept), CURLE_OK);
    CHECK(kept == &code);
    CHECK_INT(curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code), CURLE_OK);
    CHECK_INT(code, 0);
    curl_easy_cleanup(easy);
}

TEST(text_of_an_error)
{
    struct archive *archive = archive_read_new();
    struct archive_entry *entry = archive_entry_new();

    archive_set_error(archive, ENOSPC, "%s of %d %%", "some", 7);
    CHECK_INT(archive_errno(archive), ENOSPC);
    CHECK_STR(str_of(archive_error_string(archive)), "some of 7 %");
    archive_entry_set_size(entry, 1LL << 40);
    archive_entry_set_mtime(entry, -5, 999999999);
    CHECK_INT(archive_entry_size(entry), 1LL << 40);
    CHECK_INT(archive_entry_mtime(entry), -5);
    CHECK_INT(archive_entry_mtime_nsec(entry), 999999999);
    archive_entry_free(entry);
    CHECK_INT(archive_read_free(archive), ARCHIVE_OK);
}
