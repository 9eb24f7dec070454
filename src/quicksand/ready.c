#include <stdio.h>

#include "quicksand/serve.h"

void ready_print(const char *url, const char *key, bool from_environment)
{
    (void)printf("ready %s\n\n", url);
    (void)printf("  export E2B_API_URL=%s\n  export E2B_SANDBOX_URL=%s\n", url, url);
    if (key)
        (void)printf("  export E2B_API_KEY=%s\n", key);
    else if (from_environment)
        (void)printf("  export E2B_API_KEY=$QUICKSAND_API_KEY\n");
    else
        (void)printf("  export E2B_API_KEY=...   # shown when it was made; quicksand key new makes "
                     "another\n");
    (void)printf("\n"
                 "  // npm install e2b; save as hello.mjs; node hello.mjs\n"
                 "  import { Sandbox } from 'e2b'\n"
                 "  const sandbox = await Sandbox.create()\n"
                 "  const result = await sandbox.commands.run('echo hello from $(uname -s)')\n"
                 "  console.log(result.stdout)\n"
                 "  await sandbox.kill()\n\n");
    (void)fflush(stdout);
}
