/* Shared by the files about terminals. */
#pragma once

#include "runtime/command/terminal.h"
#include "runtime/sandbox/sandbox_parts.h"

/* The command of the request, or a shell, in a PTY of its size, with that tag. A sandbox that turns out to be gone
 * is recovered; what *use then points to is kept in `keep`. */
int terminal_start_shell(struct runtime *runtime, const struct runtime_caller *caller,
                         struct runtime_use *use, const struct terminal_request *request,
                         const char *tag, struct arena *keep, struct provider_process **out,
                         struct error *err);
