/* The list of a backup: what was understood is written, and understood the same way again. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "backup/backup_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct backup_parts first = {0}, second = {0};
    auto_buf struct buf text = {0};
    struct error err;

    buf_init(&text, BACKUP_LIST_MAX);
    if (backup_list_read(str_n(data, size), 23, &first, &err) == 0) {
        backup_list_write(&first, 23, &text);
        if (text.overflowed)
            goto done;
        if (backup_list_read(buf_str(&text), 23, &second, &err) < 0 || first.count != second.count)
            __builtin_trap();
        for (size_t i = 0; i < first.count; i++)
            if (strcmp(first.list[i].name, second.list[i].name) != 0)
                __builtin_trap();
    }
done:
    backup_parts_done(&first);
    backup_parts_done(&second);
    return 0;
}
