/* statfs(2) and fstatfs(2) of programs in a sandbox are answered by its envd, with the sandbox's own limit
 * (envd/view/statfs_answer.h). They have two arguments. A call with this one as its sixth, which the kernel does
 * not look at, is let through: those of envd. Whoever else uses it sees the sizes of the pool. */
#pragma once

#define STATFS_MARK 0x7175696b73616e64ull
