/* doctor: what HTTPS by a domain needs: that every name below it leads here, and a certificate for them. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/doctor/cli_doctor.h"
#include "protocol/tls/tls.h"
#include "protocol/tls/tls_make.h"

enum { CERTIFICATE_MAX = 256 * 1024, SOON_DAYS = 14, NAME_SIZE = 300 };
#define DAY_US (INT64_C(86400) * 1000000)

/* What was told, else what `quicksand tls init` made certificates for; "" when neither. */
static void domain_of(const struct doctor *doctor, char out[NAME_SIZE])
{
    auto_free char *path = xasprintf("%s/tls/domain", doctor->data_dir);
    auto_buf struct buf text = {0};

    out[0] = '\0';
    buf_init(&text, NAME_SIZE - 1);
    if (doctor->domain)
        (void)snprintf(out, NAME_SIZE, "%s", doctor->domain);
    else if (fd_read_file_at(AT_FDCWD, path, &text) == 0)
        (void)str_copy(str_trim(buf_str(&text)), out, NAME_SIZE);
}

/* A name that nobody has asked for before: no cache and no hosts file has it. */
static void random_name(const char *domain, char out[NAME_SIZE])
{
    (void)snprintf(out, NAME_SIZE, "3000-i%08x.%s", arc4random_uniform(UINT32_MAX), domain);
}

static void tell_addresses(const struct addrinfo *list, struct buf *out)
{
    for (; list; list = list->ai_next) {
        char text[NI_MAXHOST];

        if (getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof(text), NULL, 0,
                        NI_NUMERICHOST) == 0)
            (void)buf_printf(out, "%s%s", out->len ? ", " : "", text);
    }
}

void doctor_domain(const struct doctor *doctor, struct doctor_result *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    char domain[NAME_SIZE], name[NAME_SIZE + 16], fix[256];
    auto_buf struct buf text = {0};
    int rc;

    domain_of(doctor, domain);
    if (!domain[0]) {
        doctor_ok(out, "none is used: sandboxes are reached by header; docs/domain.md");
        return;
    }
    random_name(domain, name);
    rc = getaddrinfo(name, NULL, &hints, &found);
    if (rc != 0) {
        (void)snprintf(fix, sizeof(fix),
                       "wildcard DNS record *.%s, or dnsmasq with address=/%s/127.0.0.1, or each "
                       "name in /etc/hosts; docs/domain.md",
                       domain, domain);
        doctor_bad(out, DOCTOR_WARN, fix, "names below %s lead nowhere: %s", domain,
                   gai_strerror(rc));
        return;
    }
    buf_init(&text, 200);
    tell_addresses(found, &text);
    freeaddrinfo(found);
    doctor_ok(out, "names below %s lead to %s", domain, text.p ? text.p : "");
}

static void judge(const struct tls_facts *facts, const char *path, const char *domain,
                  struct doctor_result *out)
{
    int64_t now = clock_wall_us(), left = (facts->ends_us - now) / DAY_US;
    const char *renew =
        "renew it (quicksand tls init or tls acme, once more), then quicksand tls reload";

    if (!facts->matches)
        doctor_bad(out, DOCTOR_WARN, "a certificate for *.DOMAIN as well: docs/domain.md",
                   "'%s' is for no name such as 3000-ID.%s", path, domain);
    else if (facts->ends_us < now)
        doctor_bad(out, DOCTOR_WARN, renew, "'%s' has expired", path);
    else if (facts->begins_us > now)
        doctor_bad(out, DOCTOR_WARN, "set the clock: timedatectl set-ntp true",
                   "'%s' is not valid yet: does the clock go right?", path);
    else if (left < SOON_DAYS)
        doctor_bad(out, DOCTOR_WARN, renew, "'%s' ends in %lld days", path, (long long)left);
    else
        doctor_ok(out, "for *.%s, %lld days left", domain, (long long)left);
}

void doctor_certificate(const struct doctor *doctor, struct doctor_result *out)
{
    auto_free char *own = xasprintf("%s/tls/cert.pem", doctor->data_dir);
    const char *path = doctor->certificate ? doctor->certificate : own;
    char domain[NAME_SIZE], name[NAME_SIZE + 16];
    auto_buf struct buf text = {0};
    struct tls_facts facts;
    struct error err;
    int r;

    buf_init(&text, CERTIFICATE_MAX);
    r = fd_read_file_at(AT_FDCWD, path, &text);
    domain_of(doctor, domain);
    if (r == -ENOENT && !doctor->certificate && !domain[0]) {
        doctor_ok(out, "none: HTTP only");
        return;
    }
    if (r < 0) {
        doctor_bad(out, DOCTOR_WARN,
                   "quicksand tls init --domain DOMAIN, or name the file with "
                   "--tls-cert",
                   "'%s' cannot be read: %s", path, strerror(-r));
        return;
    }
    random_name(domain, name);
    if (tls_make_facts(buf_str(&text), name, &facts, &err) < 0)
        doctor_bad(out, DOCTOR_WARN, "a PEM file with the certificate first", "'%s': %s", path,
                   err.message);
    else
        judge(&facts, path, domain, out);
}

/* Nothing fails without it: it spares a copy. */
void doctor_kernel_tls(const struct doctor *doctor, struct doctor_result *out)
{
    (void)doctor;
    if (tls_kernel())
        doctor_ok(out, "there: files and tunnels go by sendfile and splice");
    else
        doctor_ok(out, "none (module tls): they pass through memory");
}
