/* Answers of any bytes: pictures, pages, archives. They wait for slow clients on the disk, charged to the team, and not
 * in memory, where a few of them would be more than all that unread answers may hold. */
#include <errno.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "edge/call/call.h"

int call_answer_bytes(struct call *call, int status, const char *content_type, struct str bytes,
                      struct error *err)
{
    const char *directory = call->desk->file_directory;
    auto_close int fd = -1;
    int r;

    spool_charge_open(&call->reply_charge, call->desk->spool, call->team_id);
    if (spool_add(&call->reply_charge, (int64_t)bytes.len, err) < 0)
        return -1;
    fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    r = fd < 0 ? -errno : fd_write_full(fd, bytes.p, bytes.len);
    if (r < 0) {
        spool_release(&call->reply_charge);
        return error_set_errno(err, -r, "a file of %zu bytes for the response in %s", bytes.len,
                               directory);
    }
    call_answer_file(call, status, content_type, take_fd(&fd), (int64_t)bytes.len);
    return 0;
}
