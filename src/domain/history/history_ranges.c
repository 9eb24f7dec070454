/* The lengths of time that are kept. */
#include "domain/history/history.h"

const struct history_range history_ranges[HISTORY_RANGES] = {
    {"15m", 10, 90},
    {"6h", 60, 360},
    {"7d", 1800, 336},
};
