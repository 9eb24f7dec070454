/* What we use of libcurl. */
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <stdarg.h>

#include "late/late.h"

const struct late_library late_curl = {"libcurl.so.4", "libcurl4"};

#define VALUE(type, name, parameters, arguments) \
    LATE_VALUE(late_curl, type, name, parameters, arguments)
#define VOID(name, parameters, arguments) LATE_VOID(late_curl, name, parameters, arguments)

/* It takes the parameters for products. */
/* clang-format off */
VOID(curl_easy_cleanup, (CURL *curl), (curl))
VALUE(CURL *, curl_easy_init, (void), ())
VALUE(CURLcode, curl_easy_pause, (CURL *handle, int bitmask), (handle, bitmask))
VALUE(CURLcode, curl_easy_perform, (CURL *curl), (curl))
VALUE(CURLcode, curl_easy_recv, (CURL *curl, void *buffer, size_t buflen, size_t *n),
      (curl, buffer, buflen, n))
VOID(curl_easy_reset, (CURL *curl), (curl))
VALUE(CURLcode, curl_easy_send, (CURL *curl, const void *buffer, size_t buflen, size_t *n),
      (curl, buffer, buflen, n))
VALUE(const char *, curl_easy_strerror, (CURLcode code), (code))
VOID(curl_free, (void *p), (p))
VALUE(CURLcode, curl_global_init, (long flags), (flags))
VALUE(CURLMcode, curl_multi_add_handle, (CURLM *multi, CURL *curl_handle), (multi, curl_handle))
VALUE(CURLMcode, curl_multi_assign, (CURLM *multi, curl_socket_t sockfd, void *sockp),
      (multi, sockfd, sockp))
VALUE(CURLMcode, curl_multi_cleanup, (CURLM *multi), (multi))
VALUE(CURLMsg *, curl_multi_info_read, (CURLM *multi, int *msgs_in_queue), (multi, msgs_in_queue))
VALUE(CURLM *, curl_multi_init, (void), ())
VALUE(CURLMcode, curl_multi_perform, (CURLM *multi, int *running), (multi, running))
VALUE(CURLMcode, curl_multi_poll,
      (CURLM *multi, struct curl_waitfd extra_fds[], unsigned int extra_nfds, int timeout_ms,
       int *ret),
      (multi, extra_fds, extra_nfds, timeout_ms, ret))
VALUE(CURLMcode, curl_multi_remove_handle, (CURLM *multi, CURL *curl_handle), (multi, curl_handle))
VALUE(CURLMcode, curl_multi_socket_action,
      (CURLM *multi, curl_socket_t socket, int ev_bitmask, int *running),
      (multi, socket, ev_bitmask, running))
VALUE(CURLMcode, curl_multi_wakeup, (CURLM *multi), (multi))
VALUE(CURLSHcode, curl_share_cleanup, (CURLSH *share), (share))
VALUE(CURLSH *, curl_share_init, (void), ())
VALUE(struct curl_slist *, curl_slist_append, (struct curl_slist *list, const char *data),
      (list, data))
VOID(curl_slist_free_all, (struct curl_slist *list), (list))
VALUE(CURLU *, curl_url, (void), ())
VOID(curl_url_cleanup, (CURLU *handle), (handle))
VALUE(CURLUcode, curl_url_get, (CURLU *handle, CURLUPart what, char **part, unsigned int flags),
      (handle, what, part, flags))
VALUE(CURLUcode, curl_url_set,
      (CURLU *handle, CURLUPart what, const char *part, unsigned int flags),
      (handle, what, part, flags))
/* clang-format on */

/* The value of an option is a long, a curl_off_t or a pointer: all of them are as wide, and are handed on as they are. */
_Static_assert(sizeof(long) == sizeof(void *) && sizeof(curl_off_t) == sizeof(void *),
               "values of options are words");
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt
#undef curl_share_setopt
#define OPTION(type, name, handle_type, handle, option_type, option) \
    type name(handle_type *handle, option_type option, ...)          \
    {                                                                \
        va_list rest;                                                \
        void *value;                                                 \
                                                                     \
        va_start(rest, option);                                      \
        value = va_arg(rest, void *);                                \
        va_end(rest);                                                \
        return LATE(late_curl, name)(handle, option, value);         \
    }
OPTION(CURLcode, curl_easy_setopt, CURL, curl, CURLoption, option)
OPTION(CURLcode, curl_easy_getinfo, CURL, curl, CURLINFO, info)
OPTION(CURLMcode, curl_multi_setopt, CURLM, multi_handle, CURLMoption, option)
OPTION(CURLSHcode, curl_share_setopt, CURLSH, share, CURLSHoption, option)
