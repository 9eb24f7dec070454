/* What a server prints once it serves: variables to paste, and the first program. */
#include <stdio.h>
#include <unistd.h>

#include "quicksand/serve.h"

static void print_key(const struct ready *ready)
{
    char program[CONFIG_TEXT_SIZE] = "quicksand";
    ssize_t len = readlink("/proc/self/exe", program, sizeof(program) - 1);

    if (len > 0)
        program[len] = '\0';
    if (ready->made_key[0])
        (void)printf("  export E2B_API_KEY=%s   # shown once%s\n", ready->made_key,
                     ready->key_kept ? "; kept in ~/.quicksand/credentials" : "");
    else if (ready->key_given)
        (void)printf("  export E2B_API_KEY=$QUICKSAND_API_KEY\n");
    else if (ready->key_kept)
        (void)printf("  export E2B_API_KEY=$(%s key saved --url %s)\n", program, ready->url);
    else
        (void)printf("  export E2B_API_KEY=...   # shown when it was made; quicksand key new makes "
                     "another\n");
}

/* Either these lines or those with the URLs are enough. */
static void print_domain(const struct ready *ready)
{
    if (!ready->domain[0])
        return;
    (void)printf("\n  # or by HTTPS, from wherever *.%s leads here (unset the URLs above):\n"
                 "  export E2B_DOMAIN=%s\n",
                 ready->domain, ready->domain);
    if (ready->authority[0])
        (void)printf("  export NODE_EXTRA_CA_CERTS=%s SSL_CERT_FILE=%s   # unless it is trusted: "
                     "quicksand tls init --trust\n",
                     ready->authority, ready->authority);
}

void ready_print(const struct ready *ready)
{
    (void)printf("ready %s\n\n", ready->url);
    (void)printf("  export E2B_API_URL=%s\n  export E2B_SANDBOX_URL=%s\n"
                 "  export E2B_VOLUME_API_URL=%s\n",
                 ready->url, ready->url, ready->url);
    print_key(ready);
    if (ready->link[0])
        (void)printf("\n  # the dashboard, by a link that signs you in once, within the hour; "
                     "quicksand open makes another:\n  %s/#enter=%s\n",
                     ready->url, ready->link);
    print_domain(ready);
    (void)printf("\n"
                 "  // npm install e2b; save as hello.mjs; node hello.mjs\n"
                 "  import { Sandbox } from 'e2b'\n"
                 "  const sandbox = await Sandbox.create()\n"
                 "  const result = await sandbox.commands.run('echo hello from $(uname -s)')\n"
                 "  console.log(result.stdout)\n"
                 "  await sandbox.kill()\n\n");
    (void)printf("  default provider of /api/v1 and the command line: %s\n\n", ready->provider);
    (void)fflush(stdout);
}
