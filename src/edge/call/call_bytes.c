/* Answers of any bytes: pictures, pages, archives. They wait for slow clients on the disk, charged to the team, and not
 * in memory, where a few of them would be more than all that unread answers may hold. */
#include <errno.h>
#include <fcntl.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "edge/call/call.h"

int call_file_open(struct call *call, struct error *err)
{
    const char *directory = call->desk->file_directory;

    spool_charge_open(&call->reply_charge, call->desk->spool, call->team_id);
    call->reply_length = 0;
    call->reply_fd = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return call->reply_fd < 0
               ? error_set_errno(err, errno, "a file for the response in %s", directory)
               : 0;
}

int call_file_add(struct call *call, struct str data, struct error *err)
{
    int r;

    if (spool_add(&call->reply_charge, (int64_t)data.len, err) < 0)
        return -1;
    r = fd_write_full(call->reply_fd, data.p, data.len);
    if (r < 0)
        return error_set_errno(err, -r, "%zu bytes of the response to a file in %s", data.len,
                               call->desk->file_directory);
    call->reply_length += (int64_t)data.len;
    return 0;
}

void call_file_answer(struct call *call, int status, const char *content_type)
{
    call_answer_file(call, status, content_type, call->reply_fd, call->reply_length);
}

void call_file_drop(struct call *call)
{
    close_fd(&call->reply_fd);
    call->reply_length = 0;
    spool_release(&call->reply_charge);
}

int call_answer_bytes(struct call *call, int status, const char *content_type, struct str bytes,
                      struct error *err)
{
    if (call_file_open(call, err) < 0)
        return -1;
    if (call_file_add(call, bytes, err) < 0) {
        call_file_drop(call);
        return -1;
    }
    call_file_answer(call, status, content_type);
    return 0;
}
