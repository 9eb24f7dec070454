#include "interpreter/kernel_scripts.h"

#include "interpreter/kernel_scripts_data.h"

const struct kernel_script kernel_scripts[] = {KERNEL_SCRIPTS{NULL, NULL, 0}};
