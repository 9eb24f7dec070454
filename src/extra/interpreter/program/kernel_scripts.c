#include "extra/interpreter/program/kernel_scripts.h"

#include "extra/interpreter/program/kernel_scripts_data.h"

const struct kernel_script kernel_scripts[] = {KERNEL_SCRIPTS{NULL, NULL, 0}};
