/* The scripts of kernels/, which are part of the program. */
#pragma once

#include <stddef.h>

struct kernel_script {
    const char *name;
    const void *text;
    size_t length;
};

extern const struct kernel_script kernel_scripts[]; /* ended by a name of NULL */
